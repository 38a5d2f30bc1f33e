import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Sessions on several machines with a shared store.
@Suite(.standard)
struct SharedSessionsTests {
    private struct Machine: Sendable {
        let repository: MuxRepository
        let sessions: MuxSessions<String, Int>
        let orders: MultiplexerMap<UserKey<String, Int>, String>
        let profiles: MultiplexerMap<String, String>
    }

    /// A user whose key text differs from the description.
    private struct Member: MuxKey, CustomStringConvertible {
        var number: Int
        var keyText: String { "member \(self.number)" }
        var description: String { "somebody" }
    }

    private func repository(_ schedule: SeededExecutor, _ store: MemorySharedStore) -> MuxRepository {
        self.repository(schedule, store.connection())
    }

    private func repository(
        _ schedule: SeededExecutor,
        _ connection: MemorySharedStore.Connection
    ) -> MuxRepository {
        .machine(schedule, sharing: connection)
    }

    /// A machine whose tokens and values contain the number of sign-outs that began before their fetch.
    private func machine(
        _ schedule: SeededExecutor,
        _ store: MemorySharedStore,
        _ signOuts: Locked<Int>,
        _ fetches: Locked<Int> = Locked(0)
    ) -> Machine {
        let repository = self.repository(schedule, store)
        let sessions = MuxSessions<String, Int>(repository: repository) { _, _ in
            .updatedDependency(signOuts.withLock { $0 })
        }
        let fetch: @Sendable (String, Int) async throws -> String = { name, token in
            let session = signOuts.withLock { $0 }
            _ = fetches.next()
            try await schedule.clock.sleep(for: .milliseconds(100))
            return "\(name) in \(min(session, token))"
        }
        return Machine(
            repository: repository,
            sessions: sessions,
            orders: sessions.makeMap(cacheKey: "Orders") { user, id, token in try await fetch("\(id) of \(user)", token)
            },
            profiles: sessions.makeMap(cacheKey: "Profiles") { user, token in try await fetch(user, token) }
        )
    }

    @Test func `FL-07 a value of a user is fetched once for all machines`() async throws {
        try await SeededExecutor.explore(15) { schedule in
            let (store, fetches) = (MemorySharedStore(clock: schedule.clock), Locked(0))
            let machines = (0..<3).map { _ in self.machine(schedule, store, Locked(0), fetches) }
            try await withThrowingTaskGroup(of: Void.self) { group in
                for machine in machines {
                    group.addTask { _ = try await machine.orders.request(key: .init("alice", 1)) }
                    group.addTask { _ = try await machine.profiles.request(key: "alice") }
                }
                try await group.waitForAll()
            }
            try expect(fetches.withLock { $0 } == 2, "\(fetches.withLock { $0 })")
        }
    }

