import MuxKit
import MuxTestSupport
import Testing

@Suite(.timeLimit(.minutes(15)), .takesTurns, .endsAtRest)
struct MemoryCacheTests {
    @Test func `AM-14 count and cost are bounded and counted`() {
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

    @Test func `AM-14 values are let go outside the lock`() {
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
}
