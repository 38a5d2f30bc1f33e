import Foundation
import MuxConformance
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// The shared store in memory, and the rules of shared stores.
@Suite(.standard)
struct SharedStoreTests {
    private let clock = VirtualClock()
    private let name = MuxShared.Name(MuxStoreKey(domain: "Places", key: "1"), tags: ["Rome"])

    private func entry(_ text: String = "one", lasting: Duration = .seconds(60)) -> MuxShared.Entry {
        MuxShared.Entry(payload: Data(text.utf8), digest: text, timeToLive: lasting)
    }

    private func claim(_ store: any MuxSharedStore) async throws -> MuxShared.Claim {
        try await store.claim(self.name, maximumAge: nil, digest: nil, for: .seconds(10))
    }

    @Test func `FL-01 the store in memory keeps every rule`() async throws {
        let clock = self.clock
        try await MuxSharedStoreConformance.run(
            advancing: { clock.advance(by: $0) },
            of: {
                let store = MemorySharedStore(clock: clock)
                return (store.connection(), store.connection())
            }
        )
        try await MuxSharedStoreConformance.run(
            advancing: { clock.advance(by: $0) },
            of: { FaultySharedStore.pair(nil, clock) }
        )
    }

    @Test func `FL-01 a store with one fault breaks a rule, and each rule detects a fault`() async throws {
        let clock = self.clock
        var found: [String: [String]] = [:]
        for fault in FaultySharedStore.Fault.allCases {
            let error = await #expect(throws: ConformanceFailure.self, "\(fault)") {
                try await MuxSharedStoreConformance.run(
                    within: .seconds(20),
                    advancing: { clock.advance(by: $0) },
                    of: { FaultySharedStore.pair(fault, clock) }
                )
            }
            found[error?.rule ?? "", default: []].append(fault.rawValue)
        }
        for (rule, faults) in found.sorted(by: { $0.key < $1.key }) { print("FL-01: \(rule): \(faults.sorted())") }
        let unused = Set(MuxSharedStoreConformance.ruleNames).subtracting(found.keys)
        #expect(unused == [])
    }

    @Test func `FL-02 machines whose clocks differ by hours agree on freshness`() async throws {
        // Machines only send and receive durations.
        let store = MemorySharedStore(clock: self.clock)
        let (first, second) = (store.connection(), store.connection())
        guard case .granted(let ticket, _) = try await self.claim(first) else { throw Unexpected() }
        #expect(try await first.put(self.entry(), with: ticket))
        self.clock.advance(by: .seconds(59))
        guard case .entry(let entry) = try await self.claim(second) else { throw Unexpected() }
        #expect(entry.age == .seconds(59))
        self.clock.advance(by: .seconds(1))
        guard case .granted(_, let stale?) = try await self.claim(second) else { throw Unexpected() }
        #expect(stale.age == .seconds(60))
    }

    private struct Unexpected: Error {}

    @Test func `FL-03 a miss is one round trip, and waiting machines are notified`() async throws {
        let store = MemorySharedStore(clock: self.clock)
        let (first, second) = (store.connection(), store.connection())
        var changes = second.changes().makeAsyncIterator()
        guard case .granted(let ticket, nil) = try await self.claim(first) else { throw Unexpected() }
        #expect(store.callCount == 1)
        guard case .taken(.seconds(10), nil) = try await self.claim(second) else { throw Unexpected() }
        #expect(store.callCount == 2)
        #expect(try await first.put(self.entry(), with: ticket))
        #expect(await changes.next() == .stored(self.name.key))
        guard case .entry = try await self.claim(second) else { throw Unexpected() }
        #expect(store.callCount == 4)

        // The holder is dead: the claim ends, and a waiting machine takes over.
        try await first.invalidate([.entry(self.name.key)])
        _ = try await self.claim(first)
        guard case .taken(let time, nil) = try await self.claim(second) else { throw Unexpected() }
        self.clock.advance(by: time)
        guard case .granted = try await self.claim(second) else { throw Unexpected() }
    }

    @Test func `FL-05 a store reports an outage, and afterwards unknown changes or the loss of all entries`()
        async throws
    {
        let store = MemorySharedStore(clock: self.clock)
        let (first, second) = (store.connection(), store.connection())
        var changes = second.changes().makeAsyncIterator()
        guard case .granted(let ticket, _) = try await self.claim(first) else { throw Unexpected() }
        #expect(try await first.put(self.entry(), with: ticket))
        #expect(await changes.next() == .stored(self.name.key))

        second.isCut = true
        #expect(second.isCut)
        await #expect(throws: MemorySharedStore.Away.self) { try await second.load([self.name]) }
        try await first.invalidate([.tag("Rome")])
        second.isCut = false
        #expect(await changes.next() == .unknown)

        store.isDown = true
        for connection in [first, second] {
            await #expect(throws: MemorySharedStore.Away.self) { try await self.claim(connection) }
        }
        store.isDown = false
        #expect(await changes.next() == .unknown)

        guard case .granted(let late, _) = try await self.claim(first) else { throw Unexpected() }
        store.loseEverything()
        #expect(await changes.next() == .emptied)
        #expect(try await first.put(self.entry(), with: late) == false)
        #expect(try await second.load([self.name]) == [nil])
    }

    @Test func `PT-01 a loss of all entries is reported once`() async throws {
        let store = MemorySharedStore(clock: self.clock)
        let connection = store.connection()
        var changes = connection.changes().makeAsyncIterator()
        store.loseEverything()
        #expect(await changes.next() == .emptied)
        store.isDown = true
        store.isDown = false
        #expect(await changes.next() == .unknown)
    }

    @Test func `FL-05 a call that throws may have taken effect`() async throws {
        let store = MemorySharedStore(clock: self.clock)
        let (first, second) = (store.connection(), store.connection())
        guard case .granted(let ticket, _) = try await self.claim(first) else { throw Unexpected() }
        first.losesReplies = true
        #expect(first.losesReplies)
        await #expect(throws: MemorySharedStore.Away.self) { try await first.put(self.entry(), with: ticket) }
        #expect(try await second.load([self.name])[0]?.digest == "one")
        await #expect(throws: MemorySharedStore.Away.self) { try await first.invalidate([.everything]) }
        #expect(try await second.load([self.name]) == [nil])
        await #expect(throws: MemorySharedStore.Away.self) { try await self.claim(first) }
        guard case .taken = try await self.claim(second) else { throw Unexpected() }
    }

    @Test func `FL-05 a slow store delays its callers, and a cancelled caller does not wait`() async throws {
        let store = MemorySharedStore(clock: self.clock)
        store.delay = .seconds(2)
        #expect(store.delay == .seconds(2))
        let connection = store.connection()
        let call = Task { try await self.claim(connection) }
        await self.clock.waitForSleepers()
        self.clock.advance(by: .seconds(2))
        guard case .granted = try await call.value else { throw Unexpected() }
        let left = Task { try await self.claim(connection) }
        await self.clock.waitForSleepers()
        left.cancel()
        await #expect(throws: CancellationError.self) { try await left.value }
        #expect(store.callCount == 1)
    }

    @Test func `FL-01 a stream of changes ends with its connection`() async throws {
        let store = MemorySharedStore(clock: self.clock)
        var connection: MemorySharedStore.Connection? = store.connection()
        var changes = try #require(connection?.changes()).makeAsyncIterator()
        try await store.connection().invalidate([.everything])
        connection = nil
        #expect(await changes.next() == .invalidated(.everything))
        #expect(await changes.next() == nil)
    }
}
