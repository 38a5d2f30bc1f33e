import Foundation
import MuxKit

extension HTTPError: UnsentError {
    package var isUnsentRequest: Bool? {
        switch self {
        case .authentication: true
        case .transport(let error, _): error.isUnsentRequest
        // `false` for an invalid request, too: another attempt would fail again.
        case .preparation, .status, .decoding: false
        }
    }
}

extension HTTPError.TransportFailure: UnsentError {
    package var isUnsentRequest: Bool? {
        switch self {
        case .notResolved, .notConnected, .insecureConnection, .serverBusy: true
        case .unreachable(let error): error.isUnsent
        case .closedWithoutResponse, .timedOut, .deadlineExceeded, .truncated, .notHTTP, .damagedContent,
            .headTooLarge, .bodyTooLarge, .redirectRefused:
            false
        }
    }
}

extension HTTPError {
    /// For a request that was sent before: replaces an error that reports the request as unsent.
    ///
    /// The server may have processed the earlier sending, so an outbox must not repeat the request as unsent.
    /// A safe request keeps its error, because a repetition does no harm.
    ///
    /// - Parameter method: The method of the request.
    /// - Returns: The error.
    func afterEarlierSending(of method: HTTPMethod) -> HTTPError {
        self.isUnsent && !method.isSafe ? .transport(.closedWithoutResponse(self)) : self
    }
}

/// The failure of a later request, after a redirection that changed the method: the server has processed the
/// first request.
struct LaterRequestError: WrappingError, UnsentError, LocalizedError {
    let underlying: any Error

    var wrappedError: (any Error)? { self.underlying }
    var isUnsentRequest: Bool? { false }
    var errorDescription: String? { ErrorText.sentence(of: self.underlying) }
}
