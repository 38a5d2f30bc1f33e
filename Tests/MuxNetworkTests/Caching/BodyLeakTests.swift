import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Files of long bodies.
///
/// No file remains without a response, every file counts against the disk limit, and a caller receives the
/// bytes of one response.
@Suite(.standard)
struct BodyLeakTests {
    private let world = CachingWorld()

    /// Sends a response in pieces, and then loses the connection if `isCut` is `true`.
    private final class PieceTransport: HTTPTransport {
        struct Answer: Sendable {
            var headers: HTTPHeaders
            var pieces: [String]
            var isCut = false
        }

        private let answers: Locked<[Answer]>

        init(_ answers: [Answer]) { self.answers = Locked(answers) }

        func send(_ call: HTTPCall) async throws -> HTTPReply { throw HTTPError.notHTTP }

        func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
            guard let answer = self.answers.withLock({ $0.isEmpty ? nil : $0.removeFirst() }) else {
                throw HTTPError.notHTTP
            }
            let head = HTTPReply(status: 200, headers: answer.headers, url: call.url)
            try await sink.receive(head: head)
            for piece in answer.pieces { try await sink.receive(Data(piece.utf8)) }
            if answer.isCut { throw HTTPError.transport(.closedWithoutResponse(FetchLost())) }
            return head
        }
    }

    /// Collects the received bytes, and refuses the piece with the number `refused`.
    private final class Collector: HTTPSink {
        struct Refused: Error {}

        private struct State: Sendable {
            var heads = 0
            var text = ""
            var pieces = 0
        }

        private let state = Locked(State())
        private let refused: Int

        init(refusing refused: Int = .max) { self.refused = refused }

        var heads: Int { self.state.withLock { $0.heads } }
        var text: String { self.state.withLock { $0.text } }

        func receive(head: HTTPReply) { self.state.withLock { $0.heads += 1 } }

        func receive(_ bytes: Data) throws {
            let number = self.state.withLock { state in
                state.pieces += 1
                state.text += String(decoding: bytes, as: UTF8.self)
                return state.pieces
            }
            if number == self.refused { throw Refused() }
        }
    }

    /// Options that store bodies of more than ten bytes in files.
    private func options(_ folder: CacheFolder, _ change: (inout CachingTransport.Configuration) -> Void = { _ in })
        -> CachingTransport.Configuration
    {
        var options = CachingTransport.Configuration()
        (options.cacheKey, options.memoryBodyLimit, options.directory) = ("HTTP", 10, folder.url)
        change(&options)
        return options
    }

    private static let fresh: HTTPHeaders = ["Cache-Control": "max-age=100"]
    private static let piece = String(repeating: "x", count: 100)

    private static func isHit(_ reply: HTTPReply) -> Bool { reply.headers.cacheStatuses.last?.isHit ?? false }

    // MARK: - Files without a response

    /// The reason why the cache does not store a complete response.
    private enum Ending: CaseIterable {
        case connection, sink, limit
    }

    @Test(arguments: Ending.allCases, [true, false])
    private func `PT-01 a broken, refused or oversized response leaves no file`(ending: Ending, isAnnounced: Bool)
        async throws
    {
        let folder = try CacheFolder()
        let length: HTTPHeaders = isAnnounced && ending != .limit ? ["Content-Length": "300"] : [:]
        let pieces = Array(repeating: Self.piece, count: 3)
        let server = PieceTransport([
            .init(headers: Self.fresh.merging(length), pieces: pieces, isCut: ending == .connection)
        ])
        let options = self.options(folder) { if ending == .limit { $0.bodyLimit = 250 } }
        let cache = CachingTransport(server, options: options, repository: self.world.repository)
        let sink = Collector(refusing: ending == .sink ? 2 : .max)
        let outcome: Result<HTTPReply, any Error>
        do {
            outcome = .success(try await cache.stream(self.world.call(), into: sink))
        } catch {
            outcome = .failure(error)
        }

        #expect((try? outcome.get())?.status == (ending == .limit ? 200 : nil))
        #expect(sink.text.count == (ending == .sink ? 200 : 300))
        #expect(try folder.files().isEmpty)
    }

    @Test func `PT-01 a body that is replaced or removed leaves no file`() async throws {
        let folder = try CacheFolder()
        let (cache, _) = self.world.cache(self.options(folder)) { _ in
            HTTPReply(status: 200, headers: Self.fresh, body: Data(Self.piece.utf8))
        }
        for _ in 0..<3 {
            _ = try await cache.send(self.world.call())
            #expect(try folder.files().count == 1)
            self.world.clock.advance(by: .seconds(200))
        }

        // A damaged file is removed when the damage is detected.
        _ = try await cache.send(self.world.call())
        for file in try folder.files() { try Data("cut".utf8).write(to: file) }
        _ = try await cache.send(self.world.call())
        #expect(try folder.files().count == 1)

        await cache.clear(self.world.url)
        #expect(try folder.files().isEmpty)
    }

    // A 304 updates the stored response, and so does a response to HEAD.
    @Test(arguments: ["GET", "HEAD"])
    func `PT-01 a validated body keeps its file`(method: String) async throws {
        let folder = try CacheFolder()
        let (cache, server) = self.world.cache(self.options(folder)) { call in
            let headers = Self.fresh.merging(["ETag": "\"1\""])
            guard call.method == "GET" else { return HTTPReply(status: 200, headers: headers) }
            guard call.headers["If-None-Match"] == nil else { return HTTPReply(status: 304, headers: headers) }
            return HTTPReply(status: 200, headers: headers, body: Data(Self.piece.utf8))
        }
        _ = try await cache.send(self.world.call())
        let files = try folder.files()
        #expect(files.count == 1)
        self.world.clock.advance(by: .seconds(200))

        _ = try await cache.send(self.world.call(method))

        #expect(try folder.files() == files)
        let hit = try await cache.send(self.world.call())
        #expect(Self.isHit(hit) && hit.body == Data(Self.piece.utf8))
        #expect(server.calls.count == 2)
    }

    @Test func `PT-01 a background revalidation by a 304 does not read the body`() async throws {
        let folder = try CacheFolder()
        let headers: HTTPHeaders = ["Cache-Control": "max-age=10, stale-while-revalidate=100", "ETag": "\"1\""]
        let server = ClosureTransport { call in
            guard call.headers["If-None-Match"] == nil else { return HTTPReply(status: 304, headers: headers) }
            return HTTPReply(status: 200, headers: headers, body: Data(Self.piece.utf8))
        }
        let fileSystem = RecordingFileSystem()
        let cache = CachingTransport(
            server,
            options: self.options(folder),
            repository: self.world.repository,
            fileSystem: fileSystem
        )
        _ = try await cache.send(self.world.call())
        self.world.clock.advance(by: .seconds(11))
        fileSystem.restart()

        #expect(try await cache.send(self.world.call()).body == Data(Self.piece.utf8))
        #expect(await settledOccupancy { cache.occupancy } == (0, 0, 0))

        #expect(server.calls.count == 2)
        #expect(fileSystem.calls.count { $0.operation == .read } == 1, "the read for the caller")
    }

    @Test func `PT-01 the variants beyond the limit of a URL leave no file`() async throws {
        let folder = try CacheFolder()
        let (cache, _) = self.world.cache(self.options(folder)) { _ in
            HTTPReply(status: 200, headers: Self.fresh.merging(["Vary": "X"]), body: Data(Self.piece.utf8))
        }
        for number in 0..<20 { _ = try await cache.send(self.world.call("GET", ["X": "\(number)"])) }
        #expect(try folder.files().count == 16)
    }

    @Test func `PT-01 a body that arrives after its resource was changed leaves no file`() async throws {
        let folder = try CacheFolder()
        let gate = Gate<Void>()
        let (cache, _) = self.world.cache(self.options(folder)) { call in
            if call.method == "GET" { try await gate.pass() }
            return HTTPReply(status: 200, headers: Self.fresh, body: Data(Self.piece.utf8))
        }
        let request = self.world.call()
        let call = Task { try await cache.send(request) }
        await gate.waitForCall()
        _ = try await cache.send(self.world.call("PUT"))
        gate.openForGood(returning: ())

        #expect(try await call.value.body.count == 100)
        #expect(try folder.files().isEmpty)
        #expect(!Self.isHit(try await cache.send(self.world.call())))
    }

    @Test func `PT-01 a range with fewer bytes than announced is not stored`() async throws {
        let folder = try CacheFolder()
        let (cache, server) = self.world.cache(self.options(folder)) { _ in
            HTTPReply(
                status: 206,
                headers: Self.fresh.merging(["ETag": "\"1\"", "Content-Range": "bytes 0-149/1000"]),
                body: Data(Self.piece.utf8)
            )
        }
        for _ in 0..<2 { _ = try await cache.send(self.world.call("GET", ["Range": "bytes=0-149"])) }
        #expect(server.calls.count == 2)
        #expect(try folder.files().isEmpty)
    }

    // MARK: - The disk limit

    private func url(_ number: Int) -> HTTPCall { HTTPCall(url: CacheFolder.url("/\(number)")) }

    @Test func `PT-01 files of an earlier process count against the limit, the oldest is evicted first`() async throws {
        let folder = try CacheFolder()
        let options = self.options(folder) { $0.diskLimit = 400 }
        let answer: @Sendable (HTTPCall) -> HTTPReply = { _ in
            HTTPReply(status: 200, headers: Self.fresh, body: Data(Self.piece.utf8))
        }
        let (cache, _) = self.world.cache(options, answer)
        var known: Set<URL> = []
        for number in 0..<4 {
            _ = try await cache.send(self.url(number))
            // The file system's clock may be too coarse for the order.
            for file in try folder.files() where known.insert(file).inserted {
                let date = Date(timeIntervalSince1970: 1_000_000 + Double((number * 3) % 4))
                try FileManager.default.setAttributes([.modificationDate: date], ofItemAtPath: file.path)
            }
        }
        await self.world.repository.saveAll()

        let (again, server) = self.world.relaunched().cache(options, answer)
        for number in 4..<6 { _ = try await again.send(self.url(number)) }
        #expect(try folder.size() == 400)
        // The order from the oldest to the newest file is 0, 3, 2, 1.
        for number in [1, 2] { #expect(Self.isHit(try await again.send(self.url(number))), "\(number)") }
        #expect(server.calls.count == 2)
    }

    @Test func `PT-01 a limit that is lower than in an earlier process applies from the first use`() async throws {
        let folder = try CacheFolder()
        let answer: @Sendable (HTTPCall) -> HTTPReply = { _ in
            HTTPReply(status: 200, headers: Self.fresh, body: Data(Self.piece.utf8))
        }
        let (cache, _) = self.world.cache(self.options(folder), answer)
        var known: Set<URL> = []
        for number in 0..<4 {
            _ = try await cache.send(self.url(number))
            for file in try folder.files() where known.insert(file).inserted {
                let date = Date(timeIntervalSince1970: 1_000_000 + Double(number))
                try FileManager.default.setAttributes([.modificationDate: date], ofItemAtPath: file.path)
            }
        }
        await self.world.repository.saveAll()

        let (again, _) = self.world.relaunched().cache(self.options(folder) { $0.diskLimit = 150 }, answer)
        #expect(Self.isHit(try await again.send(self.url(3))))
        #expect(try folder.size() == 100)
    }

    @Test func `PT-01 a file that is read or replaced often counts once against the limit`() async throws {
        let folder = try CacheFolder()
        let options = self.options(folder) { $0.diskLimit = 450 }
        let (cache, server) = self.world.cache(options) { call in
            let headers = call.url.path() == "/0" ? ["Cache-Control": "max-age=1"] : Self.fresh
            return HTTPReply(status: 200, headers: headers, body: Data(Self.piece.utf8))
        }
        for number in 0..<3 { _ = try await cache.send(self.url(number)) }
        for _ in 0..<10 {
            self.world.clock.advance(by: .seconds(2))
            for number in 0..<3 { _ = try await cache.send(self.url(number)) }
        }
        _ = try await cache.send(self.url(3))
        let before = server.calls.count

        for number in 1..<4 { #expect(Self.isHit(try await cache.send(self.url(number))), "\(number)") }
        #expect(server.calls.count == before)
        #expect(try folder.files().count == 4)
    }

    @Test func `PT-01 the least recently used file is evicted first`() async throws {
        let folder = try CacheFolder()
        let options = self.options(folder) { $0.diskLimit = 300 }
        let (cache, _) = self.world.cache(options) { _ in
            HTTPReply(status: 200, headers: Self.fresh, body: Data(Self.piece.utf8))
        }
        for number in 0..<3 { _ = try await cache.send(self.url(number)) }
        _ = try await cache.send(self.url(0))
        _ = try await cache.send(self.url(3))

        #expect(Self.isHit(try await cache.send(self.url(0))))
        #expect(!Self.isHit(try await cache.send(self.url(1))))
    }

    // MARK: - The bytes of one response

    @Test func `PT-01 a stale response is not appended to a response that broke off`() async throws {
        let control: HTTPHeaders = ["Cache-Control": "max-age=10, stale-if-error=1000"]
        let server = PieceTransport([
            .init(headers: control, pieces: ["old version"]),
            .init(headers: control, pieces: ["new "], isCut: true),
        ])
        let cache = CachingTransport(server, repository: self.world.repository)
        _ = try await cache.stream(self.world.call(), into: Collector())
        self.world.clock.advance(by: .seconds(11))
        let sink = Collector()

        await #expect(throws: HTTPError.self) { try await cache.stream(self.world.call(), into: sink) }

        #expect(sink.text == "new " && sink.heads == 1)
    }

    @Test func `PT-01 the head of a completed response does not have the length of a part`() async throws {
        let text = "0123456789"
        let (cache, server) = self.world.cache { call in
            let first = call.headers["Range"] == "bytes=0-4" ? 0 : 5
            return HTTPReply(
                status: 206,
                headers: Self.fresh.merging([
                    "ETag": "\"1\"", "Content-Range": "bytes \(first)-\(first + 4)/10", "Content-Length": "5",
                ]),
                body: Data(text.dropFirst(first).prefix(5).utf8)
            )
        }
        _ = try await cache.send(self.world.call("GET", ["Range": "bytes=0-4"]))

        for _ in 0..<2 {
            let reply = try await cache.send(self.world.call())
            #expect(reply.status == 200 && reply.body == Data(text.utf8))
            #expect(reply.headers["Content-Range"] == nil)
            #expect([nil, "10"].contains(reply.headers["Content-Length"]))
        }
        #expect(server.calls.count == 2)
    }

    private static let ranges = [
        "5-7": 5..<8, "3-6": 3..<7, "0-9": 0..<10, "5-8": 5..<9, "4-5": 4..<6, "5-5": 5..<6, "7-7": 7..<8, "-3": 7..<10,
        "6-": 6..<10,
    ]

    @Test(arguments: ranges.keys.sorted())
    func `PT-01 a stored part serves only ranges within the part`(range: String) async throws {
        let text = Data("0123456789".utf8)
        let (cache, server) = self.world.cache { call in
            let asked = call.headers["Range"].map { String($0.dropFirst("bytes=".count)) } ?? ""
            let places = Self.ranges[asked] ?? 0..<10
            return HTTPReply(
                status: 206,
                headers: Self.fresh.merging([
                    "ETag": "\"1\"", "Content-Range": "bytes \(places.lowerBound)-\(places.upperBound - 1)/10",
                ]),
                body: Data(text[places])
            )
        }
        _ = try await cache.send(self.world.call("GET", ["Range": "bytes=5-7"]))
        let places = try #require(Self.ranges[range])

        let reply = try await cache.send(self.world.call("GET", ["Range": "bytes=\(range)"]))

        #expect(reply.body == text[places])
        #expect(server.calls.count == (places.lowerBound >= 5 && places.upperBound <= 8 ? 1 : 2))
    }

    @Test func `PT-01 a range of a decoded body is fetched from the server`() async throws {
        let (cache, server) = self.world.cache { call in
            let headers = Self.fresh.merging(["ETag": "\"1\"", "Content-Encoding": "gzip"])
            guard call.headers["Range"] == nil else {
                let range: HTTPHeaders = ["Content-Range": "bytes 0-1/5"]
                return HTTPReply(status: 206, headers: headers.merging(range), body: Data("zz".utf8))
            }
            return HTTPReply(status: 200, headers: headers, body: Data("decoded".utf8))
        }
        _ = try await cache.send(self.world.call())
        let reply = try await cache.send(self.world.call("GET", ["Range": "bytes=0-1"]))
        #expect(reply.body == Data("zz".utf8) && server.calls.count == 2)
    }

    // MARK: - Freshness

    @Test(arguments: ["max-age=10, stale-while-revalidate=1000", "max-age=10"], [nil, "max-stale=1000"])
    func `PT-01 after a change no earlier response is served, even if stale responses are accepted`(
        control: String,
        asked: String?
    ) async throws {
        let version = Locked("old")
        let (cache, _) = self.world.cache { call in
            if call.method == "PUT" { version.withLock { $0 = "new" } }
            let body = Data(version.withLock(\.self).utf8)
            return HTTPReply(status: 200, headers: ["Cache-Control": control], body: body)
        }
        _ = try await cache.send(self.world.call())
        self.world.clock.advance(by: .seconds(5))
        _ = try await cache.send(self.world.call("PUT"))

        let reply = try await cache.send(self.world.call("GET", asked.map { ["Cache-Control": $0] } ?? [:]))

        #expect(reply.body == Data("new".utf8))
    }

    @Test func `PT-01 a response stored before the wall clock was set back is not fresh`() async throws {
        let folder = try CacheFolder()
        let (cache, _) = self.world.cache(self.options(folder)) { _ in
            HTTPReply(status: 200, headers: ["Cache-Control": "max-age=1000"], body: Data("1".utf8))
        }
        _ = try await cache.send(self.world.call())
        await self.world.repository.saveAll()

        let start = self.world.now.addingTimeInterval(-86_400)
        let (again, server) = CachingWorld(store: self.world.store, start: start).cache(self.options(folder)) { _ in
            HTTPReply(status: 200, headers: ["Cache-Control": "max-age=1000"], body: Data("2".utf8))
        }
        #expect(try await again.send(self.world.call()).body == Data("2".utf8))
        #expect(server.calls.count == 1)
    }

    @Test func `PT-01 the time-out of one caller is not a failure of other callers`() async throws {
        let gate = Gate<Void>()
        let (cache, server) = self.world.cache { _ in
            try await gate.pass()
            return HTTPReply(status: 200, headers: ["Cache-Control": "max-age=100"], body: Data("body".utf8))
        }
        let request = self.world.call()
        let calls = (0..<2).map { _ in Task { try await cache.send(request) } }
        await gate.waitForCall()
        while cache.occupancy.waiters < 1 { await Task.yield() }

        gate.fail(1, with: HTTPError.transport(.deadlineExceeded(after: .seconds(1))))
        gate.openForGood(returning: ())

        var bodies: [Data] = []
        for call in calls { if let reply = try? await call.value { bodies.append(reply.body) } }
        #expect(bodies == [Data("body".utf8)])
        #expect(server.calls.count == 2)
    }

    @Test func `PT-01 requests with no-cache do not share a response`() async throws {
        let gate = Gate<Void>()
        let (cache, server) = self.world.cache { _ in
            try await gate.pass()
            return HTTPReply(status: 200, headers: ["Cache-Control": "max-age=100"], body: Data("body".utf8))
        }
        let request = self.world.call("GET", ["Cache-Control": "no-cache"])
        let calls = (0..<2).map { _ in Task { try await cache.send(request) } }
        await gate.waitForCall(2)
        gate.openForGood(returning: ())
        for call in calls { _ = try await call.value }
        #expect(server.calls.count == 2)
    }
}
