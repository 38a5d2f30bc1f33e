import Foundation
import MuxKit

/// The sessions of many users in one object.
enum SessionsGroup {
    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        let memory = self.memory(group, 100_000)
        let (call, hit) = try await self.calls(group, effort)
        return [memory, call, hit, try await self.signOut(group, effort)]
    }

    private static func users(_ count: Int) -> [String] { (0..<count).map { "user \($0)" } }

    private struct Token: ExpiringDependency {
        var number = 1
        var expiry: Date? = Date(timeIntervalSinceNow: 3_600)
    }

    private static func sessions(_ count: Int) -> MuxSessions<String, Token> {
        var policy = MuxPolicy.tokens
        policy.maximumCount = count
        return MuxSessions(policy: policy, repository: MuxRepository(store: .none)) { _, _ in
            .updatedDependency(Token())
        }
    }

    private static func values(_ sessions: MuxSessions<String, Token>, _ count: Int)
        -> MultiplexerMap<UserKey<String, Int>, Int>
    {
        sessions.makeMap(policy: MuxPolicy(maximumCount: count)) { (_: String, key: Int, _: Token) in key }
    }

    /// The memory of each user: an expiring token, a value, and their keys.
    private static func memory(_ group: String, _ count: Int) -> Row {
        let users = self.users(count)
        let sessions = self.sessions(count)
        let values = self.values(sessions, count)
        let growth = MemoryGroup.growth {
            for user in users {
                sessions.set(Token(), for: user)
                values.store(1, key: .init(user, 1))
            }
        }
        let repositories = self.repositories(1_000)
        let bytes = growth.map { Double($0) / Double(count) }
        return Row(
            group,
            "a user of 100,000, with a token and a value",
            unit: .bytes,
            figure: bytes,
            instead: repositories.map {
                let name = "a repository, a runner and a multiplexer each"
                return Row.Reference(name: name, value: $0, ratio: (bytes ?? .nan) / $0)
            },
            goals: [.atMost(300)]
        )
    }

    /// The bytes per user if every user has a separate repository, runner and multiplexer.
    private static func repositories(_ count: Int) -> Double? {
        var kept: [any Sendable] = []
        let growth = MemoryGroup.growth {
            for number in 0..<count {
                let repository = MuxRepository(store: .none)
                let runner = DependentRunner<Int>(1) { _ in .updatedDependency(1) }
                let value = Multiplexer<Int>(dependency: runner, repository: repository) { $0 }
                value.store(number)
                kept.append((repository, runner, value))
            }
        }
        consume(kept)
        return growth.map { Double($0) / Double(count) }
    }

    /// Compares a call with a valid token with a call of a runner, and a hit with a hit of a map without
    /// users.
    private static func calls(_ group: String, _ effort: Effort) async throws -> (call: Row, hit: Row) {
        let users = self.users(1_024)
        let sessions = self.sessions(1_024)
        let values = self.values(sessions, 1_024)
        let runner = DependentRunner<Int>(1) { _ in .updateFailed }
        let map = MultiplexerMap<UserKey<String, Int>, Int>(repository: MuxRepository(store: .none)) { $0.key }
        for user in users {
            sessions.set(Token(), for: user)
            _ = try await values.request(key: .init(user, 1))
            _ = try await map.request(key: .init(user, 1))
        }
        var contest = Contest(rounds: effort.rounds(15))
        contest.add(repeating: 1_000) { count in
            for _ in 0..<count { consume(try await runner.run { .output($0) }) }
        }
        contest.add(repeating: 1_000) { count in
            for step in 0..<count { consume(try await sessions.run(users[step & 1_023]) { .output($0.number) }) }
        }
        contest.add(repeating: 1_000) { count in
            for step in 0..<count { consume(try await map.request(key: .init(users[step & 1_023], 1))) }
        }
        contest.add(repeating: 1_000) { count in
            for step in 0..<count { consume(try await values.request(key: .init(users[step & 1_023], 1))) }
        }
        let outcome = try await contest.play()
        return (
            Row(
                group,
                "a call with a user's good token",
                outcome,
                figure: 1,
                limit: ("a runner with a single token", 0)
            ),
            Row(
                group,
                "a user's fresh value",
                outcome,
                figure: 3,
                limit: ("a map without users", 2),
                goals: [.timesLimit(1.2)]
            )
        )
    }

    /// The sign-out of a user with ten values, among 1,000 users and among 100,000.
    private static func signOut(_ group: String, _ effort: Effort) async throws -> Row {
        var contest = Contest(rounds: effort.rounds(15))
        for count in [1_000, 100_000] {
            let users = self.users(count)
            let sessions = self.sessions(count)
            let values = self.values(sessions, count * 10)
            func signIn(_ user: String) {
                sessions.set(Token(), for: user)
                for key in 0..<10 { values.store(key, key: .init(user, key)) }
            }
            for user in users { signIn(user) }
            contest.add {
                let leaving = users.prefix(500)
                let time = await Contest.nanoseconds { for user in leaving { await sessions.signOut(user) } }
                for user in leaving { signIn(user) }
                return time / Double(leaving.count)
            }
        }
        return Row(
            group,
            "the sign-out of one of 100,000, with ten values",
            try await contest.play(),
            figure: 1,
            limit: ("of 1,000", 0),
            goals: [.timesLimit(3)]
        )
    }
}
