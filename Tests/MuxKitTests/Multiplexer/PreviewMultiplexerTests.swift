import MuxTestSupport
import MuxTesting
import Testing

@testable import MuxKit

/// Multiplexers for previews and tests.
@Suite(.standard)
struct PreviewMultiplexerTests {
    private struct Offline: Error {}

    @Test func `SC-10 a constant multiplexer has its value in memory`() async throws {
        let number = Multiplexer<Int>.constant(7)
        #expect(number.cachedValue == 7 && number.cachedEntry?.isStale == false)
        #expect(try await number.request() == 7)
        #expect(number.statistics.fetches == 0)
        #expect(try await number.reload() == 7)
        await number.clear()
        #expect(try await number.request() == 7)
        #expect(number.cachedEntry?.timeToLive == .longest)
    }

    @Test func `SC-10 a failing multiplexer fails each time, and at once`() async {
        let number = Multiplexer<Int>.failing(Offline())
        let map = MultiplexerMap<String, Int>.failing(Offline())
        for _ in 0..<3 {
            await #expect(throws: Offline.self) { try await number.request() }
            await #expect(throws: Offline.self) { try await map.request(key: "a") }
        }
        #expect(number.statistics.fetches == 3 && map.statistics.fetches == 3)
    }

    @Test func `SC-10 a multiplexer without an outcome waits until its caller leaves`() async {
        let (number, map) = (Multiplexer<Int>.never, MultiplexerMap<String, Int>.never)
        let requests = [Task { try await number.request() }, Task { try await map.request(key: "a") }]
        while number.occupancy.waiters + map.occupancy.waiters < 2 { await Task.yield() }
        for request in requests { request.cancel() }
        for request in requests { await #expect(throws: CancellationError.self) { try await request.value } }
    }

    @Test func `SC-10 a delayed multiplexer shows its fetch before its value`() async throws {
        let slow = Multiplexer<Int>.after(.seconds(3600), 3)
        let request = Task { try await slow.request() }
        for await state in slow.states where state.isLoading {
            #expect(state.entry == nil)
            break
        }
        request.cancel()
        await #expect(throws: CancellationError.self) { try await request.value }
        #expect(try await Multiplexer<Int>.after(.milliseconds(1), 3).request() == 3)
        let map = MultiplexerMap<String, Int>.after(.milliseconds(1), 4)
        #expect(try await map.request(keys: ["a", "b"]) == ["a": 4, "b": 4])
    }

    @Test func `SC-10 no multiplexer for a preview uses the app's repository, a disk or a network`() async throws {
        let numbers: [Multiplexer<Int>] = [.constant(1), .failing(Offline()), .never, .after(.zero, 1)]
        let maps: [MultiplexerMap<String, Int>] = [.constant(1), .failing(Offline()), .never, .after(.zero, 1)]
        let repositories = numbers.map(\.repository) + maps.map(\.repository)
        #expect(repositories.allSatisfy { $0.store is MemoryStore })
        #expect(Set(repositories.map { ObjectIdentifier($0) }).count == 8, "a sign-out of one preview ends no other")
        #expect(numbers.allSatisfy(\.core.isMemoryOnly) && maps.allSatisfy(\.core.isMemoryOnly))
        let report = await numbers[0].save()
        #expect(report.saved == 0 && report.failed.isEmpty)
    }
}
