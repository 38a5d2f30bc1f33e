import MuxKit
import MuxTesting
import Testing

@Test func `all callers get the one profile`() async throws {
    let clock = VirtualClock()
    let events = EventTally()
    let repository = MuxRepository(store: MemoryStore(), observer: events, clock: clock)
    let gate = Gate<String>()
    let profile = Multiplexer<String>(repository: repository) { try await gate.pass() }

    async let first = profile.request()
    await gate.waitForCall()  // the fetch has begun, and waits
    async let second = profile.request()
    await events.wait(for: .joined)  // the second caller waits for the first one's fetch
    gate.open(returning: "Alice")

    let both = try await [first, second]
    #expect(both == ["Alice", "Alice"])
    #expect(gate.callCount == 1)

    clock.advance(by: .seconds(30 * 60))  // it is stale now
    gate.openForGood(returning: "Bob")
    #expect(try await profile.request() == "Bob")
}

func testingLandingPage() {
    let clock = VirtualClock()
    let gate = Gate<String>()
    let repository = MuxRepository(store: MemoryStore(), clock: clock)
    let name = Multiplexer<String>(repository: repository) { try await gate.pass() }
    _ = name
}
