import Dispatch
import Foundation
import MuxKit
import MuxOutbox
import MuxTestSupport
import MuxTesting
import MuxUI
import Testing

@Suite(.standard)
struct OutboxOverlayTests {
    /// Two lists at a server, which a change with the lane "a" or "b" extends.
    private struct Lists: Sendable {
        let world: OutboxWorld
        let fetches = Locked<[String]>([])
        let map: MultiplexerMap<String, [String]>

        init(_ world: OutboxWorld, timeToLive: Duration = .seconds(1_000)) {
            let fetches = self.fetches
            self.world = world
            self.map = MultiplexerMap(
                policy: MuxPolicy(timeToLive: timeToLive, fetchTimeout: .longest),
                repository: world.repository
            ) { key in
                fetches.withLock { $0.append("fetch \(key) after \(world.server.applied.count)") }
                return world.server.applied.map(\.content).filter { $0.hasPrefix(key) }
            }
        }

        func outbox(token: @escaping @Sendable () async -> String? = { nil }) -> MuxOutbox<Note> {
            // swift-format-ignore: OnlyOneTrailingClosureArgument
            self.world.outbox(token: token).overlay(self.map, key: { $0.lane }) { note, list in list.append(note.text) }
        }

        func shown(_ key: String) -> [String]? { self.map.cachedEntry(key: key)?.value }
    }

    @Test func `OB-08 a change is visible when add returns, until the server has the change`() async throws {
        let world = OutboxWorld()
        let lists = Lists(world)
        let outbox = lists.outbox()
        let gate = Gate<Void>()
        world.server.react(.wait { try? await gate.pass() })
        #expect(try await lists.map.request(key: "a") == [])

        try await outbox.add(Note("a1", in: "a"))

        #expect(lists.shown("a") == ["a1"])
        await gate.waitForCall()
        #expect(lists.shown("a") == ["a1"])
        gate.open()
        await world.waitForRest(outbox)
        #expect(lists.shown("a") == ["a1"])
        #expect(try await lists.map.request(key: "a") == ["a1"])
        #expect(lists.fetches.withLock { $0 } == ["fetch a after 0", "fetch a after 1"])
    }

    @Test func `OB-08 a refused change disappears, and a later change stays`() async throws {
        let world = OutboxWorld()
        let lists = Lists(world)
        let outbox = lists.outbox()
        _ = try await lists.map.request(key: "a")
        let gate = Gate<Void>()
        world.server.react(.refuse(status: 409, "No."), .wait { try? await gate.pass() })

        try await outbox.add(Note("a1", in: "a"))
        try await outbox.add(Note("a2", in: "a"))

        await gate.waitForCall()
        #expect(lists.shown("a") == ["a2"])
        gate.open()
        await world.waitForRest(outbox)
        #expect(try await lists.map.request(key: "a") == ["a2"])
        let failed = try #require(await outbox.pending.first)
        let again = Gate<Void>()
        world.server.react(.wait { try? await again.pass() })
        try await outbox.retry(failed.id)
        await again.waitForCall()
        #expect(lists.shown("a") == ["a2", "a1"])
        again.open()
        await world.waitForRest(outbox)
        #expect(try await lists.map.request(key: "a") == ["a2", "a1"])
    }

    @Test func `OB-08 changes are visible after start of the next launch, before any other call`() async throws {
        let world = OutboxWorld(server: FakeChangeServer { _, _ in .refuseConnection })
        do {
            let outbox = Lists(world).outbox()
            try await outbox.add(Note("a1", in: "a"))
            await world.waitForRest(outbox)
        }
        let later = world.relaunched()
        let lists = Lists(later)
        // A response during an attempt would not be kept.
        let gate = Gate<Void>()
        let outbox = lists.outbox {
            try? await gate.pass()
            return nil
        }

        outbox.start()

        // The value is fetched, and shown with the change that is not sent yet.
        #expect(try await lists.map.request(key: "a") == ["a1"])
        #expect(lists.shown("a") == ["a1"])
        gate.openForGood(returning: ())
        await later.waitForRest(outbox)
        #expect(try await lists.map.request(key: "a") == ["a1"])
        #expect(lists.fetches.withLock { $0.count } == 1, "the fetched value is kept below the change")
    }

    @MainActor
    @Test func `OB-08 a screen without a value shows the change after the attempt that was running`() async throws {
        let world = OutboxWorld()
        let lists = Lists(world)
        let outbox = lists.outbox()
        let gate = Gate<Void>()
        world.server.react(.wait { try? await gate.pass() })
        try await outbox.add(Note("a1", in: "a"))
        await gate.waitForCall()
        let screen = lists.map.observed(key: "a", activity: AppActivity())
        let following = Task { await screen.follow() }
        await settled {
            lists.fetches.withLock { $0.count }
        } when: {
            $0 > 0
        }

        gate.open()

        await settled {
            screen.value
        } when: {
            $0 == ["a1"]
        }
        #expect(screen.value == ["a1"])
        following.cancel()
        await following.value
        await settled {
            outbox.waitCount
        } when: {
            $0 == 0
        }
    }

