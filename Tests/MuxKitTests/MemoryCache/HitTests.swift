import MuxKit
import MuxTestSupport
import Testing

@Suite(.standard)
struct HitTests {
    private static let ages: [Duration] = [
        .zero, .nanoseconds(1), .seconds(1), .seconds(9), .seconds(10) - .nanoseconds(1), .seconds(10), .seconds(11),
        .seconds(1_000_000), .longest,
    ]
    private static let timesToLive: [Duration] = [
        .seconds(-1), .zero, Duration(secondsComponent: 0, attosecondsComponent: 1_500_000_000), .seconds(10),
        .seconds(1_000_000), .longest, .longest + .longest,
    ]

    @Test func `MX-20 the fast path and the freshness decision agree on hits`() {
        let now = Moment(nanoseconds: 5_000_000_000)
        var (hits, misses) = (0, 0)
        for age in Self.ages {
            for timeToLive in Self.timesToLive {
                for renewalAge in [nil, Duration.seconds(5)] {
                    for isRefreshed in [false, true] {
                        for maximumAge in [nil, .zero, .nanoseconds(1), .seconds(10), .longest] as [Duration?] {
                            var entry = Slot<Int>.Entry(
                                value: 7,
                                fetchedAt: now.advanced(by: .zero - age),
                                timeToLive: timeToLive,
                                renewalAge: renewalAge
                            )
                            if Self.checksHit(of: entry, isRefreshed, at: now, maximumAge) {
                                hits += 1
                            } else {
                                misses += 1
                            }
                            entry.needsSelection = true
                            #expect(!Self.checksHit(of: entry, isRefreshed, at: now, maximumAge))
                        }
                    }
                }
            }
        }
        #expect(hits > 10 && misses > 10)
    }

    @Test func `CO-17 a refresh of all entries hands over the remembered error of a multiplexer`() {
        var single = SingleSlot<Int>(isPersistent: false)
        let now = Moment(nanoseconds: 0)
        func fail(_ slot: inout Slot<Int>) {
            slot.recordFailure(CancellationError(), heldUntil: now, rememberedUntil: .distantFuture, at: now)
        }
        single.withSlot(of: .sole, evicted: { _, _ in }, fail)
        var removed = 0
        for _ in 0..<2 { single.refreshAll(1) { _ in removed += 1 } }
        #expect(removed == 1 && single.slot(of: .sole)?.failureRecord == nil)
    }

    /// Compares the fast path with the freshness decision; returns whether the decision is a hit.
    private static func checksHit(
        of entry: Slot<Int>.Entry,
        _ isRefreshed: Bool,
        at now: Moment,
        _ maximumAge: Duration?
    ) -> Bool {
        var single = SingleSlot<Int>(isPersistent: true)
        var table = SlotTable<Int, Int>(policy: MuxPolicy(maximumCount: 10), isPersistent: true)
        func fill(_ slot: inout Slot<Int>) {
            _ = slot.commit(entry)
            if isRefreshed { slot.markRefreshed() }
        }
        single.withSlot(of: .sole, evicted: { _, _ in }, fill)
        table.withSlot(of: ExactKey(1), evicted: { _, _ in }, fill)

        let freshness = single.slot(of: .sole)?.freshness(at: now, .init(maximumAge: maximumAge))
        let isHit = freshness == .fresh(renews: false) && !entry.needsSelection
        let limit = maximumAge?.saturatedNanoseconds ?? .max
        let first = single.hit(.sole, at: now, youngerThan: limit)
        let second = table.hit(ExactKey(1), at: now, youngerThan: limit)
        let scene = "\(entry), \(isRefreshed), \(String(describing: maximumAge))"
        let kept = table.slot(of: ExactKey(1))?.entry
        #expect(kept?.timeToLive == entry.timeToLive && kept?.renewalAge == entry.renewalAge, "\(scene)")
        #expect(kept?.needsSelection == entry.needsSelection, "\(scene)")
        #expect(first == second, "\(scene)")
        // With a time to live in fractions of a nanosecond, the fast path may miss a fresh entry.
        let isExact = entry.timeToLive.components.attoseconds % 1_000_000_000 == 0
        if isExact { #expect((first != nil) == isHit, "\(scene)") }
        if first != nil { #expect(isHit, "\(scene)") }
        return isHit
    }

    @Test func `MX-06 a time to live of zero is no hit, even if the coarse clock is late`() {
        let fetched = Moment(nanoseconds: 5_000_000_000)
        let earlier = Moment(nanoseconds: 4_997_000_000)
        for (timeToLive, expected) in [(Duration.zero, nil), (.seconds(1), 7)] as [(Duration, Int?)] {
            var single = SingleSlot<Int>(isPersistent: false)
            let entry = Slot<Int>.Entry(value: 7, fetchedAt: fetched, timeToLive: timeToLive)
            single.fill(entry)
            #expect(single.hit(.sole, at: earlier, youngerThan: .max) == expected)
        }
    }

    @Test func `MX-20 a look-up in a table needs the exact text of a key`() {
        var table = SlotTable<String, Int>(policy: MuxPolicy(maximumCount: 10), isPersistent: false)
        let now = Moment(nanoseconds: 0)
        for (index, key) in ["e\u{301}", "\u{e9}", "plain"].enumerated() {
            let entry = Slot<Int>.Entry(value: index, fetchedAt: now, timeToLive: .seconds(1))
            table.fill(entry, of: ExactKey(key))
        }
        #expect(table.hit(ExactKey("e\u{301}"), at: now, youngerThan: .max) == 0)
        #expect(table.hit(ExactKey("\u{e9}"), at: now, youngerThan: .max) == 1)
        #expect(table.hit(ExactKey("plain"), at: now, youngerThan: .max) == 2)
        #expect(table.hit(ExactKey("other"), at: now, youngerThan: .max) == nil)
        #expect(table.violation() == nil)
    }

    @Test func `MX-06 the coarse clock is at most slightly behind the exact clock`() {
        let time = TimeSource(ContinuousClock())
        let hits = CoarseClock(time)
        var least = Duration.seconds(60)
        for _ in 0..<10_000 {
            let before = hits.now ?? .distantPast
            let exact = time.now
            let after = hits.now ?? .distantPast
            #expect(before <= exact)
            least = min(least, exact.duration(since: before))
            #expect(before <= after)
        }
        // The slowest kernel has a tick of 10 ms. Other processes may add a delay.
        #expect(least < .milliseconds(20))
    }
}

extension SlotStorage where Key == SoleKey {
    fileprivate mutating func fill(_ entry: Slot<Value>.Entry) { self.fill(entry, of: .sole) }
}

extension SlotStorage {
    fileprivate mutating func fill(_ entry: Slot<Value>.Entry, of key: Key) {
        self.withSlot(of: key, evicted: { _, _ in }, { _ = $0.commit(entry) })
    }
}
