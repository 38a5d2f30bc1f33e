import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Slow disk reads between a request and its fetch.
@Suite(.standard)
struct LateStartTests {
    private let executor = OrderedExecutor()
    private let store = UnreliableStore()
    private let world: World
    /// Holds every disk read.
    private let inLoad = Gate<Void>()

    init() {
        self.world = World(store: self.store, spawn: TaskLauncher(executor: self.executor))
        self.store.afterLoad.withLock { [inLoad] in $0 = { try? await inLoad.pass(ignoringCancellation: true) } }
    }

    @Test func `RP-04 no fetch begins after a sign-out for an earlier request`() async throws {
        let fetch = ScriptedFetch<Int>(thereafter: .value(1))
        let number = Multiplexer<Int>(cacheKey: "Number", repository: self.world.repository) { try await fetch() }
        let caller = Task { try await number.request() }
        await self.inLoad.waitForCall(1)

        await self.world.repository.clearAll()
        await #expect(throws: MuxError.sessionEnded) { try await caller.value }
        self.inLoad.open(1)
        self.executor.settle()

        #expect(fetch.callCount == 0)
        await number.expectAtRest()
    }

    @Test func `MX-05 no fetch begins for an abandoned flight`() async throws {
        let fetch = ScriptedFetch<Int>(thereafter: .value(1))
        let policy = MuxPolicy(whenAbandoned: .cancel(linger: .zero))
        let number = Multiplexer<Int>(cacheKey: "Number", policy: policy, repository: self.world.repository) {
            try await fetch()
        }
        let caller = Task { try await number.request() }
        await self.inLoad.waitForCall(1)

        caller.cancel()
        _ = await caller.result
        self.inLoad.open(1)
        self.executor.settle()

        #expect(fetch.callCount == 0)
        await number.expectAtRest()
    }

    @Test func `MX-07 callers before and after a refresh share the fetch that begins after the refresh`() async throws {
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>(thereafter: .gated(gate))
        let number = Multiplexer<Int>(cacheKey: "Number", repository: self.world.repository) { try await fetch() }
        let before = Task { try await number.request() }
        await self.inLoad.waitForCall(1)

        number.refresh()
        let after = Task { try await number.request() }
        await self.inLoad.waitForCall(2)
        self.inLoad.open(2)
        await gate.waitForCall(1)
        self.inLoad.open(1)
        self.executor.settle()
        gate.openForGood(returning: 9)

        #expect(try await before.value == 9)
        #expect(try await after.value == 9)
        #expect(fetch.callCount == 1)
        await number.expectAtRest()
    }
}
