public import Foundation

/// A server's answer to a request, whatever its status.
///
/// Its description names neither header values nor the body, so it may be logged.
public struct HTTPResponse: Sendable, Hashable {
    /// The request as it was sent.
    public var request: HTTPCall

    /// The status.
    public var status: HTTPStatus

    /// The header fields.
    public var headers: HTTPHeaders

    /// The body, decoded from any content coding; empty if there is none.
    public var body: Data

    /// The URL that answered: another than that of ``request`` after a redirection; `nil` if the transport does not say.
    public var url: URL?

    /// Describes an answer.
    public init(
        request: HTTPCall,
        status: HTTPStatus,
        headers: HTTPHeaders = [:],
        body: Data = Data(),
        url: URL? = nil
    ) {
        self.request = request
        self.status = status
        self.headers = headers
        self.body = body
        self.url = url
    }

    /// The answer to `request` that a transport brought back.
    public init(request: HTTPCall, reply: HTTPReply) {
        self.init(
            request: request,
            status: HTTPStatus(reply.status),
            headers: HTTPHeaders(reply.headers),
            body: reply.body,
            url: reply.url
        )
    }

    /// What the status means in a few words of English; `nil` if it is none that is known.
    public var message: String? { self.status.phrase }

    /// The kind of the body, if the server said a valid one.
    public var contentType: HTTPMediaType? {
        self.headers[.contentType].flatMap { HTTPMediaType(rawValue: $0) }
    }
}

extension HTTPResponse: RedactedDescription {
    /// Status and size.
    public var description: String { "status \(self.status.code), \(self.body.count) bytes" }
}

extension HTTPResponse {
    /// How long the server wants to be left alone, as `Retry-After` says it: RFC 9110, section 10.2.3.
    ///
    /// A time of day counts from the answer's own `Date`; without one, from this device's clock.
    public var retryAfter: Duration? {
        HTTPRetryAfter.parse(self.headers[.retryAfter], date: self.headers[.date], now: Date())
    }
}

/// How long a server wants to be left alone: RFC 9110, section 10.2.3.
package enum HTTPRetryAfter {
    /// The time that the field says, as seconds or as a date; `nil` if it says neither.
    ///
    /// - Parameters:
    ///   - text: The value of `Retry-After`.
    ///   - date: The value of `Date` of the same answer. A time of day counts from there: the server's clock may be another.
    ///   - now: What it counts from if there is none.
    /// - Returns: The time, never negative and of 68 years at most.
    package static func parse(_ text: String?, date: String?, now: Date) -> Duration? {
        guard let text = text.map({ HTTPGrammar.trimmed($0) }) else { return nil }
        if let seconds = HTTPDeltaSeconds.parse(text) { return .seconds(seconds) }
        guard let time = HTTPDate.parse(text, now: now) else { return nil }
        let start = date.flatMap { HTTPDate.parse($0, now: now) } ?? now
        return HTTPDeltaSeconds.duration(time.timeIntervalSince(start))
    }
}

extension HTTPReply {
    /// How long the server wants to be left alone, if it said so.
    package func retryAfter(now: Date) -> Duration? {
        HTTPRetryAfter.parse(self.header("Retry-After"), date: self.header("Date"), now: now)
    }
}
