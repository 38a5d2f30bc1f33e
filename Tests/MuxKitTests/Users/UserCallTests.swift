import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// The calls of a user around sign-outs, and users with equal hashes or similar texts.
@Suite(.standard)
struct UserCallTests {
    /// A user with the same hash as all other users.
    private struct Twin: MuxKey {
        var name: String
        var keyText: String { self.name }
        func hash(into hasher: inout Hasher) {}
    }

    /// A call that waits for the gate, then refuses its token once.
    private func call(_ gate: Gate<Void>, _ sessions: MuxSessions<String, Int>) -> Task<Int, any Error> {
        let runs = Locked(0)
        return Task {
            try await sessions.run("alice") { token in
                if runs.next() > 1 { return .output(token) }
                try await gate.pass()
                return .badDependency
            }
        }
    }

    @Test func `PT-01 the end of a call of an ended session does not affect calls of the next session`() async throws {
        let world = World()
        let (old, new) = (Gate<Void>(), Gate<Void>())
        let sessions = MuxSessions<String, Int>(repository: world.repository) { _, _ in .updatedDependency(1) }
        let former = self.call(old, sessions)
        await old.waitForCall(1)
        await sessions.signOut("alice")
        let present = self.call(new, sessions)
        await new.waitForCall(1)

        old.open(1)
        await #expect(throws: MuxError.sessionEnded) { try await former.value }

        #expect(sessions.callingUserCount == 1)
        await sessions.signOut("alice")
        new.open(1)
        await #expect(throws: MuxError.sessionEnded) { try await present.value }
        #expect(sessions.callingUserCount == 0)
    }

    @Test func `PT-01 a sign-out of all ends each call once, and no call of the next session`() async throws {
        let world = World()
        let (old, new) = (Gate<Void>(), Gate<Void>())
        let sessions = MuxSessions<String, Int>(repository: world.repository) { _, _ in .updatedDependency(1) }
        let former = self.call(old, sessions)
        await old.waitForCall(1)
        await world.repository.clearAll()
        let present = self.call(new, sessions)
        await new.waitForCall(1)
        old.open(1)
        await #expect(throws: MuxError.sessionEnded) { try await former.value }
        new.open(1)
        #expect(try await present.value == 1)
        #expect(sessions.callingUserCount == 0)
    }

    @Test func `PT-01 a sign-out affects one user, also if another user has the same hash`() async throws {
        let world = World()
        let gate = Gate<String>()
        let sessions = MuxSessions<Twin, Int>(repository: world.repository) { _, _ in .updatedDependency(1) }
        let orders = sessions.makeMap { (user: Twin, id: Int, _) in
            id == 0 ? try await gate.pass() : "\(id) of \(user.name)"
        }
        let (alice, bob) = (Twin(name: "alice"), Twin(name: "bob"))
        for user in [alice, bob] { for id in 1...3 { _ = try await orders.request(key: .init(user, id)) } }
        let waiting = Task { try await orders.request(key: .init(bob, 0)) }
        await gate.waitForCall(1)

        await sessions.signOut(alice)

        for id in 1...3 {
            #expect(orders.cachedValue(key: .init(alice, id)) == nil)
            #expect(orders.cachedValue(key: .init(bob, id)) == "\(id) of bob")
        }
        #expect(sessions.token(of: alice) == nil && sessions.token(of: bob) == 1)
        gate.open(1, returning: "0 of bob")
        #expect(try await waiting.value == "0 of bob")
    }

    @Test func `PT-01 after the removal of a key the next sign-out still finds the user's other keys`() async throws {
        let world = World()
        let sessions = MuxSessions<String, Int>(repository: world.repository) { _, _ in .updatedDependency(1) }
        let orders = sessions.makeMap { (user: String, id: Int, _) in "\(id) of \(user)" }
        for present in 1...40 {
            for id in 0..<present { _ = try await orders.request(key: .init("alice", id)) }
            // A key without a value, and all keys except the last key.
            await orders.clear(key: .init("alice", 99))
            for id in 0..<(present - 1) { await orders.clear(key: .init("alice", id)) }
            await orders.clear(key: .init("alice", 99))
            #expect(orders.cachedValue(key: .init("alice", present - 1)) != nil)
            await sessions.signOut("alice")
            #expect(orders.cachedValue(key: .init("alice", present - 1)) == nil, "\(present)")
        }
    }

    @Test func `PT-01 names and users whose joined texts are equal are distinct on other machines`() async throws {
        try await SeededExecutor.explore(5) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let machines = (0..<2).map { _ in MuxRepository.machine(schedule, sharing: store.connection()) }
            let sessions = machines.map { repository in
                ["a", "a/b"].map { name in
                    var policy = MuxPolicy.tokens
                    policy.name = name
                    return MuxSessions<String, Int>(policy: policy, repository: repository) { _, _ in
                        .updatedDependency(1)
                    }
                }
            }
            for machine in sessions {
                for (sessions, user) in zip(machine, ["b/c", "c"]) { _ = try await sessions.run(user) { .output($0) } }
            }
            let report = await sessions[0][0].signOut("b/c")
            try expect(report.isComplete, "\(report)")
            try await schedule.clock.sleep(for: .nanoseconds(1))
            try expect(sessions[1][0].token(of: "b/c") == nil, "the sign-out did not arrive")
            try expect(sessions[1][1].token(of: "c") == 1, "another user was signed out")
        }
    }

    @Test func `PT-01 values of users keep the tags of their names`() async throws {
        try await SeededExecutor.explore(5) { schedule in
            let store = MemorySharedStore(clock: schedule.clock)
            let repository = MuxRepository.machine(schedule, sharing: store.connection())
            let sessions = MuxSessions<String, Int>(repository: repository) { _, _ in .updatedDependency(1) }
            let fetches = Locked(0)
            let profiles = sessions.makeMap(cacheKey: .init("Profiles") { _ in ["city"] }) { user, _ in
                "\(user) \(fetches.next())"
            }
            _ = try await profiles.request(key: "alice")
            await repository.clear(tags: ["city"])
            let value = try await profiles.request(key: "alice")
            try expect(value == "alice 2", value)
        }
    }
}
