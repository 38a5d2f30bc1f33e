import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct ObservationTests {
    private let world = World()

    @Test func `MX-26 a consumer gets the current value and then every change`() async throws {
        let fetch = ScriptedFetch<Int>(thereafter: .computed { $0 })
        let number = Multiplexer<Int>(cacheKey: "Number", repository: self.world.repository) { try await fetch() }
        var seen = number.values.makeAsyncIterator()

        #expect(try #require(await seen.next())?.value == nil)
        _ = try await number.request()
        #expect(try #require(await seen.next())?.value == 1)
        _ = try await number.refresh().request()
        #expect(try #require(await seen.next())?.value == 2)
        number.store(9)
        #expect(try #require(await seen.next())?.value == 9)
        await number.clear()
        #expect(try #require(await seen.next())?.value == nil)
        number.store(10)
        #expect(try #require(await seen.next())?.value == 10)
        await self.world.repository.clearAll()
        #expect(try #require(await seen.next())?.value == nil, "a sign-out yields absence")
    }

    @Test func `MX-26 a value read from disk is a change`() async throws {
        let number = Multiplexer<Int>(cacheKey: "Number", repository: self.world.repository) { 1 }
        _ = try await number.request()
        await number.save()
        let again = Multiplexer<Int>(cacheKey: "Number", repository: self.world.relaunched().repository) { 2 }
        var seen = again.values.makeAsyncIterator()
        #expect(try #require(await seen.next())?.value == nil)
        _ = try await again.request()
        #expect(try #require(await seen.next())?.value == 1)
    }

    @Test func `MX-26 a slow consumer skips to the newest value`() async throws {
        let map = MultiplexerMap<String, Int>(repository: self.world.repository) { _ in 0 }
        var slow = map.values(key: "a").makeAsyncIterator()
        #expect(try #require(await slow.next())?.value == nil)
        for number in 1...1_000 { map.store(number, key: "a") }
        map.store(-1, key: "b")
        #expect(try #require(await slow.next())?.value == 1_000)
    }

    @Test func `MX-26 each of many consumers gets the changes, and a cancelled consumer ends alone`() async throws {
        let number = Multiplexer<Int>(repository: self.world.repository) { 0 }
        let started = Locked(0)
        let begun = Gate<Void>()
        begun.openForGood(returning: ())
        let consumers = (0..<10).map { _ in
            Task {
                var values: [Int?] = []
                for await entry in number.values {
                    values.append(entry?.value)
                    if values.count == 1 {
                        _ = started.next()
                        try? await begun.pass()
                    }
                    if entry?.value == 5 { break }
                }
                return values
            }
        }
        await begun.waitForCall(10)
        consumers[0].cancel()
        #expect(await consumers[0].value == [nil], "it ends at once")
        number.store(5)
        for consumer in consumers.dropFirst() { #expect(await consumer.value == [nil, 5]) }
        #expect(number.watcherCount == 0, "nobody is forgotten in the list")
    }

    @Test func `MX-26 clearing a value without persistence yields nil`() async throws {
        let number = Multiplexer<Int>(repository: self.world.repository) { 0 }
        let map = MultiplexerMap<Int, Int>(repository: self.world.repository) { $0 }
        number.store(1)
        for key in 1...2 { map.store(key, key: key) }
        var seen = number.values.makeAsyncIterator()
        var first = map.values(key: 1).makeAsyncIterator()
        var second = map.values(key: 2).makeAsyncIterator()
        #expect(try #require(await seen.next())?.value == 1)
        #expect(try #require(await first.next())?.value == 1)
        #expect(try #require(await second.next())?.value == 2)

        await number.clear()
        await map.clear(key: 1)
        #expect(try #require(await seen.next())?.value == nil)
        #expect(try #require(await first.next())?.value == nil)
        await map.clear()
        #expect(try #require(await second.next())?.value == nil)
    }

    @Test func `MX-26 clearing another instance of the same name yields nil`() async throws {
        let number = Multiplexer<Int>(cacheKey: "Number", repository: self.world.repository) { 0 }
        let other = Multiplexer<Int>(cacheKey: "Number", repository: self.world.repository) { 0 }
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: self.world.repository) { $0 }
        let otherMap = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: self.world.repository) { $0 }
        number.store(1)
        map.store(1, key: 1)
        var seen = number.values.makeAsyncIterator()
        var first = map.values(key: 1).makeAsyncIterator()
        #expect(try #require(await seen.next())?.value == 1)
        #expect(try #require(await first.next())?.value == 1)

        await other.clear()
        await otherMap.clear()

        #expect(try #require(await seen.next())?.value == nil)
        #expect(try #require(await first.next())?.value == nil)
    }

    @Test func `MX-26 an evicted value is not reported as removed`() async throws {
        let map = MultiplexerMap<Int, Int>(policy: .init(maximumCount: 1), repository: self.world.repository) { $0 }
        map.store(1, key: 1)
        var seen = map.values(key: 1).makeAsyncIterator()
        #expect(try #require(await seen.next())?.value == 1)
        map.store(2, key: 2)
        map.clearMemory()
        map.store(3, key: 1)
        #expect(try #require(await seen.next())?.value == 3)
    }

    @Test func `MX-26 an unused iterator leaves no watcher behind`() async throws {
        let number = Multiplexer<Int>(repository: self.world.repository) { 0 }
        do {
            let unused = number.values.makeAsyncIterator()
            withExtendedLifetime(unused) { #expect(number.watcherCount == 1) }
        }
        #expect(number.watcherCount == 0)
    }

    @Test func `MX-14 observers see a stored value`() async throws {
        let number = Multiplexer<Int>(repository: self.world.repository) { 0 }
        var seen = number.values.makeAsyncIterator()
        _ = await seen.next()
        number.store(3)
        #expect(try #require(await seen.next())?.value == 3)
    }

    @Test func `MX-26 clearing all keys of a persistent map yields nil`() async throws {
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: self.world.repository) { $0 }
        map.store(1, key: 1)
        var seen = map.values(key: 1).makeAsyncIterator()
        #expect(try #require(await seen.next())?.value == 1)
        await map.clear()
        #expect(try #require(await seen.next())?.value == nil)
    }

    @Test func `DS-07 an iteration ends when its multiplexer is deallocated`() async throws {
        var number: Multiplexer<Int>? = Multiplexer<Int>(repository: self.world.repository) { 1 }
        let values = try #require(number?.values)
        let began = Tally()
        let consumers = (0..<3).map { _ in
            Task {
                var seen: [Int?] = []
                for await entry in values {
                    seen.append(entry?.value)
                    began.add()
                }
                return seen
            }
        }
        await began.reached(3)
        number?.store(7)
        await began.reached(6)

        number = nil

        for consumer in consumers { #expect(await consumer.value == [nil, 7]) }
        // An iteration that begins afterwards ends at once.
        for await _ in values { Issue.record("there is no multiplexer") }
    }

    @Test func `DS-07 an iteration over a key ends when its map is deallocated`() async throws {
        var map: MultiplexerMap<String, Int>? = MultiplexerMap<String, Int>(repository: self.world.repository) { _ in 1
        }
        var seen = try #require(map?.values(key: "a")).makeAsyncIterator()
        #expect(try #require(await seen.next())?.value == nil)
        map?.store(1, key: "a")
        #expect(try #require(await seen.next())?.value == 1)

        map = nil

        #expect(await seen.next() == nil)
        #expect(await seen.next() == nil)
    }

    @Test func `DS-07 the events of a runner end when the runner is deallocated`() async throws {
        var runner: DependentRunner<Int>? = DependentRunner<Int>(1)
        var events = try #require(runner?.events).makeAsyncIterator()
        runner?.reset()
        #expect(await events.next() == .reset)

        runner = nil

        #expect(await events.next() == nil)
    }
}
