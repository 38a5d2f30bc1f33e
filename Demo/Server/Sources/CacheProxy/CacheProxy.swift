import Foundation
import HTTPTypes
import Hummingbird
import Logging
import MuxHummingbird
import MuxKit
import MuxNetwork
import MuxTesting
import Synchronization

/// A server whose handler forwards each request to the server in the field `Test-Origin`, behind the cache.
///
/// The public tests of HTTP caches test the cache through this program.
@main
enum CacheProxy {
    /// The fields of the connections between the client, this program and the origin.
    private static let connection: Set<HTTPHeaders.Name> = HTTPHeaders.Name.framing.union([
        "Test-Origin", "Test-Cache", "Test-Time",
    ])
    private static let transport = SystemTransport(
        HTTPTransportConfiguration(maximumRedirects: 0, connectionsPerHost: 1_000)
    )

    static func main() async throws {
        let router = Router()
        router.add(middleware: TestCaches.all)
        // For load: a slow handler, and the number of its calls.
        let calls = Atomic(0)
        router.get("slow") { _, _ in
            calls.add(1, ordering: .relaxed)
            try await Task.sleep(for: .milliseconds(200))
            return Response(
                status: .ok,
                headers: [.cacheControl: "max-age=60"],
                body: .init(byteBuffer: ByteBuffer(repeating: 120, count: 1_000))
            )
        }
        router.get("calls") { _, _ in "\(calls.load(ordering: .relaxed))\n" }
        for method: HTTPTypes.HTTPRequest.Method in [
            .get, .head, .post, .put, .delete, .patch, .options, HTTPTypes.HTTPRequest.Method("MSEARCH") ?? .get,
        ] {
            router.on("**", method: method) { request, _ in try await self.forward(request) }
        }
        let application = Application(
            router: router,
            configuration: .init(address: .hostname("127.0.0.1", port: 0)),
            onServerRunning: { channel in
                let port = channel.localAddress?.port ?? 0
                FileHandle.standardOutput.write(Data("http://127.0.0.1:\(port)\n".utf8))
            },
            logger: Logger(label: "cacheproxy") { _ in SwiftLogNoOpLogHandler() }
        )
        try await application.runService()
    }

    private static func forward(_ request: Request) async throws -> Response {
        guard let origin = request.test("Test-Origin"),
            let path = request.head.path,
            let url = URL(string: origin + path)
        else { throw HTTPError(.badRequest) }
        let body = try await request.body.collect(upTo: 1 << 20)
        var call = HTTPCall(method: request.method.rawValue, url: url)
        if body.readableBytes > 0 { call.body = .data(Data(body.readableBytesView)) }
        for field in request.headers {
            let name = HTTPHeaders.Name(stringLiteral: field.name.rawName)
            if !self.connection.contains(name) { call.headers.append(field.value, for: name) }
        }
        let reply: HTTPReply
        do {
            reply = try await self.transport.send(call)
        } catch {
            throw HTTPError(.badGateway)
        }
        // The origin of the suite lets time pass during a request.
        if let now = reply.headers["Server-Now"].flatMap({ Double($0) }) {
            TestCaches.all.setTime(now / 1_000, of: request)
        }
        var fields = HTTPFields()
        for field in reply.headers.fields {
            // A list of fields for one connection is for the cache.
            let isList = field.name == .connection && !["close", "keep-alive"].contains(field.value)
            guard isList || !self.connection.contains(field.name) else { continue }
            guard let name = HTTPField.Name(field.name.rawValue) else { continue }
            fields.append(HTTPField(name: name, value: field.value))
        }
        return Response(
            status: .init(code: reply.status),
            headers: fields,
            body: .init(byteBuffer: ByteBuffer(bytes: reply.body))
        )
    }
}

/// A cache with a virtual clock for each test, which the field `Test-Cache` names.
private final class TestCaches: RouterMiddleware {
    typealias Context = BasicRequestContext

    private struct Entry {
        let clock = VirtualClock()
        let start: TimeInterval
        let cache: ResponseCacheMiddleware<BasicRequestContext>

        init(start: TimeInterval) {
            self.start = start
            let clock = self.clock
            let repository = MuxRepository(store: MemoryStore(), clock: clock) {
                Date(timeIntervalSince1970: start + TimeInterval(clock.now.offset.components.seconds))
            }
            self.cache = ResponseCacheMiddleware(repository: repository) { request, _ in
                request.headers.contains(.authorization)
            }
        }
    }

    static let all = TestCaches()

    private let entries = Mutex<[String: Entry]>([:])

    @concurrent
    func handle(
        _ request: Request,
        context: Context,
        next: @concurrent (Request, Context) async throws -> Response
    ) async throws -> Response {
        if let time = request.test("Test-Time").flatMap({ Double($0) }) { self.setTime(time, of: request) }
        return try await self.entry(of: request).cache.handle(request, context: context, next: next)
    }

    /// Advances the clock of a request's cache to a time in seconds since 1970.
    func setTime(_ time: TimeInterval, of request: Request) {
        let entry = self.entry(of: request)
        let left = time - entry.start - TimeInterval(entry.clock.now.offset.components.seconds)
        if left > 0 { entry.clock.advance(by: .seconds(left)) }
    }

    private func entry(of request: Request) -> Entry {
        let start = request.test("Test-Time").flatMap { Double($0) } ?? Date().timeIntervalSince1970
        return self.entries.withLock { entries in
            let name = request.test("Test-Cache") ?? ""
            let entry = entries[name] ?? Entry(start: start)
            entries[name] = entry
            return entry
        }
    }
}

extension Request {
    /// The value of a field of the tests.
    fileprivate func test(_ name: String) -> String? { HTTPField.Name(name).flatMap { self.headers[$0] } }
}
