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

extension HTTPResponse: CustomStringConvertible, CustomReflectable {
    /// Status and size.
    public var description: String { "status \(self.status.code), \(self.body.count) bytes" }

    /// Shows what ``description`` shows and nothing more.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }
}
