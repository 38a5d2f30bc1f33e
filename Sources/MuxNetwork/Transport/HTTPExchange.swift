public import Foundation
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

/// Scheme, host and port of a URL: what credentials belong to (RFC 6454).
package struct HTTPOrigin: Sendable, Hashable {
    package var scheme: String
    package var host: String
    package var port: Int

    /// The origin of an absolute `http` or `https` URL; `nil` for any other.
    package init?(_ url: URL) {
        guard let scheme = url.scheme?.lowercased(), let host = url.host()?.lowercased(), !host.isEmpty else {
            return nil
        }
        switch scheme {
        case "http": self.port = url.port ?? 80
        case "https": self.port = url.port ?? 443
        default: return nil
        }
        self.scheme = scheme
        self.host = host
    }

    package var isSecure: Bool { self.scheme == "https" }

    /// Whether it is on this machine: by the name that is always its own (RFC 6761, section 6.3), or by its address.
    package var isLoopback: Bool {
        if ["localhost", "::1", "[::1]"].contains(self.host) { return true }
        let parts = self.host.split(separator: ".", omittingEmptySubsequences: false)
        let isAddress = parts.allSatisfy { $0.utf8.allSatisfy { (48...57).contains($0) } && UInt8($0) != nil }
        return isAddress && parts.count == 4 && parts[0] == "127"
    }
}

/// A sink that keeps the body in memory, up to a limit.
final class HTTPBuffer: HTTPSink {
    private let limit: Int
    private let bytes = Locked(Data())

    init(limit: Int) { self.limit = limit }

    var body: Data { self.bytes.withLock { $0 } }

    func receive(head: HTTPReply) {}

    func receive(_ bytes: Data) throws {
        let fits = self.bytes.withLock { body -> Bool in
            guard bytes.count <= self.limit - body.count else { return false }
            body.append(bytes)
            return true
        }
        guard fits else { throw HTTPError.bodyTooLarge(limit: self.limit) }
    }
}

/// Takes in an answer while it arrives, so that no more than a piece of it is in memory.
///
/// A transport calls it on a thread of its own, one call at a time and in order. Nothing holds the server back meanwhile,
/// so each call does a bounded amount of work, such as writing the piece to a file, and returns.
///
/// **After a failure.** An error that it throws ends the exchange, and the transport's caller gets that error.
public protocol HTTPSink: Sendable {
    /// Takes the head of the answer: the status and the header fields, before any of the body.
    ///
    /// - Parameter head: The head; its body is empty.
    /// - Throws: Any error, to go no further.
    func receive(head: HTTPReply) throws

    /// Takes the next piece of the body.
    ///
    /// - Parameter bytes: The piece, decoded from any content encoding.
    /// - Throws: Any error, to go no further.
    func receive(_ bytes: Data) throws
}

/// What a transport without credentials answers to a challenge of the URL loading system.
package enum HTTPChallengeAnswer: Sendable, Hashable {
    /// The system goes on as it would by itself: it checks the server's certificate, and shows none of its own.
    case performDefaultHandling

    /// The system goes on without credentials, so that the refusal arrives as it is, with its body.
    case rejectProtectionSpace

    /// The system ends the request; the head of the refusal is known from the challenge.
    ///
    /// On Apple platforms this would cost the body of a 401.
    case cancelAuthenticationChallenge

    /// The answer to a challenge.
    ///
    /// - Parameters:
    ///   - method: The authentication method of the challenge's protection space.
    ///   - goesOnAfterRejection: Whether the system goes on without credentials once it is told to.
    package init(to method: String, goesOnAfterRejection: Bool) {
        guard Self.methodsOfHTTP.contains(method) else {
            self = .performDefaultHandling
            return
        }
        self = goesOnAfterRejection ? .rejectProtectionSpace : .cancelAuthenticationChallenge
    }

    /// The methods by which a server, or a proxy, asks for a name and a password, as both Foundations spell them.
    private static let methodsOfHTTP: Set<String> = [
        "NSURLAuthenticationMethodDefault", "NSURLAuthenticationMethodHTTPBasic", "NSURLAuthenticationMethodHTTPDigest",
        "NSURLAuthenticationMethodHTMLForm", "NSURLAuthenticationMethodNegotiate", "NSURLAuthenticationMethodNTLM",
    ]
}
