public import Foundation

extension LoopbackServer {
    /// A response as a list of steps, well-formed or malformed.
    public struct Response: Sendable {
        /// One action of the server.
        public enum Step: Sendable {
            /// Sends a status line and the given header fields.
            ///
            /// Except with the statuses 1xx, the server adds `Connection: close` if the request ends the
            /// connection. The server adds `Connection: keep-alive` if an HTTP/1.0 request keeps the
            /// connection open.
            ///
            /// In a response to `HEAD`, and with the statuses 1xx, 204 and 304, the server skips the steps
            /// `send`, `sendPieces`, `sendAwaited` and `wait` up to the next head. With `Connection: close`
            /// the connection is closed after the last step.
            case head(status: Int, headers: [(name: String, value: String)])

            /// Sends the given bytes, with or without a preceding ``head(status:headers:)``.
            case send(Data)

            /// Sends pieces until the closure returns `nil`; for a body larger than memory.
            case sendPieces(@Sendable () -> Data?)

            /// Sends pieces until the closure returns `nil`; for a body not known in advance.
            ///
            /// The closure is cancelled if the client hangs up or the server stops.
            case sendAwaited(@Sendable @concurrent () async -> Data?)

            /// Waits until the closure returns; the closure is cancelled if the client hangs up or the server
            /// stops.
            case wait(@Sendable @concurrent () async -> Void)

            /// Closes the connection and ends the response.
            case close

            /// Resets the connection and ends the response.
            case reset
        }

        /// The steps in order.
        ///
        /// After the last step, the server reads the next request from the connection, unless the request or
        /// the response ends the connection, for example with `Connection: close`.
        public var steps: [Step]

        /// Makes a response from steps.
        public init(steps: [Step]) { self.steps = steps }

        /// Makes a response with a head and a body.
        ///
        /// - Parameters:
        ///   - status: The status code.
        ///   - headers: Names and values of header fields; `Content-Length` is added, except with the
        ///     statuses 1xx, 204 and 304.
        ///   - body: The body.
        ///   - claimedLength: A wrong `Content-Length`, in bytes; `nil` for the size of the body. After a
        ///     body with a wrong length, the server closes the connection.
        public init(
            status: Int = 200,
            headers: KeyValuePairs<String, String> = [:],
            body: Data = Data(),
            claimedLength: Int? = nil
        ) {
            self.init(status, Self.fields(headers), length: claimedLength ?? body.count, body: body)
            if claimedLength != nil { self.steps.append(.close) }
        }

        /// A response with text.
        public static func text(_ text: String, status: Int = 200) -> Response {
            Response(
                status: status,
                headers: ["Content-Type": "text/plain; charset=utf-8"],
                body: Data(text.utf8)
            )
        }

        /// A response with a value as JSON; status 500 if the value is not encodable.
        public static func json(
            _ value: some Encodable,
            status: Int = 200,
            headers: KeyValuePairs<String, String> = [:]
        ) -> Response {
            guard let body = try? JSONEncoder().encode(value) else { return Response(status: 500) }
            let fields = Self.fields(headers) + Self.fields(["Content-Type": "application/json"])
            return Response(status, fields, length: body.count, body: body)
        }

        /// A response with a pause after the first `count` bytes of the body, until `wait` returns.
        public static func held(
            body: Data,
            after count: Int,
            _ wait: @escaping @Sendable @concurrent () async -> Void
        ) -> Response {
            var response = Response(200, [], length: body.count, body: body.prefix(count))
            response.steps += [.wait(wait), .send(Data(body.dropFirst(count)))]
            return response
        }

        /// A response without `Content-Length`, sent in pieces; the end of the connection ends the body.
        ///
        /// ```swift
        /// let events = LoopbackServer.Response.streamed(contentType: "text/event-stream") {
        ///     await feed.next()
        /// }
        /// ```
        ///
        /// - Parameters:
        ///   - contentType: The value of `Content-Type`.
        ///   - headers: Names and values of further header fields.
        ///   - next: Returns the next piece, or `nil` at the end. The closure is cancelled if the client
        ///     hangs up or the server stops.
        /// - Returns: The response.
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
            // RFC 9110, section 8.6: forbidden with 1xx and 204; with 304 the field would have the length of
            // the 200 response.
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
