import Foundation
import HTTPTypes
import MuxHTTPTypes
import MuxKit
import MuxNetwork
import MuxTesting
import OpenAPIRuntime
import Synchronization
import Testing

@testable import MuxOpenAPI

@Suite(.timeLimit(.minutes(2)))
struct OpenAPITests {
    private static func get(_ path: String) -> HTTPTypes.HTTPRequest {
        HTTPTypes.HTTPRequest(method: .get, scheme: nil, authority: nil, path: path)
    }

    /// Sends a GET request.
    private static func response(
        of server: URL,
        _ path: String = "/",
        _ transport: any HTTPTransport = .system
    ) async throws -> (HTTPTypes.HTTPResponse, OpenAPIRuntime.HTTPBody?) {
        try await MuxClientTransport(transport).send(self.get(path), body: nil, baseURL: server, operationID: "a")
    }

    private static func text(_ body: OpenAPIRuntime.HTTPBody?) async throws -> String {
        var bytes: [UInt8] = []
        if let body { for try await piece in body { bytes += piece } }
        return String(decoding: bytes, as: UTF8.self)
    }

    private static func body(_ pieces: [String], _ behavior: OpenAPIRuntime.HTTPBody.IterationBehavior)
        -> OpenAPIRuntime.HTTPBody
    {
        let stream: @Sendable () -> AsyncStream<ArraySlice<UInt8>> = {
            AsyncStream { continuation in
                for piece in pieces { continuation.yield(ArraySlice(piece.utf8)) }
                continuation.finish()
            }
        }
        let length = OpenAPIRuntime.HTTPBody.Length.known(Int64(pieces.joined().utf8.count))
        guard behavior == .multiple else {
            return OpenAPIRuntime.HTTPBody(stream(), length: length, iterationBehavior: .single)
        }
        return OpenAPIRuntime.HTTPBody(Repeated(make: stream), length: length, iterationBehavior: .multiple)
    }

    @Test func `NB-03 a request reaches the path below the server's path, with its fields and its body`() async throws {
        let server = LoopbackServer { request in
            .text(
                "\(request.method) \(request.target) \(request.header("x-a") ?? "") \(String(decoding: request.body, as: UTF8.self))"
            )
        }
        let url = try server.start()
        for behavior in [OpenAPIRuntime.HTTPBody.IterationBehavior.single, .multiple] {
            var request = Self.get("/places?name=b%20c")
            request.method = .post
            request.headerFields[try #require(HTTPField.Name("X-A"))] = "1"
            // As set by the runtime.
            request.headerFields[.contentLength] = "6"
            let (response, body) = try await MuxClientTransport().send(
                request,
                body: Self.body(["one", "two"], behavior),
                baseURL: url.appending(path: "v1/"),
                operationID: "places"
            )
            #expect(response.status == .ok && response.headerFields[.contentType]?.contains("text/plain") == true)
            #expect(body?.length == .known(35))
            #expect(try await Self.text(body) == "POST /v1/places?name=b%20c 1 onetwo")
        }
        await server.stop()
    }

    @Test func `NB-03 the head and each piece arrive while the server holds the rest`() async throws {
        let (sent, send) = AsyncStream<Data>.makeStream()
        let feed = Feed(sent)
        let server = LoopbackServer { _ in .streamed(contentType: "text/plain") { await feed.next() } }
        let url = try server.start()
        let (response, body) = try await Self.response(of: url, "/")
        #expect(response.status == .ok)
        var iterator = try #require(body).makeAsyncIterator()
        for text in ["a", "b"] {
            send.yield(Data(text.utf8))
            #expect(try await iterator.next() == ArraySlice(text.utf8))
        }
        send.finish()
        #expect(try await iterator.next() == nil)
        await server.stop()
    }

    @Test func `NB-03 a body that nobody reads ends its exchange`() async throws {
        let (ends, end) = AsyncStream<Void>.makeStream()
        let server = LoopbackServer { _ in
            .streamed(contentType: "text/plain") {
                await withTaskCancellationHandler {
                    // Ends with the cancellation.
                    for await _ in AsyncStream<Void>.makeStream().stream {}
                    return nil
                } onCancel: {
                    end.yield()
                }
            }
        }
        let url = try server.start()
        let transport = SystemTransport(HTTPTransportConfiguration(timeout: .seconds(600)))
        _ = try await Self.response(of: url, "/", transport)
        for await _ in ends { break }
        await server.stop()
    }

    @Test func `NB-03 a cancelled reader gets an error, and no early end of the body`() async throws {
        let (sent, send) = AsyncStream<Data>.makeStream()
        let feed = Feed(sent)
        let server = LoopbackServer { _ in .streamed(contentType: "text/plain") { await feed.next() } }
        let url = try server.start()
        let (_, body) = try await Self.response(of: url, "/")
        let task = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            return try await Self.text(body)
        }
        await #expect(throws: CancellationError.self) { try await task.value }
        send.finish()
        await server.stop()
    }

