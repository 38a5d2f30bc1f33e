import Testing

/// Stands in for the traits of this package's own tests, which samples name: a consumer's process runs few of
/// them.
struct StandIn: TestTrait, SuiteTrait {}

extension Trait where Self == StandIn {
    static func standard(endsAtRest: Bool) -> Self { .init() }
    static var ownThreads: Self { .init() }
}
