/// A description of a violated promise.
struct Violation: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) { self.description = description }
}

/// Throws a violation, with its line, unless `condition` holds.
func expect(_ condition: Bool, _ detail: @autoclosure () -> String = "", line: Int = #line) throws {
    guard condition else { throw Violation("line \(line): \(detail())") }
}