    @Test func `NB-03 the speed of the reader limits the transport`() async throws {
        let transport = PiecewiseTransport()
        let url = try #require(URL(string: "https://a.example"))
        let (response, body) = try await Self.response(of: url, "/", transport)
        #expect(response.status == .ok && body?.length == .unknown)
        var iterator = try #require(body).makeAsyncIterator()
        for number in 1...100 {
            #expect(try await iterator.next() == [1])
            #expect(transport.accepted <= number)
        }
    }

    @Test func `NB-03 the error of a generated client is recognised`() async throws {
        for (error, attempts) in [(URLError(.notConnectedToInternet) as any Error, 3), (CancellationError(), 1)] {
            let count = Atomic(0)
            await #expect(throws: (any Error).self) {
                try await retry(.immediate(maxAttempts: 3)) {
                    count.add(1, ordering: .relaxed)
                    throw ClientError(underlyingError: error)
                }
            }
            #expect(count.load(ordering: .relaxed) == attempts)
        }
    }

    @Test func `NB-03 a head that swift-http-types cannot represent ends its exchange`() async throws {
        let (ends, end) = AsyncStream<Void>.makeStream()
        let url = try #require(URL(string: "https://a.example"))
        await #expect(throws: HTTPConversionError.invalidStatus(1_000)) {
            try await MuxClientTransport(StuckTransport(status: 1_000) { end.yield() })
                .send(Self.get("/"), body: nil, baseURL: url, operationID: "a")
        }
        for await _ in ends { break }
        // The body of a 204 is ignored.
        let (response, body) = try await MuxClientTransport(StuckTransport(status: 204) { end.yield() })
            .send(Self.get("/"), body: nil, baseURL: url, operationID: "a")
        #expect(response.status == .noContent && body == nil)
    }

    @Test func `NB-03 a response without a body`() async throws {
        let server = LoopbackServer { _ in .init(status: 204) }
        let url = try server.start()
        let (response, body) = try await Self.response(of: url, "/")
        #expect(response.status == .noContent && body == nil)
        await server.stop()
    }

    @Test func `NB-03 an error before the head and an error in the body are thrown`() async throws {
        let server = LoopbackServer { request in
            request.path == "/cut" ? .init(body: Data("ab".utf8), claimedLength: 5) : .init(steps: [.close])
        }
        let url = try server.start()
        await #expect(throws: MuxNetwork.HTTPError.self) {
            try await Self.response(of: url, "/")
        }
        let (_, body) = try await Self.response(of: url, "/cut")
        await #expect(throws: MuxNetwork.HTTPError.self) { try await Self.text(body) }
        await server.stop()
    }

    @Test func `NB-03 a second iteration of a body that can be read once is an error`() async throws {
        let server = LoopbackServer { request in
            request.path == "/a" ? .init(status: 307, headers: ["Location": "/b"]) : .text("b")
        }
        let url = try server.start()
        var request = Self.get("/a")
        request.method = .post
        await #expect(throws: (any Error).self) {
            try await MuxClientTransport()
                .send(request, body: Self.body(["x"], .single), baseURL: url, operationID: "a")
        }
        let (_, body) = try await MuxClientTransport()
            .send(request, body: Self.body(["x"], .multiple), baseURL: url, operationID: "a")
        #expect(try await Self.text(body) == "b")
        await server.stop()
    }

    @Test func `NB-03 100 parallel requests with status 401: one refresh, 100 responses`() async throws {
        let refreshes = Atomic(0)
        let runner = DependentRunner<String>("old") {
            refreshes.add(1, ordering: .relaxed)
            return "new"
        }
        let arrivals = Mutex(0)
        let (all, allArrived) = AsyncStream<Void>.makeStream()
        let server = LoopbackServer { request in
            guard request.bearerToken == "old" else { return .text("\(request.bearerToken ?? "") \(request.target)") }
            // All requests have the old token before the first 401.
            let count = arrivals.withLock { count in
                count += 1
                return count
            }
            if count == 100 { allArrived.finish() }
            for await _ in all {}
            return .text("", status: 401)
        }
        let url = try server.start()
        let transport = MuxClientTransport(SystemTransport(HTTPTransportConfiguration(connectionsPerHost: 100)))
        let middleware = MuxAuthentication(runner)
        let texts = try await withThrowingTaskGroup(of: String.self) { group in
            for number in 0..<100 {
                group.addTask {
                    let (response, body) = try await middleware.intercept(
                        Self.get("/\(number)"),
                        body: Self.body(["x"], .multiple),
                        baseURL: url,
                        operationID: "a"
                    ) { try await transport.send($0, body: $1, baseURL: $2, operationID: "a") }
                    #expect(response.status == .ok)
                    return try await Self.text(body)
                }
            }
            return try await group.reduce(into: Set<String>()) { $0.insert($1) }
        }
        #expect(texts == Set((0..<100).map { "new /\($0)" }))
        #expect(refreshes.load(ordering: .relaxed) == 1)
        #expect(arrivals.withLock { $0 } == 100)
        await server.stop()
    }

    @Test func `NB-03 a request whose body can be read once is not sent again`() async throws {
        let runner = DependentRunner<String>("old") { "new" }
        let server = LoopbackServer { request in .text("", status: request.bearerToken == "old" ? 401 : 200) }
        let url = try server.start()
        for status in [401, 200] {
            let (response, _) = try await MuxAuthentication(runner).intercept(
                Self.get("/"),
                body: Self.body(["x"], .single),
                baseURL: url,
                operationID: "a"
            ) { try await MuxClientTransport().send($0, body: $1, baseURL: $2, operationID: "a") }
            #expect(response.status.code == status)
        }
        #expect(server.requestCount == 2)
        await server.stop()
    }
}

