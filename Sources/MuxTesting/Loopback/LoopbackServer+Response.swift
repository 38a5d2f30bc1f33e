public import Foundation

extension LoopbackServer {
    /// What a ``LoopbackServer`` answers, good manners or bad: a list of steps.
    public struct Response: Sendable {
        /// One thing that the server does to answer.
        public enum Step: Sendable {
            /// Sends a status line and header fields as they are, and `Connection: close` where the connection ends.
            ///
            /// What follows is the body: it is left out where there can be none, in answer to `HEAD` and with the statuses
            /// 1xx, 204 and 304. With `Connection: close` the connection is closed after it.
            case head(status: Int, headers: [(name: String, value: String)])

            /// Sends these bytes; without a ``head(status:headers:)`` before it, whatever was asked.
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

        /// What the server does, in order; afterwards the connection takes the next request, unless the client wants it closed.
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
            self.init(status, Self.fields(headers), length: claimedLength ?? body.count, body: body)
            if claimedLength != nil { self.steps.append(.close) }
        }

        /// A regular answer with text.
        public static func text(_ text: String, status: Int = 200) -> Response {
            Response(
                status: status,
                headers: ["Content-Type": "text/plain; charset=utf-8"],
                body: Data(text.utf8)
            )
        }

        /// A regular answer with a value as JSON; status 500 if the value cannot be encoded.
        public static func json(
            _ value: some Encodable,
            status: Int = 200,
            headers: KeyValuePairs<String, String> = [:]
        ) -> Response {
            guard let body = try? JSONEncoder().encode(value) else { return Response(status: 500) }
            let fields = Self.fields(headers) + Self.fields(["Content-Type": "application/json"])
            return Response(status, fields, length: body.count, body: body)
        }

        /// A regular answer that stops after the first `count` bytes of the body until `wait` returns.
        public static func held(
            body: Data,
            after count: Int,
            _ wait: @escaping @Sendable @concurrent () async -> Void
        ) -> Response {
            var response = Response(200, [], length: body.count, body: body.prefix(count))
            response.steps += [.wait(wait), .send(Data(body.dropFirst(count)))]
            return response
        }

        /// An answer of no announced length, which is written piece by piece and ends with the connection.
        ///
        /// ```swift
        /// let events = LoopbackServer/Response.streamed(contentType: "text/event-stream") { await feed.next() }
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
        ) -> Response {
            let fields = Self.fields(headers) + Self.fields(["Content-Type": contentType, "Connection": "close"])
            return Response(steps: [.head(status: 200, headers: fields), .sendAwaited(next), .close])
        }

        /// A redirection.
        public static func redirect(to location: URL, status: Int = 302) -> Response {
            Response(status: status, headers: ["Location": location.absoluteString])
        }

        private init(_ status: Int, _ headers: [(name: String, value: String)], length: Int, body: Data) {
            // RFC 9110, section 8.6, leaves no choice with 204, and with 304 the length would be that of another answer.
            let hasLength = status >= 200 && status != 204 && status != 304
            let length = hasLength ? Self.fields(["Content-Length": String(length)]) : []
            self.steps = [.head(status: status, headers: headers + length)]
            if !body.isEmpty { self.steps.append(.send(body)) }
        }

        private static func fields(_ fields: KeyValuePairs<String, String>) -> [(name: String, value: String)] {
            fields.map { (name: $0.key, value: $0.value) }
        }
    }
}
