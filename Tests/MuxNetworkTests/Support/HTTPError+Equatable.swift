public import MuxNetwork

/// So that a test can name the error it expects; causes count as equal, and the names of requests do not count.
extension HTTPError: Equatable {
    /// Whether two errors say the same.
    public static func == (a: HTTPError, b: HTTPError) -> Bool { a.nameless.description == b.nameless.description }

    var nameless: HTTPError {
        switch self {
        case .preparation(let error, _): .preparation(error)
        case .transport(let error, _): .transport(error)
        default: self
        }
    }
}

/// So that a test can name the reason it expects; causes count as equal.
extension HTTPError.PreparationFailure: Equatable {
    /// Whether two errors say the same.
    public static func == (a: HTTPError.PreparationFailure, b: HTTPError.PreparationFailure) -> Bool {
        a.description == b.description
    }
}
