public import MuxNetwork

/// So that a test can name the error it expects; causes count as equal.
extension HTTPError: Equatable {
    /// Whether two errors say the same.
    public static func == (a: HTTPError, b: HTTPError) -> Bool { a.description == b.description }
}

/// So that a test can name the reason it expects; causes count as equal.
extension HTTPError.PreparationFailure: Equatable {
    /// Whether two errors say the same.
    public static func == (a: HTTPError.PreparationFailure, b: HTTPError.PreparationFailure) -> Bool {
        a.description == b.description
    }
}
