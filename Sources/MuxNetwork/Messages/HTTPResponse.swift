public import Foundation

/// A server's answer to a request, whatever its status.
///
/// Its description contains neither header values nor the body, so it may be logged.
public struct HTTPResponse: Sendable, Hashable {
    /// The request as it was sent.
    public var request: HTTPCall

    /// The status.
    public var status: HTTPStatus

    /// The header fields.
    public var headers: HTTPHeaders

    /// The body, decoded from any content coding; empty if there is none.
    public var body: Data

    /// The fields after the body (RFC 9110, section 6.5); none where the transport does not read them.
    public var trailers: HTTPHeaders

    /// The URL that answered, after redirections; `nil` if the transport does not say.
    public var url: URL?

    /// Makes an answer.
    public init(
        request: HTTPCall,
        status: HTTPStatus,
        headers: HTTPHeaders = [:],
        body: Data = Data(),
        trailers: HTTPHeaders = [:],
        url: URL? = nil
    ) {
        self.request = request
        self.status = status
        self.headers = headers
        self.body = body
        self.trailers = trailers
        self.url = url
    }

    /// The answer to `request` that a transport returned.
    public init(request: HTTPCall, reply: HTTPReply) {
        self.init(
            request: request,
            status: HTTPStatus(reply.status),
            headers: reply.headers,
            body: reply.body,
            trailers: reply.trailers,
            url: reply.url
        )
    }

    /// The status's phrase in English; `nil` if the status is not registered.
    public var message: String? { self.status.phrase }

    /// The URL of a link in the response, such as the value of `Location` or of a `next` in its body: RFC 3986, section 5.
    ///
    /// - Parameter link: The link as the server sent it, absolute or relative. Characters that are illegal in a URL are percent-encoded;
    ///   valid escapes stay as they are, where `URL(string:)` would encode them again.
    /// - Returns: An absolute URL; `nil` for an empty link, and for a host with illegal characters.
    public func url(of link: String) -> URL? { URLReference.url(link, relativeTo: self.url ?? self.request.url) }

    /// The media type of the body, if the server sent a valid one.
    public var contentType: HTTPMediaType? {
        self.headers[.contentType].flatMap { HTTPMediaType(rawValue: $0) }
    }
}

extension HTTPResponse: RedactedDescription {
    /// Status and size.
    public var description: String { "status \(self.status.code), \(self.body.count) bytes" }
}

extension HTTPResponse {
    /// The time of `Retry-After`: RFC 9110, section 10.2.3.
    ///
    /// A date counts from the answer's `Date`; without one, from this device's clock.
    public var retryAfter: Duration? {
        HTTPRetryAfter.parse(self.headers[.retryAfter], date: self.headers[.date], now: Date())
    }
}

/// The field `Retry-After`: RFC 9110, section 10.2.3.
package enum HTTPRetryAfter {
    /// Reads seconds or a date; `nil` if `text` is neither.
    ///
    /// Seconds may have decimals, which some servers send although the RFC does not permit them.
    ///
    /// - Parameters:
    ///   - text: The value of `Retry-After`.
    ///   - date: The value of `Date` of the same answer, from which a date counts: the server's clock may differ.
    ///   - now: Where a date counts from without `date`.
    /// - Returns: The time, never negative and of 68 years at most.
    package static func parse(_ text: String?, date: String?, now: Date) -> Duration? {
        guard let text = text.map({ HTTPGrammar.trimmed($0) }) else { return nil }
        if let seconds = HTTPDeltaSeconds.parse(text) { return .seconds(seconds) }
        let parts = text.split(separator: ".", omittingEmptySubsequences: false)
        if parts.count == 2, parts.allSatisfy({ HTTPDeltaSeconds.parse(String($0)) != nil }) {
            return Double(text).map { HTTPDeltaSeconds.duration($0) }
        }
        guard let time = HTTPDate.parse(text, now: now) else { return nil }
        let start = date.flatMap { HTTPDate.parse($0, now: now) } ?? now
        return HTTPDeltaSeconds.duration(time.timeIntervalSince(start))
    }
}

extension HTTPReply {
    /// The time of `Retry-After`, if there is one.
    package func retryAfter(now: Date) -> Duration? {
        HTTPRetryAfter.parse(self.headers[.retryAfter], date: self.headers[.date], now: now)
    }
}
