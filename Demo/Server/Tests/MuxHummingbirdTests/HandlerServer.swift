import Foundation
import HTTPTypes
import Hummingbird
import Logging
import MuxHummingbird
import MuxNetwork
import Synchronization

/// A server of Hummingbird on loopback, with the cache before its handlers.
final class HandlerServer: Sendable {
    typealias Handler = @Sendable (Request, Int) async throws -> Response

    let cache: ResponseCacheMiddleware<BasicRequestContext>
    private let record: CallRecord
    private let base: URL
    private let task: Task<Void, any Error>
    private let transport = SystemTransport(HTTPTransportConfiguration(connectionsPerHost: 1_000))

    /// Starts a server whose `handler` responds to all requests; the number counts the calls from 1.
    init(
        _ cache: ResponseCacheMiddleware<BasicRequestContext> = .init(),
        isTwice: Bool = false,
        _ handler: @escaping Handler
    ) async throws {
        self.cache = cache
        let (ports, port) = AsyncStream<Int>.makeStream()
        let record = CallRecord()
        let router = Router()
        for _ in 0..<(isTwice ? 2 : 1) { router.add(middleware: cache) }
        for path: RouterPath in ["/", "**"] {
            for method: HTTPTypes.HTTPRequest.Method in [.get, .head, .post, .put, .delete] {
                router.on(path, method: method) { request, _ in
                    try await handler(request, record.add(request.head))
                }
            }
        }
        let application = Application(
            router: router,
            configuration: .init(address: .hostname("127.0.0.1", port: 0)),
            onServerRunning: { port.yield($0.localAddress?.port ?? 0) },
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        )
        self.record = record
        self.task = Task { try await application.runService(gracefulShutdownSignals: []) }
        var iterator = ports.makeAsyncIterator()
        let number = await iterator.next() ?? 0
        guard let base = URL(string: "http://127.0.0.1:\(number)") else { throw URLError(.badURL) }
        self.base = base
    }

    deinit { self.task.cancel() }

    /// The requests that the handler got.
    var requests: [HTTPTypes.HTTPRequest] { self.record.heads }

    func send(_ path: String, _ method: String = "GET", _ headers: HTTPHeaders = [:]) async throws -> HTTPReply {
        guard let url = URL(string: self.base.absoluteString + path) else { throw URLError(.badURL) }
        return try await self.transport.send(HTTPCall(method: method, url: url, headers: headers))
    }

    func text(_ path: String, _ headers: HTTPHeaders = [:]) async throws -> String {
        String(decoding: try await self.send(path, "GET", headers).body, as: UTF8.self)
    }
}

private final class CallRecord: Sendable {
    private let state = Mutex<[HTTPTypes.HTTPRequest]>([])

    var heads: [HTTPTypes.HTTPRequest] { self.state.withLock { $0 } }

    /// - Returns: The number of calls.
    func add(_ head: HTTPTypes.HTTPRequest) -> Int {
        self.state.withLock { heads in
            heads.append(head)
            return heads.count
        }
    }
}

extension Response {
    /// A response with a text.
    static func text(_ text: String, _ headers: HTTPFields = [:], status: HTTPTypes.HTTPResponse.Status = .ok)
        -> Response
    {
        Response(status: status, headers: headers, body: .init(byteBuffer: ByteBuffer(string: text)))
    }
}
