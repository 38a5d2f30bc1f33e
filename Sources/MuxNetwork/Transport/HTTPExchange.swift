package import Foundation
import MuxKit

/// What is known of an answer while it arrives: the pure part of the bridge to `URLSession`.
package struct HTTPExchange: Sendable {
    private let method: String
    /// The largest body that is of use, if there is a limit.
    private let limit: Int?
    package var redirects: HTTPRedirects
    /// The header fields that stay behind when a redirection leads elsewhere.
    package let credentialHeaders: Set<String>
    /// A challenge was turned down, so the cancellation that follows is none: the refusal itself is the answer.
    private var isChallenged = false
    /// The head of the answer.
    private var reply: HTTPReply?
    /// How much of the body has arrived.
    private var received = 0
    /// Whether the head has arrived by itself, and not only with a challenge.
    package private(set) var isHeadReceived = false

    package init(method: String, limit: Int?, redirects: HTTPRedirects, credentialHeaders: Set<String> = []) {
        self.method = method
        self.limit = limit
        self.redirects = redirects
        self.credentialHeaders = credentialHeaders
    }

    /// The head of an answer has arrived.
    ///
    /// - Returns: Why to give up, if the answer is already known to be too large.
    package mutating func received(_ reply: HTTPReply) -> HTTPError? {
        self.reply = reply
        self.isHeadReceived = true
        guard let limit, let expected = self.expectedLength, expected > limit else { return nil }
        return .bodyTooLarge(limit: limit)
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

    /// The exchange has ended, with an error or without.
    package func ended(_ failure: HTTPFailure?) -> Result<HTTPReply, any Error> {
        switch failure {
        case .cancelled? where self.isChallenged: return self.reply.map { .success($0) } ?? .failure(HTTPError.notHTTP)
        case nil: break
        case .cancelled?: return .failure(CancellationError())
        case .timedOut(let time)?: return .failure(HTTPError.timedOut(after: time))
        case .other(let error)?:
            // Linux reports a short body as an unknown error; the lengths say what it was.
            if let expected = self.expectedLength, self.received < expected {
                return .failure(HTTPError.truncated(expected: expected, received: self.received))
            }
            return .failure(HTTPError.unreachable(error))
        }
        guard let reply = self.reply else { return .failure(HTTPError.notHTTP) }
        if let expected = self.expectedLength, self.received < expected {
            return .failure(HTTPError.truncated(expected: expected, received: self.received))
        }
        return .success(reply)
    }

    /// The body's length as announced; `nil` if nobody said, or the body arrives decoded, or there is none.
    private var expectedLength: Int? {
        guard let reply, self.method != "HEAD", reply.status != 204, reply.status != 304,
            ["", "identity"].contains(reply.header("Content-Encoding")?.lowercased() ?? "")
        else { return nil }
        return reply.header("Content-Length").flatMap { Int($0) }
    }
}

/// How an exchange failed, in terms that do not depend on the platform.
package enum HTTPFailure: Sendable {
    /// Somebody cancelled it.
    case cancelled
    /// The server was silent for this long.
    case timedOut(Duration)
    /// Anything else.
    case other(any Error)
}

/// Decides about the redirections of one request: pure, so that what no test server can play is testable too.
package struct HTTPRedirects: Sendable {
    /// What to do with a redirection.
    package enum Step: Sendable, Equatable {
        /// Follow it with the header fields as they are.
        case follow
        /// Follow it without the fields that carry credentials.
        case followWithoutCredentials
        /// Do not follow it.
        case refuse(HTTPRedirectRefusal)
    }

    private let origin: HTTPOrigin
    private let limit: Int
    private var current: HTTPOrigin
    private var count = 0
    /// Once credentials were dropped they stay dropped, even on the way back.
    private var hasLeft = false

    package init(origin: HTTPOrigin, limit: Int) {
        self.origin = origin
        self.current = origin
        self.limit = limit
    }

    package mutating func redirected(to url: URL, carriesBody: Bool) -> Step {
        self.count += 1
        guard self.count <= self.limit else { return .refuse(.tooMany(limit: self.limit)) }
        guard let next = HTTPOrigin(url) else { return .refuse(.unknownScheme) }
        guard next.isSecure || !self.current.isSecure else { return .refuse(.insecure) }
        self.current = next
        self.hasLeft = self.hasLeft || next != self.origin
        guard self.hasLeft else { return .follow }
        return carriesBody ? .refuse(.carriesBody) : .followWithoutCredentials
    }
}

/// Why a redirection was not followed.
@nonexhaustive
public enum HTTPRedirectRefusal: Sendable, Hashable, CustomStringConvertible {
    /// It leads from `https` to something that is not.
    case insecure

    /// It leads to something that is neither `http` nor `https`.
    case unknownScheme

    /// It would carry the request's body to another scheme, host or port.
    case carriesBody

    /// It is one more than this limit.
    case tooMany(limit: Int)

    /// The reason as the end of a sentence.
    public var description: String {
        switch self {
        case .insecure: "it leads from a secure to an insecure place"
        case .unknownScheme: "it leads to something that is not the web"
        case .carriesBody: "it would carry the body to another server"
        case .tooMany(let limit): "there were more than \(limit)"
        }
    }
}
