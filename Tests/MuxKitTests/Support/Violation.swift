/// A promise that was not kept, in words.
struct Violation: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) { self.description = description }
}

/// Throws a violation unless `condition` holds.
func require(_ condition: Bool, _ description: @autoclosure () -> String) throws {
    guard condition else { throw Violation(description()) }
}
