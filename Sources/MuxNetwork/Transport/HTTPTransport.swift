import Foundation
import MuxKit

/// Sends requests and returns the server's answers, whatever their status.
///
/// ``URLSessionTransport`` is the default. A transport of your own, such as a test's, needs ``send(_:)`` alone.
///
/// **Errors.** A transport may throw errors of its own; its users get them as ``HTTPError/TransportFailure/unreachable(_:)``. The error's
/// conformance to `ConnectivityError` decides what happens then. If the server was not reached, the request is sent again
/// (``HTTPClient/Configuration/retry``), an older value is served (`MuxPolicy.staleIfError`), and a download resumes. Otherwise, as for
/// an untrusted certificate, the error is thrown at once. An error without that conformance counts as a lost connection, unless
/// it is a cancellation or an encoding or decoding error. A `RetryableError` decides on its own retries.
public protocol HTTPTransport: Sendable {
    /// Sends a request and returns the complete answer.
    ///
    /// - Throws: ``HTTPError``, or an error of the transport's own, if there is no complete answer; `CancellationError`, at
    ///   once, if the task is cancelled.
    func send(_ call: HTTPCall) async throws -> HTTPReply

    /// Sends a request and passes the answer to `sink` while it arrives.
    ///
    /// - Parameters:
    ///   - call: The request.
    ///   - sink: Takes the head, then the body piece by piece.
    /// - Returns: The head of the answer, once the body is complete; its own body is empty.
    /// - Throws: ``HTTPError``, or an error of the transport's own, if there is no complete answer; what the sink threw;
    ///   `CancellationError`, at once, if the task is cancelled, while the sink may still be taking one last piece.
    func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply
}

extension HTTPTransport {
    /// Sends a request with ``send(_:)`` and passes the whole answer to `sink`.
    ///
    /// - Parameters:
    ///   - call: The request.
    ///   - sink: Takes the head, then the body in one piece.
    /// - Returns: The head of the answer.
    /// - Throws: What ``send(_:)`` or the sink threw.
    public func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
        var reply = try await self.send(call)
        let body = reply.body
        reply.body = Data()
        try sink.receive(head: reply)
        if !body.isEmpty { try sink.receive(body) }
        return reply
    }
}

/// The limits of a ``URLSessionTransport``.
public struct HTTPTransportOptions: Sendable, Hashable {
    /// How long a server may be silent, for requests without a time-out of their own.
    public var timeout: Duration = .seconds(20)

    /// How long a request may take in all, redirections included; `nil` for any time.
    ///
    /// It does not apply to ``URLSessionTransport/stream(_:into:)``.
    public var deadline: Duration? = .seconds(40)

    /// The largest body that is accepted, in bytes, counted after decoding.
    public var maximumBodySize = 64 << 20

    /// The largest number of redirections of one request.
    public var maximumRedirects = 10

    /// The largest number of open connections to one host.
    public var connectionsPerHost = 10

    /// Header fields that are not sent on when a redirection leads to another scheme, host or port.
    public var credentialHeaders: Set<String> = ["Authorization", "Cookie", "X-Api-Key", "Proxy-Authorization"]

    /// The defaults.
    public init() {}
}

/// A transport that takes validated calls: those of this module, which differ in how they perform one exchange.
package protocol ValidatedTransport: HTTPTransport {
    var options: HTTPTransportOptions { get }

    /// Performs one exchange and hands the answer to `sink` while it arrives.
    ///
    /// - Parameters:
    ///   - call: The request.
    ///   - sink: Takes the head, then the body piece by piece.
    ///   - sizeLimit: The largest announced body that is accepted, in bytes; `nil` for any size.
    ///   - timeLimit: How long the exchange may take; `nil` for any time.
    /// - Returns: The head of the answer, once the body is complete.
    /// - Throws: ``HTTPError``, what the sink threw, or `CancellationError`.
    func perform(
        _ call: ValidatedCall,
        into sink: any HTTPSink,
        sizeLimit: Int?,
        timeLimit: Duration?
    ) async throws -> HTTPReply
}

extension ValidatedTransport {
    /// Sends a request and returns the complete answer, within the limits of ``options``.
    package func send(_ call: ValidatedCall) async throws -> HTTPReply {
        let limit = self.options.maximumBodySize
        let buffer = HTTPBuffer(limit: limit)
        var reply = try await self.perform(call, into: buffer, sizeLimit: limit, timeLimit: self.options.deadline)
        reply.body = buffer.body
        return reply
    }
}

extension HTTPTransport {
    /// Sends a request and returns the complete answer; validates nothing again.
    ///
    /// - Throws: ``HTTPError`` whatever the transport throws, or `CancellationError`.
    package func exchange(_ call: ValidatedCall) async throws -> HTTPReply {
        do {
            guard let transport = self as? any ValidatedTransport else { return try await self.send(call.call) }
            return try await transport.send(call)
        } catch {
            throw HTTPError.ended(by: error)
        }
    }

    /// Sends a request that the transport validates, and returns the complete answer.
    ///
    /// - Throws: ``HTTPError`` whatever the transport throws, or `CancellationError`.
    package func exchange(_ call: HTTPCall) async throws -> HTTPReply {
        do {
            return try await self.send(call)
        } catch {
            throw HTTPError.ended(by: error)
        }
    }

    /// Sends a request that the transport validates, and hands the answer to `sink` while it arrives.
    ///
    /// - Throws: What the sink threw, even if the transport throws another error then; ``HTTPError`` whatever else the
    ///   transport throws; or `CancellationError`.
    package func exchange(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
        let sink = RecordingSink(sink)
        do {
            let head = try await self.stream(call, into: sink)
            if let failure = sink.failure { throw failure }
            return head
        } catch {
            throw sink.failure ?? HTTPError.ended(by: error)
        }
    }
}

extension HTTPError {
    /// The error of an exchange whose transport threw `error`: a ``HTTPError``, or `CancellationError`.
    fileprivate static func ended(by error: any Error) -> any Error {
        switch error {
        case let error as HTTPError: error
        case let error as HTTPError.TransportFailure: HTTPError.transport(error)
        case let error as HTTPError.PreparationFailure: HTTPError.preparation(error)
        case _ where self.isCancellation(error): CancellationError()
        default: HTTPError.unreachable(error)
        }
    }

    /// Whether `error` is a cancellation, Swift's or that of the URL loading system (-999).
    static func isCancellation(_ error: any Error) -> Bool {
        if error is CancellationError { return true }
        let error = error as NSError
        return error.domain == "NSURLErrorDomain" && error.code == -999
    }
}
