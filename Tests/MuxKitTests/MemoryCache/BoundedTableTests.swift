import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct BoundedTableTests {
    @Test(arguments: [0, 1, 2, 9, 10, 40, 57, nil] as [Int?])
    func `MX-24 EV-01 the table behaves like the plain model`(capacity: Int?) {
        for seed in 0..<12 {
            var random = SplitMix64(state: UInt64(seed))
            var table = BoundedTable<Int, Int>(maximumCount: capacity)
            var model = ReferenceTable(capacity: capacity)
            let pinnedShare = [0, 1, 5, 10][seed % 4]
            let mayGo: (Int) -> Bool = { $0 % 10 >= pinnedShare }
            for step in 0..<400 {
                let key = Int.random(in: 0..<80, using: &random)
                switch Int.random(in: 0..<10, using: &random) {
                case 0:
                    let removed = table.remove(at: table.place(of: key))
                    #expect(removed?.element == model.remove(key))
                case 1...4:
                    let value = Int.random(in: 0..<1_000, using: &random)
                    var evicted: [Int] = []
                    table.insert(value, of: key, mayGo: mayGo) { key, value in
                        evicted.append(key)
                        #expect(mayGo(value), "a pinned one was evicted")
                    }
                    #expect(evicted == model.insert(value, of: key, mayGo: mayGo), "seed \(seed), step \(step)")
                    if capacity ?? .max < table.count {
                        // A new element has a place even if all other elements are pinned.
                        #expect(table.keys.count { mayGo(table.peek($0) ?? 0) } <= 1, "beyond the bound for nothing")
                    }
                default:
                    #expect(table.lookup(key) == model.lookup(key))
                }
                #expect(table.count == model.values.count)
                #expect(table.violation() == nil, "seed \(seed), step \(step)")
            }
            #expect(Dictionary(uniqueKeysWithValues: table.keys.map { ($0, table.peek($0)) }) == model.values)
        }
    }

    @Test(arguments: [false, true])
    func `MX-24 EV-05 a replacement may unpin elements, and then the limit holds again`(isByRecency: Bool) {
        var table = BoundedTable<Int, Int>(maximumCount: 10, evictsLeastRecentlyUsed: isByRecency)
        for key in 0..<100 { table.insert(0, of: key, mayGo: { $0 != 0 }) }
        #expect(table.count == 100)

        for key in 0..<95 where table.peek(key) != nil { table.insert(1, of: key, mayGo: { $0 != 0 }) }

        #expect(table.count == 10)
        #expect((95..<100).allSatisfy { table.peek($0) == 0 }, "still pinned")
        #expect(table.violation() == nil)
    }

    @Test func `MX-24 churn of distinct keys does not grow storage`() {
        var table = BoundedTable<Int, Int>(maximumCount: 100)
        var room = 0
        for key in 0..<50_000 {
            table.insert(key, of: key)
            if key == 5_000 { room = table.footprint }
        }
        #expect(table.count == 100)
        #expect(table.footprint == room)
        #expect(table.violation() == nil)

        var unbounded = BoundedTable<Int, Int>(maximumCount: nil)
        for key in 0..<20_000 {
            unbounded.insert(key, of: key)
            unbounded.remove(at: unbounded.place(of: key - 50))
        }
        #expect(unbounded.footprint < 1_000)
        for key in 0..<20_000 { unbounded.insert(key, of: key) }
        #expect(unbounded.removeAll(before: nil, atMost: .max) { key, _ in key >= 10 } == nil)
        #expect(unbounded.count == 10)
        #expect(unbounded.footprint < 1_000, "storage is given back")
        #expect(unbounded.violation() == nil)
    }

    @Test func `MX-24 a burst of elements that may not be evicted seldom grows the storage`() {
        var table = BoundedTable<Int, Int>(maximumCount: 100)
        var sizes: Set<Int> = []
        for key in 0..<10_000 {
            table.insert(key, of: key, mayGo: { _ in false })
            sizes.insert(table.footprint)
        }
        #expect(table.count == 10_000 && sizes.count < 30)
    }

    @Test func `MX-24 keys with equal hashes are distinguished`() {
        struct Hostile: Hashable, Sendable {
            let number: Int
            func hash(into hasher: inout Hasher) {}
        }
        var table = BoundedTable<Hostile, Int>(maximumCount: 50)
        for number in 0..<200 { table.insert(number, of: Hostile(number: number)) }
        #expect(table.count == 50)
        for key in table.keys { #expect(table.lookup(key) == key.number) }
        for number in stride(from: 0, to: 200, by: 3) { table.remove(at: table.place(of: Hostile(number: number))) }
        for key in table.keys { #expect(table.peek(key) == key.number) }
        #expect(table.violation() == nil)
    }

    @Test(arguments: [Int.min, -1, 0, 1, .max / 4, .max])
    func `MX-24 any limit is valid`(limit: Int) {
        var table = BoundedTable<Int, Int>(maximumCount: limit, maximumCost: limit)
        for key in 0..<100 {
            table.insert(key, of: key, cost: [0, 1, -5, .max, .min][key % 5])
            #expect(table.violation() == nil)
        }
        #expect(table.count <= max(0, limit))
        #expect(table.totalCost <= max(0, limit))

        var pinned = BoundedTable<Int, Int>(maximumCount: limit, maximumCost: limit)
        for key in 0..<100 { pinned.insert(key, of: key, cost: .max, mayGo: { _ in false }) }
        #expect(pinned.count == 100)
        #expect(pinned.totalCost == .max, "it saturates")
        #expect(pinned.violation() == nil)

        var single = BoundedTable<Int, Int>(maximumCount: limit)
        single.insert(1, of: 1, mayGo: { _ in false })
        #expect(!single.isFarOverBound)
    }

    // MARK: - Retention

    @Test func `MX-24 a scan does not evict used elements`() {
        var table = BoundedTable<Int, Int>(maximumCount: 1_000)
        var old = LeastRecentlyUsed(capacity: 1_000)
        for _ in 0..<4 { for key in 0..<500 { _ = (table.request(key), old.request(key)) } }

        for key in 1_000..<10_000 { _ = (table.request(key), old.request(key)) }

        let kept = (0..<500).count { table.peek($0) != nil }
        let keptByOld = (0..<500).count { old.request($0) }
        #expect(kept == 500)
        #expect(keptByOld == 0)
    }

    @Test func `MX-24 on a skewed trace the table has more hits than least recently used`() {
        let trace = ZipfTrace(keys: 50_000)
        var random = SplitMix64(state: 7)
        var table = BoundedTable<Int, Int>(maximumCount: 500)
        var old = LeastRecentlyUsed(capacity: 500)
        var hits = 0
        var oldHits = 0
        let steps = repetitions(150_000)
        for step in 0..<steps {
            let key = trace.key(&random)
            let (isHit, isOldHit) = (table.request(key), old.request(key))
            guard step >= steps / 3 else { continue }
            hits += isHit ? 1 : 0
            oldHits += isOldHit ? 1 : 0
        }
        #expect(hits > oldHits + steps / 25, "\(hits) and \(oldHits) of \(steps * 2 / 3)")
        #expect(table.violation() == nil)
    }

    @Test func `MX-24 the table adapts to a change of popular keys`() {
        let trace = ZipfTrace(keys: 50_000)
        var random = SplitMix64(state: 8)
        var table = BoundedTable<Int, Int>(maximumCount: 500)
        var old = LeastRecentlyUsed(capacity: 500)
        var hits = 0
        var oldHits = 0
        let steps = repetitions(150_000)
        for step in 0..<steps {
            let key = (trace.key(&random) + step / 200) % 50_000
            let (isHit, isOldHit) = (table.request(key), old.request(key))
            guard step >= steps / 3 else { continue }
            hits += isHit ? 1 : 0
            oldHits += isOldHit ? 1 : 0
        }
        #expect(hits > oldHits, "\(hits) and \(oldHits) of \(steps * 2 / 3)")
    }
}
