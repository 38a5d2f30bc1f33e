import Dispatch
import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct DecodedMediaTests {
    private struct Damaged: Error {}

    /// Decodes text that begins with a letter, and counts the decodings.
    private func decoded(_ world: MediaWorld, _ count: Locked<Int>, maximumCost: Int? = nil) -> DecodedMedia<String> {
        DecodedMedia(media: world.media(), maximumCost: maximumCost) { file in
            count.withLock { $0 += 1 }
            let data = try Data(contentsOf: file)
            guard let text = String(data: data, encoding: .utf8), text.first?.isLetter ?? false else { throw Damaged() }
            return (text, cost: data.count)
        }
    }

    @Test func `AM-14 many callers share a single decoding and later callers find the value in memory`() async throws {
        let world = try MediaWorld(answer: { _ in .text("picture") })
        try await world.run { (world) async throws in
            let count = Locked(0)
            let images = self.decoded(world, count)
            #expect(images.cachedValue(url: world.url) == nil)
            let values = try await withThrowingTaskGroup { group in
                for _ in 0..<50 { group.addTask { try await images.request(url: world.url) } }
                return try await group.reduce(into: []) { $0.append($1) }
            }

            #expect(values == Array(repeating: "picture", count: 50))
            #expect(count.withLock { $0 } == 1 && world.server.requestCount == 1)
            #expect(images.cachedValue(url: world.url) == "picture")

            images.clearMemory()
            #expect(images.cachedValue(url: world.url) == nil)
            #expect(try await images.request(url: world.url) == "picture")
            #expect(count.withLock { $0 } == 2 && world.server.requestCount == 1)
        }
    }

    @Test func `AM-14 a decoding without callers is finished and its value is kept`() async throws {
        let world = try MediaWorld(answer: { _ in .text("picture") })
        try await world.run { (world) async throws in
            let count = Locked(0)
            let (decodings, begun) = AsyncStream.makeStream(of: Void.self)
            let mayEnd = DispatchSemaphore(value: 0)
            let images = DecodedMedia(media: world.media()) { file in
                count.withLock { $0 += 1 }
                begun.yield()
                mayEnd.wait()
                return (try String(contentsOf: file, encoding: .utf8), cost: 1)
            }
            let caller = Task { try await images.request(url: world.url) }
            for await _ in decodings { break }

            caller.cancel()
            await #expect(throws: CancellationError.self) { try await caller.value }
            mayEnd.signal()

            #expect(try await images.request(url: world.url) == "picture")
            #expect(images.cachedValue(url: world.url) == "picture")
            #expect(count.withLock { $0 } == 1)
        }
    }

    @Test func `AM-14 events contain no query of a URL`() async throws {
        let world = try MediaWorld(answer: { _ in .text("picture") })
        try await world.run { (world) async throws in
            let url = world.url.appending(queryItems: [URLQueryItem(name: "signature", value: "SECRET")])
            #expect(try await self.decoded(world, Locked(0)).request(url: url) == "picture")

            let keys = world.events.events.compactMap(\.key)
            #expect(keys.contains { $0.hasSuffix("/picture.jpg") } && !keys.contains { $0.contains("SECRET") })
        }
    }

    @Test func `AM-14 a damaged file is removed and fetched once more`() async throws {
        let answers = Locked(["0 damaged", "whole"])
        let world = try MediaWorld(answer: { _ in
            .text(answers.withLock { $0.isEmpty ? "0 damaged again" : $0.removeFirst() })
        })
        try await world.run { (world) async throws in
            let count = Locked(0)
            let images = self.decoded(world, count)

            #expect(try await images.request(url: world.url) == "whole")
            #expect(count.withLock { $0 } == 2 && world.server.requestCount == 2)

            let other = world.server.url.appending(path: "other")
            await #expect(throws: Damaged.self) { try await images.request(url: other) }
            #expect(world.server.requestCount == 4)
        }
    }

    @Test func `AM-14 values in memory stay within the maximum cost`() async throws {
        let world = try MediaWorld(answer: { request in .text("a" + String(repeating: "x", count: 99)) })
        try await world.run { (world) async throws in
            let images = self.decoded(world, Locked(0), maximumCost: 250)
            let urls = (0..<5).map { world.server.url.appending(path: "\($0)") }
            for url in urls { _ = try await images.request(url: url) }

            #expect(urls.count { images.cachedValue(url: $0) != nil } == 2)
        }
    }

    @Test func `AM-14 a sign-out removes values from memory`() async throws {
        let world = try MediaWorld(answer: { _ in .text("picture") })
        try await world.run { (world) async throws in
            let images = self.decoded(world, Locked(0))
            _ = try await images.request(url: world.url)

            await world.repository.clearAll()

            #expect(images.cachedValue(url: world.url) == nil)
            #expect(try await images.request(url: world.url) == "picture")
            #expect(world.server.requestCount == 2)
        }
    }

    @Test func `AM-15 a value in memory is shown at once and other values begin with a placeholder`() async throws {
        let world = try MediaWorld(answer: { request in
            request.path == "/missing" ? .text("", status: 404) : .text("picture")
        })
        try await world.run { (world) async throws in
            let images = self.decoded(world, Locked(0))
            guard case .loading = images.phase(of: world.url) else {
                Issue.record("not loading")
                return
            }
            guard case .loaded("picture") = await images.load(world.url) else {
                Issue.record("not loaded")
                return
            }
            guard case .loaded("picture") = images.phase(of: world.url) else {
                Issue.record("a flash")
                return
            }
            guard case .failed(is HTTPError) = await images.load(world.server.url.appending(path: "missing"))
            else {
                Issue.record("not failed")
                return
            }
        }
    }
}
