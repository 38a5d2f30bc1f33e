extension HTTPError {
    package static var invalidURL: HTTPError { .preparation(.invalidURL) }
    package static func invalidHeader(name: String) -> HTTPError { .preparation(.invalidHeader(name: name)) }

    package static var notHTTP: HTTPError { .transport(.notHTTP) }
    package static func unreachable(_ error: any Error) -> HTTPError { .transport(.unreachable(error)) }
    package static func timedOut(after time: Duration) -> HTTPError { .transport(.timedOut(after: time)) }
    package static func bodyTooLarge(limit: Int) -> HTTPError { .transport(.bodyTooLarge(limit: limit)) }
    package static func redirectRefused(_ why: HTTPRedirectRefusal) -> HTTPError { .transport(.redirectRefused(why)) }
    package static func truncated(expected: Int, received: Int) -> HTTPError {
        .transport(.truncated(expected: expected, received: received))
    }
}
