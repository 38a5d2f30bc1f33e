import Foundation
import MuxKit

/// The rules for the redirections of one call (RFC 9110, section 15.4).
///
/// The transports of this library apply the rules. A custom transport can apply the rules as follows:
///
/// ```swift
/// var redirects = HTTPRedirects(call)
/// var reply = try await self.exchange(call)
/// while let next = try redirects.next(after: reply) { reply = try await self.exchange(next) }
/// ```
///
/// In the path, the query and the fragment of `Location`, illegal characters are percent-encoded, and valid
/// escapes are kept.
///
/// A redirection from `https` to `http` is refused, as is a redirection that would send the body to another
/// scheme, host or port. A redirection to another scheme, host or port removes credentials; a later
/// redirection back does not restore the credentials.
public struct HTTPRedirects: Sendable {
    private var call: HTTPCall
    private let limit: Int
    private let credentialHeaders: Set<HTTPHeaders.Name>
    private var count = 0

    /// Makes the rules for one call.
    ///
    /// - Parameters:
    ///   - call: The first request.
    ///   - configuration: The maximum number of redirections, and the names of credential fields in addition
    ///     to ``HTTPCall/credentialHeaders``.
    public init(_ call: HTTPCall, _ configuration: HTTPTransportConfiguration = HTTPTransportConfiguration()) {
        self.call = call
        self.limit = configuration.maximumRedirects
        let names = configuration.credentialHeaders.union(call.credentialHeaders)
        self.credentialHeaders = Set(names.compactMap { HTTPHeaders.Name(rawValue: $0) })
    }

    /// Returns the next request after a response.
    ///
    /// 301 and 302 change a `POST` to `GET`; 303 changes any method except `HEAD` to `GET`. A change to `GET`
    /// drops the body, the fields that describe the body, and the `Idempotency-Key`.
    ///
    /// - Parameter reply: The response to the previous request.
    /// - Returns: The next request; `nil` if the response is final. A redirection is final, too, if
    ///   `Location` is absent, ambiguous or invalid, for example with illegal characters in the host.
    /// - Throws: ``HTTPError/TransportFailure/redirectRefused(_:)``;
    ///   ``HTTPError/PreparationFailure/invalidURL`` if the request has no absolute `http` or `https` URL.
    public mutating func next(after reply: HTTPReply) throws(HTTPError) -> HTTPCall? {
        let locations = reply.headers.values(of: .location)
        guard [301, 302, 303, 307, 308].contains(reply.status), let text = locations.first, Set(locations).count == 1,
            let url = URLReference.url(text, relativeTo: self.call.url)
        else { return nil }
        self.count += 1
        guard self.count <= self.limit else { throw .redirectRefused(.tooMany(limit: self.limit)) }
        guard let origin = HTTPOrigin(self.call.url) else { throw .invalidURL }
        guard let next = HTTPOrigin(url) else {
            // `http:///x` has no host, so the response counts as a redirection without `Location`.
            guard !["http", "https"].contains(url.scheme?.lowercased()) else { return nil }
            throw .redirectRefused(.unknownScheme)
        }
        guard next.isSecure || !origin.isSecure else { throw .redirectRefused(.insecure) }
        let becomesGet =
            switch reply.status {
            case 301, 302: self.call.method == "POST"
            case 303: !["GET", "HEAD"].contains(self.call.method)
            default: false
            }
        if becomesGet {
            self.call.method = "GET"
            self.call.body = nil
            for name in Self.contentHeaders { self.call.headers[name] = nil }
        }
        if next != origin {
            guard self.call.body == nil else { throw .redirectRefused(.carriesBody) }
            for name in self.credentialHeaders { self.call.headers[name] = nil }
        }
        self.call.url = Self.inheritingFragment(of: self.call.url, url)
        return self.call
    }

    private static let contentHeaders: [HTTPHeaders.Name] = [
        .contentType, .contentEncoding, .contentLanguage, .contentLocation, .lastModified, "Digest", "Content-Digest",
        "Repr-Digest", .idempotencyKey,
    ]

    /// Adds the fragment of the previous URL to a location without a fragment (RFC 9110, section 10.2.2).
    private static func inheritingFragment(of old: URL, _ url: URL) -> URL {
        guard url.fragment() == nil, let fragment = old.fragment(percentEncoded: true),
            var components = URLComponents(url: url, resolvingAgainstBaseURL: true)
        else { return url }
        components.percentEncodedFragment = fragment
        return components.url ?? url
    }
}

/// Checks the head of a response for a redirection; a redirection does not reach the base sink.
final class RedirectingSink: HTTPSink {
    /// Ends the exchange, because the body of the redirection exceeds ``maximumDrainedBytes``.
    struct Following: Error {}

    private struct State: Sendable {
        var redirects: HTTPRedirects
        var next: HTTPCall?
        var droppedBytes = 0
    }

    /// The maximum number of bytes of a redirection's body that are read so that the connection can be
    /// reused.
    private static let maximumDrainedBytes = 64 << 10
    private let state: Locked<State>
    private let hasOtherMethod: Bool?
    private let base: any HTTPSink

    /// Makes a sink for one exchange.
    ///
    /// - Parameters:
    ///   - redirects: The rules.
    ///   - hasOtherMethod: See ``HTTPReply/hasOtherMethod``; `nil` for the first exchange.
    ///   - base: Receives the final response.
    init(_ redirects: HTTPRedirects, _ hasOtherMethod: Bool?, _ base: any HTTPSink) {
        self.state = Locked(State(redirects: redirects))
        self.hasOtherMethod = hasOtherMethod
        self.base = base
    }

    /// The next request if the response is a redirection to follow; otherwise `nil`.
    var next: HTTPCall? { self.state.withLock { $0.next } }
    var redirects: HTTPRedirects { self.state.withLock { $0.redirects } }

    func receive(head: HTTPReply) async throws {
        let isFinal = try self.state.withLock { state throws(HTTPError) in
            state.next = try state.redirects.next(after: head)
            return state.next == nil
        }
        guard isFinal else { return }
        var head = head
        if let hasOtherMethod { head.hasOtherMethod.value = hasOtherMethod }
        try await self.base.receive(head: head)
    }

    func receive(_ bytes: Data) async throws {
        let isFinal = try self.state.withLock { state throws(Following) in
            guard state.next != nil else { return true }
            state.droppedBytes += bytes.count
            guard state.droppedBytes <= Self.maximumDrainedBytes else { throw Following() }
            return false
        }
        if isFinal { try await self.base.receive(bytes) }
    }
}
