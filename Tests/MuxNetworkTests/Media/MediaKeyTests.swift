import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Files under a key that the app chooses, for signed URLs.
@Suite(.standard)
struct MediaKeyTests {
    private static let byPath: @Sendable (URL) -> String = { $0.path() }

    private static func signed(_ world: MediaWorld, _ signature: String, path: String = "photo.jpg") -> URL {
        URL(string: "\(path)?sig=\(signature)%2B%2F%3D", relativeTo: world.server.url)?.absoluteURL ?? world.url
    }

    @Test func `WR-09 a file is fetched once however often its URL is signed`() async throws {
        let world = try MediaWorld(LoopbackServer.File(size: 1000))
        try await world.run { (world) async throws in
            let media = world.media(key: Self.byPath)
            let urls = (0..<5).map { Self.signed(world, "\($0)") }
            #expect(media.cachedValue(url: urls[0]) == nil)
            let file = try await media.request(url: urls[0])

            for url in urls {
                #expect(try await media.request(url: url) == file)
                #expect(media.cachedValue(url: url) == file)
                #expect(await media.loadCachedValue(url: url) == file)
                #expect(try await media.withFile(url: url) { $0 } == file)
                var progress = media.progress(of: url).makeAsyncIterator()
                #expect(try await progress.next()?.isComplete == true)
            }
            await media.prefetch(urls)
            #expect(world.server.requestCount == 1)
            #expect(file.pathExtension == "jpg")

            // The next launch finds the file with a new signature, and any signature can remove the file.
            let relaunched = world.media(key: Self.byPath)
            #expect(await relaunched.loadCachedValue(url: Self.signed(world, "new")) == file)
            try await relaunched.clear(url: Self.signed(world, "other"))
            #expect(world.names == [])
            await media.expectAtRest()
        }
    }

    @Test func `WR-09 callers with different signatures share a download`() async throws {
        let gate = Gate<Void>()
        let world = try MediaWorld(answer: { _ in
            try? await gate.pass()
            return nil
        })
        try await world.run { (world) async throws in
            let media = world.media(key: Self.byPath)
            let requests = (0..<10).map { number in
                Task { try await media.request(url: Self.signed(world, "\(number)")) }
            }
            await gate.waitForCall()
            await world.events.wait(for: .joined, count: 9)
            gate.openForGood(returning: ())

            let files = try await requests.asyncValues()
            #expect(Set(files).count == 1 && world.server.requestCount == 1)
        }
    }

    @Test(arguments: [true, false])
    func `WR-09 a download resumes under a new signature if the entity tag is the same`(isSame: Bool) async throws {
        let file = LoopbackServer.File(size: 300_000)
        let conditions = Locked<[String?]>([])
        let world = try MediaWorld(
            file,
            faults: [.cut(after: 100_000)],
            answer: { request in
                conditions.withLock { $0.append(request.header("If-Range")) }
                let isExpired = conditions.withLock { $0.count == 2 }
                return isExpired ? .text("expired", status: 403) : nil
            }
        )
        try await world.run { (world) async throws in
            let media = world.media(key: Self.byPath)
            let error = await #expect(throws: HTTPError.self) { try await media.request(url: Self.signed(world, "1")) }
            #expect(error?.status?.code == 403)
            if !isSame { file.replace(size: 200_000, seed: 5, etag: "\"2\"") }

            let found = try await media.request(url: Self.signed(world, "2"))

            #expect(try Data(contentsOf: found) == file.content)
            #expect(file.starts == [0, isSame ? 100_000 : 0])
            #expect(conditions.withLock { $0 } == [nil, "\"1\"", "\"1\""])
        }
    }

    @Test func `WR-09 a running download resumes with the newest signature`() async throws {
        let file = LoopbackServer.File(size: 300_000)
        let (gate, targets) = (Gate<Void>(), Locked<[String]>([]))
        let world = try MediaWorld(
            file,
            answer: { request in
                targets.withLock { $0.append(request.target) }
                guard targets.withLock({ $0.count }) == 1 else { return nil }
                var response = file.response(to: request, fault: .cut(after: 100_000))
                response.steps.insert(.wait { try? await gate.pass() }, at: response.steps.count - 1)
                return response
            }
        )
        try await world.run { (world) async throws in
            let media = world.media(key: Self.byPath)
            let first = Task { try await media.request(url: Self.signed(world, "old")) }
            await gate.waitForCall()
            let second = Task { try await media.request(url: Self.signed(world, "new")) }
            await world.events.wait(for: .joined)
            gate.openForGood(returning: ())

            #expect(try await first.value == second.value)
            #expect(file.starts == [0, 100_000])
            #expect(targets.withLock { $0 } == ["/photo.jpg?sig=old%2B%2F%3D", "/photo.jpg?sig=new%2B%2F%3D"])
            await media.expectAtRest()
        }
    }

    @Test func `WR-09 different keys have different files, and a key is never taken for a URL`() async throws {
        let world = try MediaWorld(LoopbackServer.File(size: 1000))
        try await world.run { (world) async throws in
            let url = world.url
            let names = [
                MediaName(url), MediaName(url, key: url.absoluteString), MediaName(url, key: ""),
                MediaName(url, key: " "),
            ]
            #expect(Set(names.map(\.file)).count == 4)

            let media = world.media(key: Self.byPath)
            let files = [
                try await media.request(url: Self.signed(world, "1", path: "a.jpg")),
                try await media.request(url: Self.signed(world, "1", path: "b.jpg")),
                try await world.media().request(url: Self.signed(world, "1", path: "a.jpg")),
            ]
            #expect(Set(files).count == 3 && world.server.requestCount == 3)
        }
    }

    @Test func `WR-09 a value is decoded once however often its URL is signed`() async throws {
        let world = try MediaWorld(LoopbackServer.File(size: 1000))
        try await world.run { (world) async throws in
            let count = Locked(0)
            let sizes = DecodedMedia(media: world.media(key: Self.byPath)) { file in
                count.withLock { $0 += 1 }
                return (try Data(contentsOf: file).count, cost: 1)
            }
            for number in 0..<3 { #expect(try await sizes.request(url: Self.signed(world, "\(number)")) == 1000) }

            #expect(sizes.cachedValue(url: Self.signed(world, "new")) == 1000)
            #expect(sizes.cachedValue(url: Self.signed(world, "new", path: "other.jpg")) == nil)
            #expect(count.withLock { $0 } == 1 && world.server.requestCount == 1)
        }
    }

    @Test func `WR-09 keys that differ in Unicode form are different in memory and on disk`() async throws {
        let world = try MediaWorld(answer: { .text($0.target) })
        try await world.run { (world) async throws in
            let media = world.media(key: { $0.path(percentEncoded: false) })
            let texts = DecodedMedia(media: media) { (try String(contentsOf: $0, encoding: .utf8), cost: 1) }
            for path in ["/%C3%A9", "/e%CC%81"] {
                let url = try #require(URL(string: path, relativeTo: world.server.url)?.absoluteURL)
                #expect(try await texts.request(url: url) == path)
            }
            #expect(world.names.count == 2)
        }
    }
}

extension [Task<URL, any Error>] {
    fileprivate func asyncValues() async throws -> [URL] {
        var values: [URL] = []
        for task in self { values.append(try await task.value) }
        return values
    }
}
