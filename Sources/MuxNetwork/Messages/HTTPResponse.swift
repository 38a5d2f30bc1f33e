public import Foundation

/// The response to a request, with any status.
///
/// The description contains neither header values nor the body, and is safe to log.
public struct HTTPResponse: Sendable, Hashable {
    /// The request, without the header fields of the authenticator's token.
    public var request: HTTPCall

    /// The status.
    public var status: HTTPStatus

    /// The header fields.
    public var headers: HTTPHeaders

    /// The body, decoded as described in ``HTTPReply/body``; empty without a body.
    public var body: Data

    /// The trailer fields (RFC 9110, section 6.5); empty if the transport does not read trailers.
    public var trailers: HTTPHeaders

    /// The URL of the response, after redirections; `nil` if the transport does not report the URL.
    public var url: URL?

    /// See ``HTTPReply/hasOtherMethod``.
    private var hasOtherMethod = IgnoredInEquality<Bool?>(nil)

    /// Makes a response.
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

    /// Makes a response from a transport's reply to `request`.
    public init(request: HTTPCall, reply: HTTPReply) {
        self.init(
            request: request,
            status: HTTPStatus(reply.status),
            headers: reply.headers,
            body: reply.body,
            trailers: reply.trailers,
            url: reply.url
        )
        self.hasOtherMethod = reply.hasOtherMethod
    }

    /// Whether a redirection changed the method, so this is the response to a later request than ``request``.
    ///
    /// After such a redirection, the server has processed ``request``. A custom transport reports only the
    /// URL, not the method: then any redirection of an unsafe request to another resource counts as a change.
    var isOfLaterRequest: Bool {
        if let hasOtherMethod = self.hasOtherMethod.value { return hasOtherMethod }
        guard let url, !(HTTPMethod(rawValue: self.request.method)?.isSafe ?? false) else { return false }
        return HTTPResourceName(url) != HTTPResourceName(self.request.url)
    }

    /// Whether a redirection led to another resource than the resource of ``request``; `false` for a URL that
    /// names no resource of HTTP, as custom transports may report.
    var isRedirected: Bool {
        guard let name = self.url.flatMap({ HTTPResourceName($0) }) else { return false }
        return name != HTTPResourceName(self.request.url)
    }

    /// Whether the status is 401: the server refused the token of ``request``, or requires a token.
    ///
    /// `false` if ``isOfLaterRequest`` is `true`, and for a 401 of another origin: a redirection to another
    /// origin removes the token.
    var refusesToken: Bool {
        guard self.status == .unauthorized, !self.isOfLaterRequest else { return false }
        return self.url.map { HTTPOrigin($0) == HTTPOrigin(self.request.url) } ?? true
    }

    /// The English phrase of the status; see ``HTTPStatus/phrase``.
    public var message: String? { self.status.phrase }

    /// The absolute URL of a link in the response: RFC 3986, section 5.
    ///
    /// A link is, for example, the value of `Location`, or of a field `next` in the body.
    ///
    /// - Parameter link: The link from the server, absolute or relative. Illegal characters in the link are
    ///   percent-encoded, and valid escapes stay unchanged; `URL(string:)` would encode the escapes again.
    /// - Returns: An absolute URL; `nil` for an empty link, for a host with illegal characters, and for a
    ///   link that is not a valid URL for another reason.
    public func url(of link: String) -> URL? { URLReference.url(link, relativeTo: self.url ?? self.request.url) }

    /// The media type of the body; `nil` without a valid `Content-Type`.
    public var contentType: HTTPMediaType? {
        self.headers[.contentType].flatMap { HTTPMediaType(rawValue: $0) }
    }
}

extension HTTPResponse: RedactedDescription {
    /// The status and the size.
    public var description: String { "status \(self.status.code), \(self.body.count) bytes" }
}

extension HTTPResponse {
    /// The duration of `Retry-After` (RFC 9110, section 10.2.3); `nil` without a valid field.
    ///
    /// A date is relative to the response's `Date`. Without a valid `Date`, a date is relative to this
    /// device's clock.
    public var retryAfter: Duration? { self.headers.retryAfter(now: Date()) }
}

extension HTTPHeaders {
    /// The duration of `Retry-After` (RFC 9110, section 10.2.3), from 0 to 68 years; `nil` without a valid
    /// field.
    ///
    /// Seconds may have decimals: some servers send decimals, although the RFC permits only integers. A date
    /// is relative to `Date`, because the server's clock can differ from this device's clock.
    ///
    /// - Parameter now: The reference for a date if `Date` is absent or invalid.
    /// - Returns: The duration.
    func retryAfter(now: Date) -> Duration? {
        guard let text = self[.retryAfter].map({ HTTPGrammar.trimmed($0) }) else { return nil }
        if let seconds = HTTPDeltaSeconds.parse(text) { return .seconds(seconds) }
        let parts = text.split(separator: ".", omittingEmptySubsequences: false)
        if parts.count == 2, parts.allSatisfy({ HTTPDeltaSeconds.parse(String($0)) != nil }) {
            return Double(text).map { HTTPDeltaSeconds.duration($0) }
        }
        guard let time = HTTPDate.parse(text, now: now) else { return nil }
        let start = self[.date].flatMap { HTTPDate.parse($0, now: now) } ?? now
        return HTTPDeltaSeconds.duration(time.timeIntervalSince(start))
    }
}
