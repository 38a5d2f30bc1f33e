import MuxKit
import MuxTesting
import Testing

@Suite(.timeLimit(.minutes(1)))
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

    @Test func `MX-26 what is read from disk is a change`() async throws {
        let number = Multiplexer<Int>(cacheKey: "Number", repository: self.world.repository) { 1 }
        _ = try await number.request()
        await number.save()
        let again = Multiplexer<Int>(cacheKey: "Number", repository: self.world.relaunched().repository) { 2 }
        var seen = again.values.makeAsyncIterator()
        #expect(try #require(await seen.next())?.value == nil)
        _ = try await again.request()
        #expect(try #require(await seen.next())?.value == 1)
    }

    @Test func `MX-26 a slow consumer skips to the newest`() async throws {
        let map = MultiplexerMap<String, Int>(repository: self.world.repository) { _ in 0 }
        var slow = map.values(key: "a").makeAsyncIterator()
        #expect(try #require(await slow.next())?.value == nil)
        for number in 1...1_000 { map.store(number, key: "a") }
        map.store(-1, key: "b")
        #expect(try #require(await slow.next())?.value == 1_000)
    }

    @Test func `MX-26 many consumers each get everything and ending one ends only that one`() async throws {
        let number = Multiplexer<Int>(repository: self.world.repository) { 0 }
        let started = Guarded(0)
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

    @Test func `MX-14 observers see a stored value`() async throws {
        let number = Multiplexer<Int>(repository: self.world.repository) { 0 }
        var seen = number.values.makeAsyncIterator()
        _ = await seen.next()
        number.store(3)
        #expect(try #require(await seen.next())?.value == 3)
    }
}
