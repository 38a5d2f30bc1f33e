import Foundation
import HTTPTypes
import Hummingbird
import MuxNetwork
import NIOCore
import NIOFoundationCompat
import Synchronization

/// The meeting of a request's cache lookup and its handler: the lookup demands a response, and the task of
/// the request runs the handler.
final class HandlerExchange: Sendable {
    @TaskLocal static var current: HandlerExchange?
    /// The caches that run the current handler.
    @TaskLocal static var caches: [ObjectIdentifier] = []

    /// The header fields of the demanded requests.
    let demands: AsyncStream<HTTPHeaders>
    private let demand: AsyncStream<HTTPHeaders>.Continuation
    private let replies: AsyncStream<HTTPReply>
    private let reply: AsyncStream<HTTPReply>.Continuation
    private let lastResult = Mutex<Result<Response, any Error>?>(nil)

    init() {
        (self.demands, self.demand) = AsyncStream.makeStream()
        (self.replies, self.reply) = AsyncStream.makeStream()
    }

    /// The outcome of the last call of the handler; `nil` before the first call.
    var result: Result<Response, any Error>? {
        get { self.lastResult.withLock { $0 } }
        set { self.lastResult.withLock { $0 = newValue } }
    }

    /// Demands a response, and waits for the response.
    ///
    /// - Throws: `CancellationError`.
    func response(to headers: HTTPHeaders) async throws -> HTTPReply {
        self.demand.yield(headers)
        for await reply in self.replies { return reply }
        throw CancellationError()
    }

    /// Delivers the demanded response.
    func answer(_ reply: HTTPReply) { self.reply.yield(reply) }

    /// Ends ``demands``.
    func end() { self.demand.finish() }
}

/// The handler of the current request, as the server of a cache.
struct HandlerTransport: HTTPTransport {
    func send(_ call: HTTPCall) async throws -> HTTPReply {
        guard let exchange = HandlerExchange.current else { throw CancellationError() }
        return try await exchange.response(to: call.headers)
    }
}

/// The body of a response in memory.
final class CollectedBody: Sendable {
    /// The handler wrote a body of another length than it announced.
    struct WrongLength: Error {}

    private let state = Mutex<(bytes: Data, trailers: HTTPHeaders)>((Data(), [:]))
    private let limit: Int

    /// - Parameter limit: The announced length.
    init(limit: Int) { self.limit = limit }

    var contents: (Data, HTTPHeaders) { self.state.withLock { $0 } }

    var count: Int { self.state.withLock { $0.bytes.count } }

    func append(_ buffer: ByteBuffer) throws {
        try self.state.withLock { state in
            guard buffer.readableBytes <= self.limit - state.bytes.count else { throw WrongLength() }
            state.bytes.append(contentsOf: buffer.readableBytesView)
        }
    }

    func end(_ trailers: HTTPFields) { self.state.withLock { $0.trailers = HTTPHeaders(trailers) } }
}

/// Collects the body of a response.
struct CollectingWriter: ResponseBodyWriter {
    let body: CollectedBody

    func write(_ buffer: ByteBuffer) async throws { try self.body.append(buffer) }

    consuming func finish(_ trailingHeaders: HTTPFields?) async throws {
        if let trailingHeaders { self.body.end(trailingHeaders) }
    }
}

extension HTTPHeaders {
    /// The fields of a message of Hummingbird.
    init(_ fields: HTTPFields) {
        self.init()
        for field in fields { self.append(field.value, for: .init(stringLiteral: field.name.rawName)) }
    }
}

extension HTTPFields {
    /// The fields for a message of Hummingbird; fields with an invalid name are skipped.
    init(_ headers: HTTPHeaders) {
        self.init()
        for field in headers.fields {
            guard let name = HTTPField.Name(field.name.rawValue) else { continue }
            self.append(HTTPField(name: name, value: field.value))
        }
    }
}