    @MainActor
    @Test func `OB-08 a screen without a value shows the change after an attempt without a connection`() async throws {
        let world = OutboxWorld()
        let lists = Lists(world)
        let gate = Gate<Void>()
        let outbox = MuxOutbox<Note>(
            "Notes",
            repository: world.repository,
            directory: world.folder,
            wakingOn: []
        ) { note, attempt in
            guard attempt.number == 1 else {
                return try await world.server.receive(note.text, key: attempt.idempotencyKey)
            }
            try await gate.pass()
            throw URLError(.notConnectedToInternet)
        }
        // swift-format-ignore: OnlyOneTrailingClosureArgument
        outbox.overlay(lists.map, key: { $0.lane }) { note, list in list.append(note.text) }
        try await outbox.add(Note("a1", in: "a"))
        await gate.waitForCall()
        let screen = lists.map.observed(key: "a", activity: AppActivity())
        let following = Task { await screen.follow() }
        await settled {
            lists.fetches.withLock { $0.count }
        } when: {
            $0 > 0
        }
        #expect(screen.value != ["a1"])

        gate.open()

        await settled {
            screen.value
        } when: {
            $0 == ["a1"]
        }
        #expect(screen.value == ["a1"])
        following.cancel()
        await following.value
        outbox.retryNow()
        await world.server.waitForApplied()
        await settled {
            outbox.waitCount
        } when: {
            $0 == 0
        }
    }

    @Test func `OB-08 a value is fetched and kept while changes wait for the network`() async throws {
        let isOffline = Locked(true)
        let server = FakeChangeServer { _, _ in isOffline.withLock { $0 } ? .refuseConnection : .confirm }
        let world = OutboxWorld(server: server)
        let lists = Lists(world)
        let outbox = lists.outbox()
        #expect(try await lists.map.request(key: "a") == [])
        try await outbox.add(Note("a1", in: "a"))
        await world.waitForRest(outbox)
        try? await server.receive("a0", key: "other device")
        isOffline.withLock { $0 = false }
        try await server.receive("a0", key: "other device")
        isOffline.withLock { $0 = true }

        lists.map.refresh(key: "a")

        #expect(try await lists.map.request(key: "a") == ["a0", "a1"])
        #expect(lists.shown("a") == ["a0", "a1"])
        isOffline.withLock { $0 = false }
        outbox.retryNow()
        await world.waitForRest(outbox)
        await server.waitForApplied(2)
        await world.waitForRest(outbox)
        #expect(try await lists.map.request(key: "a") == ["a0", "a1"])
    }

    @Test func `OB-08 an overlay that is added later shows the pending changes, and a sign-out removes them`()
        async throws
    {
        let world = OutboxWorld(server: FakeChangeServer { _, _ in .refuseConnection })
        let value = Multiplexer<[String]>(
            policy: MuxPolicy(timeToLive: .seconds(1_000), fetchTimeout: .longest),
            repository: world.repository
        ) { ["server"] }
        let outbox = world.outbox()
        try await outbox.add(Note("a"))
        await world.waitForRest(outbox)
        _ = try await value.request()

        outbox.overlay(value) { note, list in list.append(note.text) }

        #expect(value.cachedEntry?.value == ["server", "a"])
        await world.repository.signOut()
        #expect(value.cachedEntry == nil)
        #expect(try await value.request() == ["server"])
        await world.waitForRest(outbox)
    }

    @Test func `OB-08 a clear of a multiplexer keeps the changes of the outbox`() async throws {
        let world = OutboxWorld(server: FakeChangeServer { _, _ in .refuseConnection })
        let lists = Lists(world)
        let outbox = lists.outbox()
        for key in ["a", "b"] {
            _ = try await lists.map.request(key: key)
            try await outbox.add(Note("\(key)1", in: key))
        }
        await world.waitForRest(outbox)

        await lists.map.clear(key: "a")

        #expect(lists.shown("a") == nil)
        #expect(try await lists.map.request(key: "a") == ["a1"])
        await lists.map.clear()
        #expect(lists.shown("b") == nil)
        #expect(try await lists.map.request(key: "b") == ["b1"])
    }

