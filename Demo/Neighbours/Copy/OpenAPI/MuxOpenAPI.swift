// Copy this file into a target with a client of swift-openapi-generator. The target depends on `OpenAPIRuntime`,
// `MuxKit`, `MuxNetwork` and `MuxHTTPTypes`.

import Foundation
import HTTPTypes
import MuxHTTPTypes
public import MuxKit
import MuxNetwork
public import OpenAPIRuntime
import Synchronization

/// The transport of a generated client over a transport of MuxKit; request and response bodies are streamed.
///
/// ```swift
/// let client = Client(serverURL: url, transport: MuxClientTransport(), middlewares: [MuxAuthentication(oauth)])
/// ```
nonisolated struct MuxClientTransport: ClientTransport {
    private let transport: any HTTPTransport

    /// Makes a transport, for example over `.caching()`, which stores the responses.
    init(_ transport: any HTTPTransport = .system) { self.transport = transport }

    /// Sends a request.
    ///
    /// - Throws: `HTTPConversionError` for a request without a valid URL, the error of the transport, or
    ///   `CancellationError`. A failure after the head is thrown by the body.
    @concurrent
    func send(
        _ request: HTTPTypes.HTTPRequest,
        body: OpenAPIRuntime.HTTPBody?,
        baseURL: URL,
        operationID: String
    ) async throws -> (HTTPTypes.HTTPResponse, OpenAPIRuntime.HTTPBody?) {
        let call = try HTTPCall(Self.absolute(request, baseURL), body: body.map { Self.streamed($0) })
        let response = StreamedResponse()
        let task = Task { [transport = self.transport] in
            do {
                _ = try await transport.stream(call, into: response)
                response.end()
            } catch {
                response.end(error)
            }
        }
        // Cancels the task if this function throws.
        let exchange = RunningExchange(task)
        let head = try await withTaskCancellationHandler {
            try await response.head()
        } onCancel: {
            task.cancel()
        }
        let answer = try HTTPTypes.HTTPResponse(head)
        guard request.method != .head, ![204, 304].contains(head.status) else {
            response.ignoreBody()
            await task.value
            return (answer, nil)
        }
        let length = head.headers[.contentLength].flatMap { Int64($0) }
        // A decoded body has another length than the field.
        let known = head.headers[.contentEncoding] == nil ? length : nil
        let body = OpenAPIRuntime.HTTPBody(
            StreamedResponse.Pieces(response: response, exchange: exchange),
            length: known.map { .known($0) } ?? .unknown,
            iterationBehavior: .single
        )
        return (answer, body)
    }

    /// The request with the scheme, the host and the path of the server.
    private static func absolute(_ request: HTTPTypes.HTTPRequest, _ server: URL) -> HTTPTypes.HTTPRequest {
        var request = request
        // The runtime sets `Content-Length`, which is a field of the transport; the body has the length, too.
        for name in HTTPHeaders.Name.framing {
            if let name = HTTPField.Name(name.rawValue) { request.headerFields[fields: name] = [] }
        }
        request.scheme = server.scheme
        request.authority = server.host().map { host in
            (host.contains(":") ? "[\(host)]" : host) + (server.port.map { ":\($0)" } ?? "")
        }
        let base = server.path(percentEncoded: true)
        request.path = (base.hasSuffix("/") ? String(base.dropLast()) : base) + (request.path ?? "/")
        return request
    }

    private static func streamed(_ body: OpenAPIRuntime.HTTPBody) -> HTTPCall.Body {
        let length: Int? = if case .known(let length) = body.length { Int(exactly: length) } else { nil }
        guard body.iterationBehavior == .single else {
            return .stream(.init(length: length) { body.map { Data($0) } })
        }
        // The runtime ends the program at a second iteration, which a redirection needs.
        let once = Once()
        return .stream(.init(length: length) { OnceSequence(body: once.take() ? body : nil) })
    }
}

/// Adds the token of an authenticator to each request of a generated client.
///
/// After a 401 the authenticator renews the token once for all requests, and each request is sent again. The
/// requests for the token itself do not use the generated client, so this middleware does not get them. A
/// request whose body can be read only once is not sent again: the caller gets the 401, and the next request has
/// the new token.
nonisolated struct MuxAuthentication: ClientMiddleware {
    private let authenticator: any HTTPAuthenticator

    /// Makes the middleware of a `DependentRunner`, an `OAuthDependentRunner` or another authenticator.
    init(_ authenticator: any HTTPAuthenticator) { self.authenticator = authenticator }

    /// Sends a request with a token.
    @concurrent
    func intercept(
        _ request: HTTPTypes.HTTPRequest,
        body: OpenAPIRuntime.HTTPBody?,
        baseURL: URL,
        operationID: String,
        next:
            @concurrent @Sendable (HTTPTypes.HTTPRequest, OpenAPIRuntime.HTTPBody?, URL) async throws -> (
                HTTPTypes.HTTPResponse, OpenAPIRuntime.HTTPBody?
            )
    ) async throws -> (HTTPTypes.HTTPResponse, OpenAPIRuntime.HTTPBody?) {
        let isRepeatable = body?.iterationBehavior != .single
        let refused = Refused()
        return try await self.authenticator.authorized { token in
            // The token is renewed for later requests, but the body of this request cannot be read again.
            if let response = refused.response { return .output(response) }
            var authorized = request
            let names = Set(token.headers.fields.map(\.name.rawValue))
            let fields = try HTTPFields(token.headers, credentials: names)
            for field in fields { authorized.headerFields[fields: field.name] = [] }
            for field in fields { authorized.headerFields.append(field) }
            let response = try await next(authorized, body, baseURL)
            guard response.0.status == .unauthorized else { return .output(response) }
            if !isRepeatable { refused.response = response }
            return .badDependency
        }
    }
}

