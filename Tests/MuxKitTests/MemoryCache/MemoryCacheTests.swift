import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct MemoryCacheTests {
    @Test func `AM-14 count and cost are limited and counted`() {
        let cache = MemoryCache<Int, String>(maximumCount: 3, maximumCost: 100)
        for key in 0..<5 { cache.insert("\(key)", for: key, cost: 10) }
        #expect(cache.count == 3)
        #expect(cache.totalCost == 30)

        cache.insert("dear", for: 9, cost: 80)
        #expect(cache.value(for: 9) == "dear")
        #expect(cache.totalCost <= 100)
        cache.insert("too dear", for: 9, cost: 101)

        #expect(cache.value(for: 9) == nil, "neither the new one nor the old one")
        #expect(cache.statistics.hits == 1)
        #expect(cache.statistics.misses == 1)
        #expect(cache.statistics.evictions == 4)
        cache.removeAll()
        #expect(cache.count == 0)
        #expect(cache.totalCost == 0)
    }

    @Test func `PT-01 an emptied cache keeps its limits`() {
        for bounds in [(count: 2, cost: Int?.none), (100, 20)] {
            let cache = MemoryCache<Int, String>(maximumCount: bounds.count, maximumCost: bounds.cost)
            cache.removeAll()
            for key in 0..<5 { cache.insert("\(key)", for: key, cost: 10) }
            #expect(cache.count == 2)
        }
    }

    @Test(arguments: [false, true])
    func `EV-05 a replacement counts as a use`(isByRecency: Bool) {
        let cache = MemoryCache<Int, Int>(maximumCount: 4, evictsLeastRecentlyUsed: isByRecency)
        for key in 0..<4 { cache.insert(key, for: key) }
        for _ in 0..<3 { cache.insert(10, for: 0) }
        for key in 4..<7 { cache.insert(key, for: key) }
        #expect(cache.value(for: 0) == 10)
        #expect(cache.statistics.evictions == 3)
    }

    @Test func `EV-05 an emptied cache by recency keeps its order`() {
        let cache = MemoryCache<Int, String>(maximumCount: 3, evictsLeastRecentlyUsed: true)
        cache.removeAll()
        // Key 0 has the most uses, and was used least recently.
        for key in [0, 0, 0, 1, 2, 1, 2] where cache.value(for: key) == nil { cache.insert("\(key)", for: key) }
        cache.insert("3", for: 3)
        #expect((0..<4).map { cache.value(for: $0) } == [nil, "1", "2", "3"])
    }

    @Test func `AM-14 a value may be replaced and removed`() {
        let cache = MemoryCache<Double, Int>(maximumCount: 2)
        cache.insert(1, for: 1)
        cache.insert(2, for: 1)
        cache.insert(3, for: .nan)
        #expect(cache.count == 1)
        #expect(cache.remove(1) == 2)
        #expect(cache.remove(1) == nil)
        #expect(cache.value(for: .nan) == nil)
    }

    @Test func `AM-14 values are released outside the lock`() {
        final class Nosy: Sendable {
            let cache: MemoryCache<Int, Nosy>
            init(_ cache: MemoryCache<Int, Nosy>) { self.cache = cache }
            deinit { _ = self.cache.count }
        }
        let cache = MemoryCache<Int, Nosy>(maximumCount: 2)
        for key in 0..<10 { cache.insert(Nosy(cache), for: key) }
        cache.insert(Nosy(cache), for: 9)
        cache.remove(9)
        cache.removeAll()
        #expect(cache.count == 0)
    }

    #if os(macOS) || os(Linux)
    @Test func `DS-13 keys and values of a memory cache are released outside its lock`() async {
        // A recursive lock ends the process.
        await #expect(processExitsWith: .success) {
            typealias Cache = MemoryCache<CallingKey, LastCall>
            let holder = Locked<Cache?>(nil)
            let (made, gone) = (Locked(0), Tally())
            let call: @Sendable () -> Void = {
                gone.add()
                guard let cache = holder.withLock({ $0 }) else { return }
                let key = CallingKey(number: -1, last: nil)
                cache.insert(LastCall {}, for: key, cost: 1)
                _ = (cache.count, cache.totalCost, cache.statistics, cache.value(for: key), cache.remove(key))
            }
            let object: @Sendable () -> LastCall = {
                _ = made.next()
                return LastCall(call)
            }
            // Each use has a separate key, so the key in the table has the only reference to its object.
            let key: @Sendable (Int) -> CallingKey = { CallingKey(number: $0, last: object()) }
            for (count, cost) in [(nil, nil), (8, nil), (nil, 100), (8, 100), (0, nil)] as [(Int?, Int?)] {
                let cache = Cache(maximumCount: count, maximumCost: cost)
                holder.exchange(for: cache)
                for number in 0..<40 { cache.insert(object(), for: key(number % 25), cost: 10 + number % 3) }
                for number in 0..<25 { _ = cache.value(for: key(number)) }
                // Replaces values: first by too costly values, then by values that cause evictions.
                for number in 0..<25 where number % 5 == 0 { cache.insert(object(), for: key(number), cost: 101) }
                for number in 0..<25 where number % 5 == 1 { cache.insert(object(), for: key(number), cost: 90) }
                for number in 10..<30 { cache.remove(key(number)) }
                for number in 0..<200 { cache.insert(object(), for: key(number), cost: 1) }
                for number in 0..<190 { cache.remove(key(number)) }
                cache.removeAll()
                #expect(cache.count == 0)
                #expect(gone.value == made.withLock { $0 })
                for number in 0..<4 { cache.insert(object(), for: key(number)) }
                holder.exchange(for: nil)
            }
            #expect(gone.value >= made.withLock { $0 } - 8)
        }
    }
    #endif
}
