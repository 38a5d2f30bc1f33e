public import Foundation

/// What a ``LoopbackServer`` answers, good manners or bad: a list of steps.
public struct LoopbackResponse: Sendable {
    /// One thing that the server does to answer.
    public enum Step: Sendable {
        /// Sends these bytes.
        case send(Data)

        /// Sends what the closure makes, piece by piece, until it makes no more: for a body larger than memory.
        case sendPieces(@Sendable () -> Data?)

        /// Sends what the closure waits for, piece by piece, until it returns `nil`: for an answer that is not known yet.
        ///
        /// The closure is cancelled when the client hangs up or the server stops.
        case sendAwaited(@Sendable @concurrent () async -> Data?)

        /// Waits until the closure returns, which is cancelled when the client hangs up or the server stops.
        case wait(@Sendable @concurrent () async -> Void)

        /// Closes the connection in an orderly way and does nothing more.
        case close

        /// Breaks the connection off with a reset and does nothing more.
        case reset
    }

    /// What the server does, in order; afterwards the connection takes the next request.
    public var steps: [Step]

    /// An answer of your own making.
    public init(steps: [Step]) { self.steps = steps }

    /// A regular answer.
    ///
    /// - Parameters:
    ///   - status: The status code.
    ///   - headers: Names and values of header fields; `Content-Length` is added.
    ///   - body: The body.
    ///   - claimedLength: What `Content-Length` says, if not the truth. The connection is then closed after the body.
    public init(
        status: Int = 200,
        headers: KeyValuePairs<String, String> = [:],
        body: Data = Data(),
        claimedLength: Int? = nil
    ) {
        let head = Self.head(status: status, headers: headers, length: claimedLength ?? body.count)
        self.steps = [.send(head + body)]
        if claimedLength != nil { self.steps.append(.close) }
    }

    /// A regular answer with text.
    public static func text(_ text: String, status: Int = 200) -> LoopbackResponse {
        LoopbackResponse(status: status, headers: ["Content-Type": "text/plain; charset=utf-8"], body: Data(text.utf8))
    }

    /// A regular answer with a value as JSON; status 500 if the value cannot be encoded.
    public static func json(
        _ value: some Encodable,
        status: Int = 200,
        headers: KeyValuePairs<String, String> = [:]
    ) -> LoopbackResponse {
        guard let body = try? JSONEncoder().encode(value) else { return LoopbackResponse(status: 500) }
        var response = LoopbackResponse(steps: [])
        let all = headers.map { ($0.key, $0.value) } + [("Content-Type", "application/json")]
        response.steps = [.send(Self.head(status: status, headers: all, length: body.count) + body)]
        return response
    }

    /// A regular answer that stops after the first `count` bytes of the body until `wait` returns.
    public static func held(
        body: Data,
        after count: Int,
        _ wait: @escaping @Sendable @concurrent () async -> Void
    ) -> LoopbackResponse {
        let head = Self.head(status: 200, headers: [:], length: body.count)
        return LoopbackResponse(steps: [
            .send(head + body.prefix(count)), .wait(wait), .send(Data(body.dropFirst(count))),
        ])
    }

    /// An answer of no announced length, which is written piece by piece and ends with the connection.
    ///
    /// ```swift
    /// let events = LoopbackResponse.streamed(contentType: "text/event-stream") { await feed.next() }
    /// ```
    ///
    /// - Parameters:
    ///   - contentType: The value of `Content-Type`.
    ///   - headers: Names and values of further header fields.
    ///   - next: Waits for the next piece; `nil` for the end. It is cancelled when the client hangs up or the server stops.
    /// - Returns: The answer.
    public static func streamed(
        contentType: String,
        headers: KeyValuePairs<String, String> = [:],
        next: @escaping @Sendable @concurrent () async -> Data?
    ) -> LoopbackResponse {
        let all = headers.map { ($0.key, $0.value) } + [("Content-Type", contentType), ("Connection", "close")]
        return LoopbackResponse(steps: [
            .send(Self.head(status: 200, headers: all, length: nil)), .sendAwaited(next), .close,
        ])
    }

    /// A redirection.
    public static func redirect(to location: URL, status: Int = 302) -> LoopbackResponse {
        LoopbackResponse(status: status, headers: ["Location": location.absoluteString])
    }

    private static func head(status: Int, headers: KeyValuePairs<String, String>, length: Int) -> Data {
        self.head(status: status, headers: headers.map { ($0.key, $0.value) }, length: length)
    }

    package static func head(status: Int, headers: [(String, String)], length: Int?) -> Data {
        var text = "HTTP/1.1 \(status) \(status < 400 ? "OK" : "Refused")\r\n"
        for (name, value) in headers { text += "\(name): \(value)\r\n" }
        if let length, status != 204, status != 304 { text += "Content-Length: \(length)\r\n" }
        return Data((text + "\r\n").utf8)
    }
}