/// The 401 of a request that is not sent again.
private nonisolated final class Refused: Sendable {
    private let state = Mutex<(HTTPTypes.HTTPResponse, OpenAPIRuntime.HTTPBody?)?>(nil)

    var response: (HTTPTypes.HTTPResponse, OpenAPIRuntime.HTTPBody?)? {
        get { self.state.withLock { $0 } }
        set { self.state.withLock { $0 = newValue } }
    }
}

extension OpenAPIRuntime.ClientError: MuxKit.WrappingError {
    /// The error of the transport, of a middleware or of the decoder.
    public nonisolated var wrappedError: (any Error)? { self.underlyingError }
}

/// A response whose body is read while it arrives; the reader's speed limits the transport.
private nonisolated final class StreamedResponse: HTTPSink {
    private let heads: AsyncThrowingStream<HTTPReply, any Error>
    private let headArrival: AsyncThrowingStream<HTTPReply, any Error>.Continuation
    private let pieces: AsyncThrowingStream<Data, any Error>
    private let pieceArrival: AsyncThrowingStream<Data, any Error>.Continuation
    private let demands: AsyncStream<Void>
    private let demand: AsyncStream<Void>.Continuation

    init() {
        (self.heads, self.headArrival) = AsyncThrowingStream.makeStream()
        (self.pieces, self.pieceArrival) = AsyncThrowingStream.makeStream()
        (self.demands, self.demand) = AsyncStream.makeStream()
    }

    /// Waits for the head.
    func head() async throws -> HTTPReply {
        for try await head in self.heads { return head }
        throw CancellationError()
    }

    func receive(head: HTTPReply) { self.headArrival.yield(head) }

    func receive(_ bytes: Data) async throws {
        for await _ in self.demands {
            self.pieceArrival.yield(bytes)
            return
        }
        // Without demands, the body is ignored.
        try Task.checkCancellation()
    }

    func ignoreBody() { self.demand.finish() }

    func end(_ error: (any Error)? = nil) {
        self.headArrival.finish(throwing: error)
        self.pieceArrival.finish(throwing: error)
    }

    /// The pieces of the body; the exchange ends with the last reference to this sequence.
    struct Pieces: AsyncSequence, Sendable {
        let response: StreamedResponse
        let exchange: RunningExchange

        func makeAsyncIterator() -> Iterator {
            Iterator(pieces: self.response.pieces.makeAsyncIterator(), demand: self.response.demand, sequence: self)
        }

        struct Iterator: AsyncIteratorProtocol {
            fileprivate var pieces: AsyncThrowingStream<Data, any Error>.AsyncIterator
            fileprivate let demand: AsyncStream<Void>.Continuation
            fileprivate let sequence: Pieces

            @concurrent
            mutating func next() async throws -> ArraySlice<UInt8>? {
                self.demand.yield()
                let piece = try await self.pieces.next()
                // A cancelled task gets no piece, which is not the end of the body.
                if piece == nil { try Task.checkCancellation() }
                return piece.map { ArraySlice($0) }
            }
        }
    }
}

/// Cancels an exchange with the last reference.
private nonisolated final class RunningExchange: Sendable {
    private let task: Task<Void, Never>

    init(_ task: Task<Void, Never>) { self.task = task }

    deinit { self.task.cancel() }
}

/// A body that can be read once; a second iteration throws.
private nonisolated struct OnceSequence: AsyncSequence, Sendable {
    /// The body of the request was read, and cannot be read again.
    struct AlreadyRead: Error {}

    /// `nil` after the first iteration.
    let body: OpenAPIRuntime.HTTPBody?

    func makeAsyncIterator() -> Iterator { Iterator(pieces: self.body?.makeAsyncIterator()) }

    struct Iterator: AsyncIteratorProtocol {
        var pieces: OpenAPIRuntime.HTTPBody.AsyncIterator?

        @concurrent
        mutating func next() async throws -> Data? {
            guard let piece = try await self.pieces?.next() else {
                if self.pieces == nil { throw AlreadyRead() }
                return nil
            }
            return Data(piece)
        }
    }
}

/// A value that can be taken once.
private nonisolated final class Once: Sendable {
    private let isTaken = Atomic(false)

    /// Whether this is the first call.
    func take() -> Bool { !self.isTaken.exchange(true, ordering: .relaxed) }
}
