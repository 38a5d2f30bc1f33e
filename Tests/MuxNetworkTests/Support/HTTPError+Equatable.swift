public import MuxNetwork

/// Compares the texts of errors, without the names of requests, for the expectations of tests.
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

/// Compares the texts of errors, for the expectations of tests.
extension HTTPError.PreparationFailure: Equatable {
    /// Whether two errors say the same.
    public static func == (a: HTTPError.PreparationFailure, b: HTTPError.PreparationFailure) -> Bool {
        a.description == b.description
    }
}
