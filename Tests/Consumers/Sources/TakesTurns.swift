import Testing

/// Stands in for the trait of this package's own suites, which samples name; there is nothing to take turns with here.
struct TakesTurns: SuiteTrait {}

extension Trait where Self == TakesTurns {
    static var takesTurns: Self { .init() }
}
