import Testing

/// A substitute for the traits of this package's tests in samples: a consumer's process runs few tests.
struct StandIn: TestTrait, SuiteTrait {}

extension Trait where Self == StandIn {
    static func standard(endsAtRest: Bool) -> Self { .init() }
    static var ownThreads: Self { .init() }
}