    @Test(arguments: [1, 1_000])
    func `FL-07 a user's sign-out is one call of the store for any number of values`(count: Int) async throws {
        try await SeededExecutor.explore(2) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let machine = self.machine(schedule, store, Locked(0))
            try await withThrowingTaskGroup(of: Void.self) { group in
                for id in 0..<count { group.addTask { _ = try await machine.orders.request(key: .init("alice", id)) } }
                try await group.waitForAll()
            }
            let calls = store.callCount
            let report = await machine.sessions.signOut("alice")
            try expect(report.failures.isEmpty)
            try expect(store.callCount == calls + 1, "\(store.callCount - calls) calls")
        }
    }

    @Test func `FL-07 a user's sign-out on one machine takes effect on all machines`() async throws {
        try await SeededExecutor.explore(25) { schedule in
            let (store, signOuts) = (MemorySharedStore(clock: schedule.clock), Locked(0))
            let machines = (0..<2).map { _ in self.machine(schedule, store, signOuts) }
            for machine in machines {
                for user in ["alice", "bob"] {
                    _ = try await machine.orders.request(key: .init(user, 1))
                    _ = try await machine.profiles.request(key: user)
                    _ = try await machine.sessions.run(user) { .output($0) }
                }
            }
            let waiting = Task(executorPreference: schedule) {
                try await machines[1].orders.request(key: .init("alice", 2))
            }
            try await schedule.clock.sleep(for: .milliseconds(50))
            signOuts.withLock { $0 = 1 }
            await machines[0].sessions.signOut("alice")
            try await schedule.clock.sleep(for: .milliseconds(1))
            do {
                let order = try await waiting.value
                try expect(false, "a request got \(order)")
            } catch MuxError.sessionEnded {}
            for machine in machines {
                try expect(machine.sessions.token(of: "alice") == nil, "a token is left")
                for id in 1...2 {
                    try expect(machine.orders.cachedValue(key: .init("alice", id)) == nil, "an order is left")
                }
                try expect(machine.profiles.cachedValue(key: "alice") == nil, "a profile is left")
                try expect(machine.sessions.token(of: "bob") == 0, "another user lost the token")
                try expect(machine.orders.cachedValue(key: .init("bob", 1)) == "1 of bob in 0")
                for id in 1...2 {
                    let order = try await machine.orders.request(key: .init("alice", id))
                    try expect(order == "\(id) of alice in 1", order)
                }
            }
            // A sign-out of all users also takes effect on all machines.
            await machines[0].repository.clearAll()
            try await schedule.clock.sleep(for: .seconds(1))
            for machine in machines { try expect(machine.sessions.count == 0) }
        }
    }

    @Test func `FL-07 another machine finds a user with a custom key text`() async throws {
        try await SeededExecutor.explore(5) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let machines = (0..<2).map { _ in
                MuxSessions<Member, Int>(repository: self.repository(schedule, store)) { _, _ in .updatedDependency(1) }
            }
            for number in 0..<300 { _ = try await machines[1].run(Member(number: number)) { .output($0) } }
            await machines[0].signOut(Member(number: 7))
            try await schedule.clock.sleep(for: .seconds(1))
            try expect(machines[1].token(of: Member(number: 7)) == nil)
            try expect(machines[1].count == 299)
        }
    }

    @Test func `FL-07 another machine finds a user of whom it only has values`() async throws {
        try await SeededExecutor.explore(5) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            var policy = MuxPolicy.tokens
            policy.maximumCount = 0
            let machines = (0..<2).map { _ in
                MuxSessions<Member, Int>(policy: policy, repository: self.repository(schedule, store)) { _, _ in
                    .updatedDependency(1)
                }
            }
            let profiles = machines[1].makeMap { (user: Member, _) in user.number }
            let orders = machines[1].makeMap { (user: Member, id: Int, _) in id }
            for number in 0..<300 {
                _ = try await profiles.request(key: Member(number: number))
                _ = try await orders.request(key: .init(Member(number: number + 300), 1))
            }
            for number in [7, 307] { await machines[0].signOut(Member(number: number)) }
            try await schedule.clock.sleep(for: .seconds(1))
            for number in 0..<300 {
                try expect((profiles.cachedValue(key: Member(number: number)) == nil) == (number == 7), "\(number)")
                let order = orders.cachedValue(key: .init(Member(number: number + 300), 1))
                try expect((order == nil) == (number == 7), "\(number)")
            }
        }
    }

    @Test func `FL-07 a sign-out does not end sessions with another name or another user's text`() async throws {
        try await SeededExecutor.explore(5) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            func sessions(_ name: String) -> MuxSessions<String, Int> {
                var policy = MuxPolicy.tokens
                policy.name = name
                let repository = self.repository(schedule, store)
                return MuxSessions(policy: policy, repository: repository) { _, _ in .updatedDependency(1) }
            }
            let (first, second, third) = (sessions("a"), sessions("a/b"), sessions("a"))
            second.set(2, for: "x")
            third.set(3, for: "e\u{301}")
            for user in ["b/x", "\u{e9}"] { await first.signOut(user) }
            try await schedule.clock.sleep(for: .seconds(1))
            try expect(second.token(of: "x") == 2 && third.token(of: "e\u{301}") == 3)
        }
    }

    enum Missed: CaseIterable {
        case user, all, unknown
    }

    @Test(arguments: Missed.allCases)
    func `FL-07 a sign-out on another machine also removes values that are not shared`(missed: Missed) async throws {
        try await SeededExecutor.explore(5) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let fetches = Locked(0)
            let connections = (0..<2).map { _ in store.connection() }
            let machines = connections.map { connection in
                MuxSessions<String, Int>(repository: self.repository(schedule, connection)) { _, _ in
                    .updatedDependency(1)
                }
            }
            let profiles = machines[1].makeMap { (_: String, _) in fetches.next() }
            try expect(try await profiles.request(key: "alice") == 1)
            if missed == .unknown { connections[1].isCut = true }
            if missed == .all {
                await machines[0].repository.clearAll()
            } else {
                await machines[0].signOut("alice")
            }
            connections[1].isCut = false
            try await schedule.clock.sleep(for: .seconds(1))
            try expect(profiles.cachedValue(key: "alice") == nil, "a value of before is left as a fallback")
            try expect(try await profiles.request(key: "alice") == 2)
        }
    }

    @Test func `FL-07 a value from before a sign-out is not put into a store that lost all entries`() async throws {
        try await SeededExecutor.explore(5) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let fetches = Locked(0)
            let connections = (0..<2).map { _ in store.connection() }
            let maps = connections.map { connection in
                let repository = self.repository(schedule, connection)
                let sessions = MuxSessions<String, Int>(repository: repository) { _, _ in .updatedDependency(1) }
                return (sessions, sessions.makeMap(cacheKey: "Profiles") { (_: String, _) in fetches.next() })
            }
            try expect(try await maps[1].1.request(key: "alice") == 1)
            connections[1].isCut = true
            await maps[0].0.signOut("alice")
            store.loseEverything()
            connections[1].isCut = false
            try await schedule.clock.sleep(for: .seconds(1))
            for (_, map) in maps.reversed() {
                try expect(try await map.request(key: "alice") == 2, "a value of before was put again")
            }
        }
    }

    @Test func `FL-07 a sign-out by text finds users of any type, or finds no user`() async throws {
        try await SeededExecutor.explore(2) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            var policy = MuxPolicy.tokens
            policy.name = "users"
            let repositories = (0..<2).map { _ in self.repository(schedule, store) }
            let initials = MuxSessions<Character, Int>(policy: policy, repository: repositories[0]) { _, _ in
                .updatedDependency(1)
            }
            let names = MuxSessions<String, Int>(policy: policy, repository: repositories[1]) { _, _ in
                .updatedDependency(1)
            }
            for initial in ["a", "b"] as [Character] { initials.set(1, for: initial) }
            for name in ["", "a", "alice"] { await names.signOut(name) }
            try await schedule.clock.sleep(for: .seconds(1))
            try expect(initials.token(of: "a") == nil && initials.token(of: "b") == 1)
        }
    }

    @Test func `FL-07 a fetch overtaken by a sign-out of all on another machine returns no value`() async throws {
        try await SeededExecutor.explore(20) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let machines = (0..<2).map { _ in self.machine(schedule, store, Locked(0)) }
            let waiting = Task(executorPreference: schedule) {
                try await machines[1].orders.request(key: .init("alice", 2))
            }
            try await schedule.clock.sleep(for: .milliseconds(50))
            await machines[0].repository.clearAll()
            do {
                let order = try await waiting.value
                try expect(false, "a request got \(order)")
            } catch MuxError.sessionEnded {}
            try expect(machines[1].orders.cachedValue(key: .init("alice", 2)) == nil)
        }
    }

    @Test(arguments: [true, false])
    func `FL-07 a machine that may have missed a sign-out does not use its tokens again`(updates: Bool) async throws {
        try await SeededExecutor.explore(5) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let asked = Locked(0)
            let connection = store.connection()
            var policy = MuxPolicy.tokens
            policy.isSilenceable = { _ in true }
            let sessions = MuxSessions<String, Int>(
                policy: policy,
                repository: self.repository(schedule, connection)
            ) { _, former in
                let number = asked.next()
                guard number == 1 || updates, former == nil else { throw Away() }
                return .updatedDependency(number)
            }
            try expect(try await sessions.run("alice") { .output($0) } == 1)
            connection.isCut = true
            connection.isCut = false
            try await schedule.clock.sleep(for: .seconds(1))
            let token = try? await sessions.run("alice") { .output($0) }
            try expect(token == (updates ? 2 : nil), "a token from before the cut was used")
        }
    }

    private struct Away: Error {}

    @Test func `FL-07 no order of events on machines serves a value from before a completed sign-out`()
        async throws
    {
        try await SeededExecutor.explore(50) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let (begun, ended) = (Locked(0), Locked(0))
            let machines = (0..<3).map { _ in self.machine(schedule, store, begun) }
            try await withThrowingTaskGroup(of: Void.self) { group in
                for machine in machines {
                    for _ in 0..<2 {
                        group.addTask {
                            for _ in 0..<4 {
                                try await schedule.clock.sleep(for: .milliseconds(schedule.draw(0..<200)))
                                let since = ended.withLock { $0 }
                                let id = schedule.draw(0..<2)
                                guard let text = try? await machine.orders.request(key: .init("alice", id)) else {
                                    continue
                                }
                                let session = Int(text.split(separator: " ").last ?? "") ?? -1
                                try expect(session >= since, "\(text) after \(since) sign-outs")
                            }
                        }
                    }
                }
                group.addTask {
                    for _ in 0..<3 {
                        try await schedule.clock.sleep(for: .milliseconds(schedule.draw(0..<300)))
                        _ = begun.next()
                        await machines[schedule.draw(0..<3)].sessions.signOut("alice")
                        // Until all machines have received the sign-out.
                        try await schedule.clock.sleep(for: .milliseconds(1))
                        _ = ended.next()
                    }
                }
                try await group.waitForAll()
            }
        }
    }
}