/// A sequence that can be iterated several times.
private struct Repeated: AsyncSequence, Sendable {
    let make: @Sendable () -> AsyncStream<ArraySlice<UInt8>>

    func makeAsyncIterator() -> AsyncStream<ArraySlice<UInt8>>.AsyncIterator { self.make().makeAsyncIterator() }
}

/// Responds with a status and a piece, and reports its end.
private struct StuckTransport: HTTPTransport {
    let status: Int
    let end: @Sendable () -> Void

    func send(_ call: HTTPCall) async throws -> HTTPReply { HTTPReply(status: self.status) }

    func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
        defer { self.end() }
        let reply = HTTPReply(status: self.status)
        try await sink.receive(head: reply)
        try await sink.receive(Data([1]))
        return reply
    }
}

/// Responds with many pieces, and counts the accepted pieces.
private final class PiecewiseTransport: HTTPTransport {
    private let count = Atomic(0)

    var accepted: Int { self.count.load(ordering: .acquiring) }

    func send(_ call: HTTPCall) async throws -> HTTPReply { HTTPReply(status: 200) }

    func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
        let reply = HTTPReply(status: 200)
        try await sink.receive(head: reply)
        for _ in 0..<1_000 {
            try await sink.receive(Data([1]))
            self.count.add(1, ordering: .releasing)
        }
        return reply
    }
}

/// The pieces of a stream, one at a time.
private actor Feed {
    private let stream: AsyncStream<Data>

    init(_ stream: AsyncStream<Data>) { self.stream = stream }

    func next() async -> Data? {
        for await piece in self.stream { return piece }
        return nil
    }
}