    @Test(arguments: [false, true])
    func `OB-08 calls during the addition of an overlay show each change once, and before they return`(
        isCancelled: Bool
    ) async throws {
        let world = OutboxWorld(server: FakeChangeServer { _, _ in .refuseConnection })
        let (first, second) = (Lists(world), Lists(world))
        for lists in [first, second] { _ = try await lists.map.request(key: "a") }
        let outbox = world.outbox()
        try await outbox.add(Note("a1", in: "a"))
        await world.waitForRest(outbox)
        let (isHeld, held, mayEnd) = (Locked(true), Tally(), DispatchSemaphore(value: 0))
        defer { mayEnd.signal() }
        let overlaying = Task {
            await BlockingWork.run {
                // swift-format-ignore: OnlyOneTrailingClosureArgument
                _ = outbox.overlay(first.map, key: { $0.lane }) { note, list in
                    let isFirst = isHeld.withLock { isHeld in
                        defer { isHeld = false }
                        return isHeld
                    }
                    if isFirst {
                        held.add()
                        mayEnd.wait()
                    }
                    list.append(note.text)
                }
            }
        }
        await held.reached(1)

        // swift-format-ignore: OnlyOneTrailingClosureArgument
        outbox.overlay(second.map, key: { $0.lane }) { note, list in list.append(note.text) }
        let adding = Task {
            try await outbox.add(Note("a2", in: "a"))
            return (first.shown("a"), second.shown("a"))
        }
        await settled {
            (try? String(contentsOf: world.file, encoding: .utf8)) ?? ""
        } when: {
            $0.contains("\"a2\"")
        }
        if isCancelled { adding.cancel() }
        // An addition that does not wait for the overlays ends here.
        for _ in 0..<1_000 { await Task.yield() }
        mayEnd.signal()

        let (shown, other) = try await adding.value
        #expect(shown == ["a1", "a2"])
        #expect(other == ["a1", "a2"])
        await overlaying.value
        await world.waitForRest(outbox)
        #expect(first.shown("a") == ["a1", "a2"])
        #expect(second.shown("a") == ["a1", "a2"])
    }

    /// With `signsOut`, the repository has a number again, which is lower than the number of the changes.
    @Test(arguments: [false, true])
    func `OB-08 changes stay visible after a launch in which the repository's session number was lost`(signsOut: Bool)
        async throws
    {
        let world = OutboxWorld(server: FakeChangeServer { _, _ in .refuseConnection })
        do {
            let outbox = world.outbox()
            for _ in 1...2 { await world.repository.signOut() }
            for text in ["a1", "a2"] { try await outbox.add(Note(text, in: "a")) }
            await world.waitForRest(outbox)
        }
        // The system may remove the folder of caches at any time.
        try FileManager.default.removeItem(at: world.scratch.folder.appending(component: "caches"))
        let later = world.relaunched()
        if signsOut { await later.repository.signOut() }
        let lists = Lists(later)
        let outbox = lists.outbox()

        outbox.start()

        // The list raises the number of the repository; a lower number other than 0 also ends its session.
        #expect(await outbox.list == ["a1 waiting", "a2 waiting"])
        // A response during an attempt is not kept.
        await later.waitForRest(outbox)
        // No attempt of the second change displays the second change again.
        #expect(try await lists.map.request(key: "a") == ["a1", "a2"])
        #expect(lists.shown("a") == ["a1", "a2"])
    }

    @Test func `OB-09 on reconnection all changes are sent first, then each overlaid key is fetched once`() async throws
    {
        for _ in 0..<repetitions(200) {
            let isOffline = Locked(true)
            let server = FakeChangeServer { _, _ in isOffline.withLock { $0 } ? .refuseConnection : .confirm }
            let world = OutboxWorld(server: server)
            let lists = Lists(world)
            let outbox = lists.outbox()
            for key in ["a", "b"] { _ = try await lists.map.request(key: key) }
            for text in ["a1", "b1", "a2", "b2"] { try await outbox.add(Note(text, in: String(text.prefix(1)))) }
            await world.waitForRest(outbox)
            lists.fetches.withLock { $0 = [] }

            try await withThrowingTaskGroup { group in
                // Two views follow the values, and fetch as soon as a value is stale.
                for key in ["a", "b"] {
                    group.addTask {
                        for await state in lists.map.states(key: key) where state.entry?.value.count == 2 {
                            if state.isStale, !state.isLoading { _ = try? await lists.map.request(key: key) }
                            if server.applied.count == 4, !state.isStale { return }
                        }
                    }
                }
                isOffline.withLock { $0 = false }
                outbox.retryNow()
                await world.waitForRest(outbox)
                for key in ["a", "b"] { _ = try await lists.map.request(key: key) }
                try await group.waitForAll()
            }

            #expect(lists.fetches.withLock { $0.sorted() } == ["fetch a after 4", "fetch b after 4"])
        }
    }
}
