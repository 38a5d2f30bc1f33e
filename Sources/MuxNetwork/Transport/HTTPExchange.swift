package import Foundation

/// The state of one exchange while its answer arrives, and the decisions about it: pure, and the same for every transport.
package struct HTTPExchange: Sendable {
    private let method: HTTPMethod
    /// The largest body that is accepted, in bytes; `nil` for any size.
    private let sizeLimit: Int?
    /// The header fields that stay behind when a redirection leads to another origin.
    package let credentialHeaders: Set<String>
    private var redirects: HTTPRedirects
    /// A challenge was rejected, so a cancellation that follows is the transport's own: the refusal is the answer.
    private var isChallenged = false
    /// The head of the answer.
    private var reply: HTTPReply?
    /// How many bytes of the body have arrived.
    private var received = 0
    /// Whether the head has arrived by itself, and not only with a challenge.
    package private(set) var isHeadReceived = false

    package init(_ call: ValidatedCall, _ options: HTTPTransportOptions, sizeLimit: Int?) {
        self.method = call.method
        self.sizeLimit = sizeLimit
        self.credentialHeaders = options.credentialHeaders.union(call.call.credentialHeaders)
        self.redirects = HTTPRedirects(origin: call.origin, limit: options.maximumRedirects)
    }

    /// The head of an answer has arrived.
    ///
    /// - Returns: Why to give up, if the announced length is beyond the limit.
    package mutating func received(_ reply: HTTPReply) -> HTTPError? {
        self.reply = reply
        self.isHeadReceived = true
        guard let sizeLimit, let expected = self.expectedLength, expected > sizeLimit else { return nil }
        return .bodyTooLarge(limit: sizeLimit)
    }

    /// A part of the body has arrived.
    package mutating func received(count: Int) { self.received += count }

    /// The server asked for credentials and gets none.
    ///
    /// - Parameter refusal: The head of the answer that asked, in case it is not delivered by itself.
    package mutating func challenged(_ refusal: HTTPReply?) {
        self.isChallenged = true
        self.reply = self.reply ?? refusal
    }

    /// The server redirects to `url`.
    package mutating func redirected(to url: URL, carriesBody: Bool) -> HTTPRedirects.Step {
        self.redirects.redirected(to: url, carriesBody: carriesBody)
    }

    /// How an exchange failed, in terms that do not depend on the platform.
    package enum Failure: Sendable {
        case cancelled
        /// The server was silent for this long.
        case timedOut(Duration)
        case other(any Error)
    }

    /// The exchange has ended, with an error or without.
    package func ended(_ failure: Failure?) -> Result<HTTPReply, any Error> {
        switch failure {
        case .cancelled? where self.isChallenged: return self.reply.map { .success($0) } ?? .failure(HTTPError.notHTTP)
        case .cancelled?: return .failure(CancellationError())
        case .timedOut(let time)?: return .failure(HTTPError.timedOut(after: time))
        case .other(let error)?:
            // Linux reports a short body as an unknown error; the lengths say what it was.
            return .failure(self.truncation ?? HTTPError.unreachable(error))
        case nil:
            guard let reply = self.reply else { return .failure(HTTPError.notHTTP) }
            return self.truncation.map { .failure($0) } ?? .success(reply)
        }
    }

    private var truncation: HTTPError? {
        guard let expected = self.expectedLength, self.received < expected else { return nil }
        return .truncated(expected: expected, received: self.received)
    }

    /// The body's length as announced; `nil` if it was not, if the body arrives decoded, or if there is none.
    private var expectedLength: Int? {
        guard let reply, self.method != .head, reply.status != 204, reply.status != 304,
            ["", "identity"].contains(reply.header("Content-Encoding")?.lowercased() ?? "")
        else { return nil }
        return reply.header("Content-Length").flatMap { Int($0) }
    }
}
