import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct MuxSessionsTests {
    /// A token that a server knows by its number.
    private struct Token: Hashable, ExpiringDependency {
        var user: String
        var number: Int
        var expiry: Date?
    }

    private struct Refused: BadDependencyError {}

    /// A server of tokens and values.
    private final class Backend: Sendable {
        private struct State {
            var updates: [String: Int] = [:]
            var fetches = 0
            var revoked: Set<Token> = []
            var replaced: [Token?] = []
        }

        private let state = Locked(State())
        private let lifetime: Duration?
        private let now: @Sendable () -> Date

        init(lifetime: Duration? = nil, now: @escaping @Sendable () -> Date = { Date() }) {
            self.lifetime = lifetime
            self.now = now
        }

        func updates(of user: String) -> Int { self.state.withLock { $0.updates[user] ?? 0 } }
        var fetches: Int { self.state.withLock { $0.fetches } }
        var replaced: [Token?] { self.state.withLock { $0.replaced } }

        func token(of user: String, insteadOf former: Token?) -> Token {
            let expiry = self.lifetime.map { self.now().addingTimeInterval(Double($0.components.seconds)) }
            return self.state.withLock { state in
                state.updates[user, default: 0] += 1
                state.replaced.append(former)
                return Token(user: user, number: state.updates[user] ?? 0, expiry: expiry)
            }
        }

        func revoke(_ token: Token?) { self.state.withLock { state in if let token { state.revoked.insert(token) } } }

        func value(_ name: String, _ token: Token) throws -> String {
            try self.state.withLock { state in
                state.fetches += 1
                if state.revoked.contains(token) { throw Refused() }
                return "\(name) of \(token.user) \(token.number)"
            }
        }
    }

    private typealias Sessions = MuxSessions<String, Token>

    private func sessions(_ world: World, _ backend: Backend, _ policy: MuxPolicy = .tokens) -> Sessions {
        Sessions(policy: policy, repository: world.repository) { user, former in
            .updatedDependency(backend.token(of: user, insteadOf: former))
        }
    }

    // MARK: - Tokens and values

    @Test func `FL-07 each user has a token and values, each fetched once for all callers`() async throws {
        let (world, backend) = (World(), Backend())
        let sessions = self.sessions(world, backend)
        let profiles = sessions.makeMap { user, token in try backend.value("profile", token) }
        let orders = sessions.makeMap { (user: String, id: Int, token: Token) in try backend.value("order \(id)", token)
        }

        let texts = try await withThrowingTaskGroup(of: String.self) { group in
            for user in ["alice", "bob"] {
                for _ in 0..<20 {
                    group.addTask { try await profiles.request(key: user) }
                    group.addTask { try await orders.request(key: .init(user, 7)) }
                }
            }
            return try await group.reduce(into: Set<String>()) { $0.insert($1) }
        }

        #expect(
            texts == ["profile of alice 1", "profile of bob 1", "order 7 of alice 1", "order 7 of bob 1"]
        )
        #expect(backend.updates(of: "alice") == 1 && backend.updates(of: "bob") == 1)
        #expect(backend.fetches == 4)
        #expect(sessions.count == 2)
        #expect(sessions.token(of: "alice")?.number == 1 && sessions.token(of: "carol") == nil)
    }

    @Test func `FL-07 a refused token is renewed once for all tasks that refuse the token`() async throws {
        let (world, backend) = (World(), Backend())
        let sessions = self.sessions(world, backend)
        let orders = sessions.makeMap { (user: String, id: Int, token: Token) in try backend.value("order \(id)", token)
        }
        _ = try await orders.request(key: .init("alice", 0))
        backend.revoke(sessions.token(of: "alice"))

        let texts = try await withThrowingTaskGroup(of: String.self) { group in
            for id in 1...20 { group.addTask { try await orders.request(key: .init("alice", id)) } }
            return try await group.reduce(into: Set<String>()) { $0.insert($1) }
        }

        #expect(texts == Set((1...20).map { "order \($0) of alice 2" }))
        #expect(backend.updates(of: "alice") == 2)
        #expect(backend.replaced.last??.number == 1, "the update did not get the refused token")
    }

    @Test func `FL-07 a task that also refuses the new token ends with an error, and the token stays`() async throws {
        let (world, backend) = (World(), Backend())
        let sessions = self.sessions(world, backend)
        let error = await #expect(throws: RunnerError.self) {
            try await sessions.run("alice") { _ in throw Refused() } as Int
        }
        #expect(error?.code == .tooManyUpdates)
        #expect(backend.updates(of: "alice") == 2)
        #expect(try await sessions.run("alice") { .output($0.number) } == 2)
    }

    @Test func `FL-07 a refusal during a renewal uses the renewed token`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let sessions = MuxSessions<String, Int>(repository: world.repository) { _, _ in
            .updatedDependency(try await gate.pass())
        }
        sessions.set(1, for: "alice")
        let first = Task { try await sessions.run("alice") { $0 == 1 ? .badDependency : .output($0) } }
        await gate.waitForCall(1)
        // Uses the same token, which is already refused.
        let second = Task { try await sessions.run("alice") { $0 == 1 ? .badDependency : .output($0) } }
        await self.waitForCallers(2, sessions)
        gate.open(1, returning: 2)
        #expect(try await first.value == 2)
        #expect(try await second.value == 2)
        #expect(gate.callCount == 1)
    }

    private func waitForCallers<Token>(_ count: Int, _ sessions: MuxSessions<String, Token>) async {
        let end = ContinuousClock.now + .seconds(60)
        while sessions.occupancy.waiters < count, .now < end { await Task.yield() }
    }

    @Test func `FL-07 a token with an expiry is renewed in a call's background and used until it expires`() async throws
    {
        let world = World()
        let backend = Backend(lifetime: .seconds(100), now: world.repository.wallTime)
        let sessions = self.sessions(world, backend)
        func number() async throws -> Int { try await sessions.run("alice") { .output($0.number) } }

        #expect(try await number() == 1)
        world.clock.advance(by: .seconds(69))
        #expect(try await number() == 1)
        #expect(backend.updates(of: "alice") == 1)
        world.clock.advance(by: .seconds(2))
        #expect(try await number() == 1, "the call waits for a renewal that it does not need")
        await world.events.wait(for: .fetched, count: 2)
        #expect(try await number() == 2)
        world.clock.advance(by: .seconds(101))
        #expect(try await number() == 3, "a token was used after its end")
    }

    @Test(arguments: [-10, 0, 1, 2]) func `FL-07 a token with a very short lifetime breaks no session`(seconds: Int)
        async throws
    {
        let world = World()
        let backend = Backend(lifetime: .seconds(seconds), now: world.repository.wallTime)
        let sessions = self.sessions(world, backend)
        for _ in 0..<100 { _ = try await sessions.run("alice") { .output($0.number) } }
        #expect(backend.updates(of: "alice") == 1)
    }

    @Test
    func `FL-07 a refused update is not repeated at once, unless a token is set or the user signs out`()
        async throws
    {
        let world = World()
        let asked = Locked(0)
        let sessions = MuxSessions<String, Int>(repository: world.repository) { _, _ in
            _ = asked.next()
            return .updateFailed
        }
        func code() async -> RunnerError.Code? {
            do {
                _ = try await sessions.run("alice") { .output($0) }
                return nil
            } catch {
                return (error as? RunnerError)?.code
            }
        }
        #expect(await code() == .updateFailed)
        #expect(await code() == .updateFailed)
        #expect(asked.withLock { $0 } == 1)
        await sessions.signOut("alice")
        #expect(await code() == .updateFailed)
        #expect(asked.withLock { $0 } == 2)
        sessions.set(3, for: "alice")
        #expect(try await sessions.run("alice") { .output($0) } == 3)
    }

    @Test func `FL-07 a refused update is tried again after a minute`() async throws {
        let world = World()
        let asked = Locked(0)
        let sessions = MuxSessions<String, Int>(repository: world.repository) { _, _ in
            asked.next() == 1 ? .updateFailed : .updatedDependency(2)
        }
        await #expect(throws: RunnerError.self) { try await sessions.run("alice") { .output($0) } }
        world.clock.advance(by: .seconds(59))
        await #expect(throws: RunnerError.self) { try await sessions.run("alice") { .output($0) } }
        #expect(asked.withLock { $0 } == 1)
        world.clock.advance(by: .seconds(2))
        #expect(try await sessions.run("alice") { .output($0) } == 2)
    }

    @Test func `FL-07 a renewed token is not replaced after a refusal until a task accepts it`()
        async throws
    {
        let world = World()
        let asked = Locked(0)
        let sessions = MuxSessions<String, Int>(repository: world.repository) { _, _ in .updatedDependency(asked.next())
        }
        func refuse() async {
            await #expect(throws: RunnerError.self) { try await sessions.run("alice") { _ in .badDependency } as Int }
        }
        for _ in 0..<10 { await refuse() }
        #expect(asked.withLock { $0 } == 2, "a task that refuses everything costs an update for each call")
        #expect(try await sessions.run("alice") { .output($0) } == 2)
        await refuse()
        #expect(asked.withLock { $0 } == 3)
        world.clock.advance(by: .seconds(31))
        await refuse()
        #expect(asked.withLock { $0 } == 4)
    }

    @Test func `FL-07 a set token is not used past its expiry, and an expired set token is renewed first`()
        async throws
    {
        let world = World()
        let backend = Backend(lifetime: .seconds(1_000), now: world.repository.wallTime)
        let gate = Gate<Void>()
        let sessions = MuxSessions<String, Token>(repository: world.repository) { user, former in
            try await gate.pass()
            return .updatedDependency(backend.token(of: user, insteadOf: former))
        }
        func token(_ rest: Double) -> Token {
            Token(user: "alice", number: 100, expiry: world.repository.wallTime().addingTimeInterval(rest))
        }
        // A token in its last 30 seconds is used during its renewal.
        sessions.set(token(10), for: "alice")
        #expect(try await sessions.run("alice") { .output($0.number) } == 100)
        await gate.waitForCall(1)
        world.clock.advance(by: .seconds(11))
        let late = Task { try await sessions.run("alice") { .output($0.number) } }
        await self.waitForCallers(1, sessions)
        gate.open(1)
        #expect(try await late.value == 1, "a token was used after its end")
        // Expired by the wall clock.
        sessions.set(token(-5), for: "alice")
        let first = Task { try await sessions.run("alice") { .output($0.number) } }
        await gate.waitForCall(2)
        gate.open(2)
        #expect(try await first.value == 2)
    }

    @Test func `FL-07 a token expired by the wall clock is used if its renewal fails but is not refused`()
        async throws
    {
        let world = World()
        let answer = Locked(UpdateResult<Token>?.none)
        let sessions = MuxSessions<String, Token>(repository: world.repository) { _, _ in
            guard let answer = answer.withLock({ $0 }) else { throw FetchFailed() }
            return answer
        }
        func token(_ rest: Double) -> Token {
            Token(user: "alice", number: 100, expiry: world.repository.wallTime().addingTimeInterval(rest))
        }
        func number() async throws -> Int { try await sessions.run("alice") { .output($0.number) } }
        sessions.set(token(-5), for: "alice")
        for _ in 0..<3 { #expect(try await number() == 100) }
        // A token whose expiry passes after it is set is not used.
        sessions.set(token(10), for: "alice")
        world.clock.advance(by: .seconds(11))
        await #expect(throws: FetchFailed.self) { try await number() }
        answer.withLock { $0 = .updateFailed }
        sessions.set(token(-5), for: "alice")
        await #expect(throws: RunnerError.self) { try await number() }
    }

    @Test(arguments: [(-5, false), (5, false), (500, false), (5, true), (500, true)])
    func `FL-07 calls that wait for a failing update use a newly set token of any remaining lifetime`(
        seconds: Int,
        isRefused: Bool
    ) async throws {
        let world = World()
        let gate = Gate<Void>()
        let sessions = MuxSessions<String, Token>(repository: world.repository) { _, _ in
            try await gate.pass()
            if isRefused { return .updateFailed }
            throw FetchFailed()
        }
        let call = Task { try await sessions.run("alice") { .output($0.number) } }
        await gate.waitForCall(1)
        let expiry = world.repository.wallTime().addingTimeInterval(Double(seconds))
        sessions.set(Token(user: "alice", number: 100, expiry: expiry), for: "alice")
        gate.openForGood(returning: ())
        #expect(try await call.value == 100)
    }

    @Test(arguments: [Duration.zero, .seconds(60)])
    func `FL-07 a token without an expiry is not used after the time to live`(timeToLive: Duration)
        async throws
    {
        let world = World()
        let asked = Locked(0)
        var policy = MuxPolicy.tokens
        policy.timeToLive = timeToLive
        let sessions = MuxSessions<String, Int>(policy: policy, repository: world.repository) { _, _ in
            let number = asked.next()
            if number == 2 { throw FetchFailed() }
            return .updatedDependency(number)
        }
        func number() async throws -> Int { try await sessions.run("alice") { .output($0) } }
        #expect(try await number() == 1)
        if timeToLive > .zero {
            world.clock.advance(by: timeToLive - .seconds(1))
            #expect(try await number() == 1)
        }
        world.clock.advance(by: .seconds(2))
        await #expect(throws: FetchFailed.self) { try await number() }
        #expect(try await number() == 3)
    }

    @Test func `FL-07 without early renewal a token is used until it expires, and not later`() async throws {
        let world = World()
        let backend = Backend(lifetime: .seconds(100), now: world.repository.wallTime)
        var policy = MuxPolicy.tokens
        policy.refreshAhead = nil
        let sessions = self.sessions(world, backend, policy)
        func number() async throws -> Int { try await sessions.run("alice") { .output($0.number) } }
        #expect(try await number() == 1)
        world.clock.advance(by: .seconds(99))
        #expect(try await number() == 1)
        world.clock.advance(by: .seconds(2))
        #expect(try await number() == 2)
    }

    @Test(arguments: [0, 100])
    func `FL-07 a slow task that refuses every token ends, also if no token is kept`(maximumCount: Int)
        async throws
    {
        let world = World()
        let asked = Locked(0)
        var policy = MuxPolicy.tokens
        policy.maximumCount = maximumCount
        let sessions = MuxSessions<String, Int>(policy: policy, repository: world.repository) { _, _ in
            .updatedDependency(asked.next())
        }
        let error = await #expect(throws: RunnerError.self) {
            try await sessions.run("alice") { _ -> RunResult<Int> in
                world.clock.advance(by: .seconds(60))
                return .badDependency
            }
        }
        #expect(error?.code == .tooManyUpdates)
        #expect(asked.withLock { $0 } == 2)
    }

    @Test func `FL-07 a user that is not equal to itself is an error`() async throws {
        let sessions = MuxSessions<Double, Int>(repository: World().repository) { _, _ in .updatedDependency(1) }
        sessions.set(1, for: .nan)
        await #expect(throws: MuxError.unusableKey) { try await sessions.run(.nan) { .output($0) } }
        await sessions.signOut(.nan)
        #expect(sessions.count == 0 && sessions.callingUserCount == 0)
    }

    @Test func `FL-07 the costs of tokens are bounded`() async throws {
        var policy = MuxPolicy.tokens
        policy.maximumCost = .init(10) { (token: String) in token.count }
        let sessions = MuxSessions<String, String>(policy: policy, repository: World().repository) { user, _ in
            .updatedDependency(user)
        }
        for user in ["aaaa", "bbbb", "cccc"] { _ = try await sessions.run(user) { .output($0) } }
        #expect(sessions.count == 2)
    }

    @Test func `FL-07 the next call repeats an update that threw`() async throws {
        let world = World()
        let update = ScriptedFetch<Int>([.failure(FetchFailed()), .value(1)])
        let sessions = MuxSessions<String, Int>(repository: world.repository) { _, _ in
            .updatedDependency(try await update())
        }
        await #expect(throws: FetchFailed.self) { try await sessions.run("alice") { .output($0) } }
        #expect(try await sessions.run("alice") { .output($0) } == 1)
    }

    @Test func `FL-07 a refused update stays refused when a task refuses the old token`() async throws {
        let world = World()
        let asked = Locked(0)
        let sessions = MuxSessions<String, Token>(repository: world.repository) { _, _ in
            _ = asked.next()
            return .updateFailed
        }
        let expiry = world.repository.wallTime().addingTimeInterval(20)
        sessions.set(Token(user: "alice", number: 1, expiry: expiry), for: "alice")
        // The renewal in the background of this call is refused.
        #expect(try await sessions.run("alice") { .output($0.number) } == 1)
        await world.events.wait(for: .fetchFailed, count: 1)
        let error = await #expect(throws: RunnerError.self) {
            try await sessions.run("alice") { _ in .badDependency } as Int
        }
        #expect(error?.code == .updateFailed)
        #expect(asked.withLock { $0 } == 1, "a refused update was asked for again")
    }

    @Test func `FL-07 a cancelled task does not run, although a valid token exists`() async throws {
        let sessions = MuxSessions<String, Int>(repository: World().repository) { _, _ in .updatedDependency(1) }
        sessions.set(1, for: "alice")
        let call = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            return try await sessions.run("alice") { .output($0) }
        }
        await #expect(throws: CancellationError.self) { try await call.value }
    }

    @Test func `FL-07 a running update does not overwrite a set token`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let sessions = MuxSessions<String, Int>(repository: world.repository) { _, _ in
            .updatedDependency(try await gate.pass())
        }
        let before = Task { try await sessions.run("alice") { .output($0) } }
        await gate.waitForCall(1)
        sessions.set(7, for: "alice")
        gate.fail(1, with: FetchFailed())
        #expect(try await before.value == 7)
        #expect(sessions.token(of: "alice") == 7)
    }

    // MARK: - Sign-outs

    @Test func `FL-07 a user's sign-out ends only that user's flights, in every map`() async throws {
        let world = World()
        let (gate, tokens) = (Gate<String>(), Gate<Int>())
        let sessions = MuxSessions<String, Int>(repository: world.repository) { user, _ in
            .updatedDependency(user == "dora" ? try await tokens.pass() : 1)
        }
        let profiles = sessions.makeMap { (user: String, _) in try await gate.pass() }
        let orders = sessions.makeMap { (user: String, id: Int, _) in try await gate.pass() }
        let ended = [
            Task { try await profiles.request(key: "alice") },
            Task { try await orders.request(key: .init("alice", 1)) },
            Task { try await orders.request(key: .init("alice", 2)) },
        ]
        let others = [
            Task { try await profiles.request(key: "bob") },
            Task { try await orders.request(key: .init("bob", 1)) },
        ]
        await gate.waitForCall(5)

        await sessions.signOut("alice")
        for task in ended { await #expect(throws: MuxError.sessionEnded) { try await task.value } }
        gate.openForGood(returning: "new")
        for task in others { #expect(try await task.value == "new") }
        #expect(profiles.cachedValue(key: "alice") == nil && orders.cachedValue(key: .init("alice", 1)) == nil)

        // Calls that wait for a token end, too.
        let waiting = [
            Task { try await profiles.request(key: "dora") },
            Task { try await sessions.run("dora") { .output("\($0)") } },
        ]
        await tokens.waitForCall(1)
        await self.waitForCallers(2, sessions)
        await sessions.signOut("dora")
        for task in waiting { await #expect(throws: MuxError.sessionEnded) { try await task.value } }
        #expect(sessions.token(of: "dora") == nil)
    }

    @Test func `FL-07 a user's sign-out removes all data of the user's session and no data of others`() async throws {
        let (world, backend) = (World(), Backend())
        let sessions = self.sessions(world, backend)
        let policy = MuxPolicy(remembersFailure: { $0 is FetchFailed ? .seconds(60) : nil })
        let orders = sessions.makeMap(policy: policy) { (user: String, id: Int, token: Token) in
            if id == 13 { throw FetchFailed() }
            return try backend.value("order \(id)", token)
        }
        for user in ["alice", "bob"] {
            for id in 0..<30 { _ = try? await orders.request(key: .init(user, id)) }
        }
        #expect(orders.failureCount == 2)
        let watched = Locked<[String?]>([])
        let values = orders.values(key: .init("alice", 1))
        let watcher = Task {
            for await entry in values {
                watched.withLock { $0.append(entry?.value) }
                if entry == nil { return }
            }
        }

        await sessions.signOut("alice")

        await watcher.value
        #expect(watched.withLock { $0.last ?? "" } == nil)
        #expect(orders.failureCount == 1)
        for id in 0..<30 {
            #expect(orders.cachedValue(key: .init("alice", id)) == nil)
            #expect(id == 13 || orders.cachedValue(key: .init("bob", id)) == "order \(id) of bob 1")
        }
        #expect(sessions.token(of: "alice") == nil && sessions.token(of: "bob")?.number == 1)
        #expect(try await orders.request(key: .init("alice", 1)) == "order 1 of alice 2")
        #expect(backend.replaced.allSatisfy { $0 == nil }, "an update got a token of a session that has ended")
    }

    /// A call whose task refuses its first token when the gate opens, and accepts the next token.
    private func refusing(_ gate: Gate<Void>, _ sessions: MuxSessions<String, Int>) -> Task<Int, any Error> {
        let isFirst = Locked(true)
        return Task {
            try await sessions.run("alice") { token in
                guard
                    isFirst.withLock({ isFirst in
                        defer { isFirst = false }
                        return isFirst
                    })
                else { return .output(token) }
                try await gate.pass()
                return .badDependency
            }
        }
    }

    enum Loss: CaseIterable {
        case none, renewed, replaced, evicted, notKept, followed
    }

    @Test(arguments: Loss.allCases)
    func `FL-07 a task that refuses its token after the sign-out ends, and causes no update`(loss: Loss) async throws {
        let world = World()
        let (asked, gate) = (Locked(0), Gate<Void>())
        var policy = MuxPolicy.tokens
        if loss == .notKept { policy.maximumCount = 0 }
        let sessions = MuxSessions<String, Int>(policy: policy, repository: world.repository) { _, _ in
            .updatedDependency(asked.next())
        }
        let call = self.refusing(gate, sessions)
        await gate.waitForCall(1)
        // Replaces or removes the user's token in some cases; the call keeps the old token.
        switch loss {
        case .none, .notKept, .followed: break
        case .renewed: #expect(try await sessions.run("alice") { $0 == 1 ? .badDependency : .output($0) } == 2)
        case .replaced: sessions.set(50, for: "alice")
        case .evicted: world.repository.clearMemory()
        }
        let before = asked.withLock { $0 }

        await sessions.signOut("alice")
        if loss == .followed { sessions.set(100, for: "alice") }
        gate.open(1)

        await #expect(throws: MuxError.sessionEnded) { try await call.value }
        #expect(asked.withLock { $0 } == before, "an update for a session that has ended")
        #expect(sessions.token(of: "alice") == (loss == .followed ? 100 : nil))
        #expect(sessions.callingUserCount == 0)
    }

    @Test func `FL-07 a task that refuses its second token after the sign-out ends with sessionEnded`() async throws {
        let world = World()
        let (asked, refusals, gate) = (Locked(0), Locked(0), Gate<Void>())
        let sessions = MuxSessions<String, Int>(repository: world.repository) { _, _ in .updatedDependency(asked.next())
        }
        let call = Task {
            try await sessions.run("alice") { _ -> RunResult<Int> in
                if refusals.next() == 2 { try await gate.pass() }
                return .badDependency
            }
        }
        await gate.waitForCall(1)
        await sessions.signOut("alice")
        gate.open(1)
        await #expect(throws: MuxError.sessionEnded) { try await call.value }
    }

    @Test func `FL-07 a task that refuses its token after the sign-out of all users ends`() async throws {
        let world = World()
        let (asked, gate) = (Locked(0), Gate<Void>())
        let sessions = MuxSessions<String, Int>(repository: world.repository) { _, _ in .updatedDependency(asked.next())
        }
        let call = self.refusing(gate, sessions)
        await gate.waitForCall(1)
        await world.repository.clearAll()
        gate.open(1)
        await #expect(throws: MuxError.sessionEnded) { try await call.value }
        #expect(asked.withLock { $0 } == 1)
    }

    @Test func `FL-07 no multiplexer remembers the end of a session as a failure`() async throws {
        let gate = Gate<String>()
        let (world, backend) = (World(), Backend())
        let sessions = self.sessions(world, backend)
        let names = MultiplexerMap<String, String>(
            policy: MuxPolicy(remembersFailure: { _ in .seconds(60) }),
            repository: MuxRepository(store: .none)
        ) { user in
            try await sessions.run(user) { _ in
                _ = try await gate.pass()
                return .badDependency
            }
        }
        let call = Task { try await names.request(key: "alice") }
        await gate.waitForCall(1)
        await sessions.signOut("alice")
        gate.open(1, returning: "")
        await #expect(throws: MuxError.sessionEnded) { try await call.value }
        #expect(names.failureCount == 0)
    }

    @Test func `FL-07 a caller that learns of a sign-out of all users can sign in and keep the token`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let sessions = MuxSessions<String, Int>(repository: world.repository) { _, _ in
            .updatedDependency(try await gate.pass())
        }
        let waiting = Task { try await sessions.run("alice") { .output($0) } }
        await gate.waitForCall(1)
        let told = Task {
            await #expect(throws: MuxError.sessionEnded) { try await waiting.value }
            sessions.set(7, for: "alice")
        }
        let bystander = Bystander(waitingFor: told)
        world.repository.attach(bystander)
        await world.repository.clearAll()
        #expect(sessions.token(of: "alice") == 7)
        withExtendedLifetime(bystander) {}
    }

    /// Delays the end of a sign-out until a task has ended.
    private final class Bystander: SessionParticipant {
        private let task: Task<Void, Never>

        init(waitingFor task: Task<Void, Never>) { self.task = task }

        func sessionEnded(sendsEvent: Bool) -> @Sendable () -> Void { {} }
        func removeTraces() async throws { await self.task.value }
    }

    @Test func `FL-07 a map that is created during a sign-out keeps no earlier value`() async throws {
        let world = World()
        let sessions = MuxSessions<String, Int>(repository: world.repository) { _, _ in .updatedDependency(1) }
        let made = Locked(MultiplexerMap<String, Int>?.none)
        let latecomer = Latecomer {
            let map = sessions.makeMap { (_: String, token) in token }
            map.store(1, key: "alice")
            made.withLock { $0 = map }
        }
        world.repository.attach(latecomer)
        await sessions.signOut("alice")
        let map = try #require(made.withLock { $0 })
        #expect(map.cachedValue(key: "alice") == nil)
        withExtendedLifetime(latecomer) {}
    }

    /// Runs a closure when a user's session ends.
    private final class Latecomer: SessionParticipant {
        private let acts: @Sendable () -> Void

        init(acts: @escaping @Sendable () -> Void) { self.acts = acts }

        func sessionEnded(sendsEvent: Bool) -> @Sendable () -> Void { {} }

        func sessionEnded(of user: EndedUser) -> (@Sendable () -> Void)? {
            self.acts()
            return nil
        }
    }

    @Test func `FL-07 a sign-out of the repository ends the sessions of all users`() async throws {
        let (world, backend) = (World(), Backend())
        let sessions = self.sessions(world, backend)
        let profiles = sessions.makeMap { user, token in try backend.value("profile", token) }
        for user in ["alice", "bob"] { _ = try await profiles.request(key: user) }
        await world.repository.clearAll()
        #expect(sessions.count == 0 && profiles.cachedValue(key: "alice") == nil)
        #expect(try await profiles.request(key: "alice") == "profile of alice 2")
    }

    @Test func `FL-07 no order of events serves a value from before a completed sign-out`() async throws {
        try await SeededExecutor.explore(25) { schedule in
            let repository = MuxRepository(store: MemoryStore(), clock: schedule.clock)
            // The numbers of begun and of completed sign-outs of each user.
            let begun = Locked(["alice": 0, "bob": 0])
            let ended = Locked(["alice": 0, "bob": 0])
            @Sendable func signOuts(_ user: String) -> Int { begun.withLock { $0[user] ?? 0 } }
            @Sendable func pause() async throws {
                try await schedule.clock.sleep(for: .milliseconds(schedule.draw(0..<4)))
            }
            let sessions = MuxSessions<String, Int>(repository: repository) { user, former in
                let session = signOuts(user)
                try await pause()
                return .updatedDependency(session)
            }
            let orders = sessions.makeMap { (user: String, id: Int, token: Int) in
                let session = signOuts(user)
                try await pause()
                if schedule.draw(0..<5) == 0 { throw Refused() }
                return min(session, token)
            }
            try await withThrowingTaskGroup(of: Void.self) { group in
                for user in ["alice", "bob"] {
                    for _ in 0..<4 {
                        group.addTask {
                            for _ in 0..<4 {
                                try await pause()
                                let since = ended.withLock { $0[user] ?? 0 }
                                let key = UserKey(user, schedule.draw(0..<2))
                                guard let session = try? await orders.request(key: key) else { continue }
                                try expect(session >= since, "a value of session \(session) after \(since) sign-outs")
                            }
                        }
                    }
                    group.addTask {
                        for _ in 0..<3 {
                            try await pause()
                            begun.withLock { $0[user]? += 1 }
                            await sessions.signOut(user)
                            ended.withLock { $0[user]? += 1 }
                        }
                    }
                }
                try await group.waitForAll()
            }
            // No data of an ended session is kept.
            for user in ["alice", "bob"] {
                for id in 0..<2 {
                    if let session = orders.cachedValue(key: .init(user, id)) { try expect(session == 3, "\(session)") }
                }
                if let session = sessions.token(of: user) { try expect(session == 3, "\(session)") }
            }
            try await schedule.clock.sleep(for: .seconds(10))
            try expect(sessions.callingUserCount == 0)
            try expect(sessions.occupancy == (0, 0, 0) && orders.occupancy == (0, 0, 0), "\(sessions.occupancy)")
        }
    }

    @Test func `FL-07 on all processors, values from before a completed sign-out are not served`() async throws {
        let repository = MuxRepository(store: .none)
        let (begun, ended) = (Locked(0), Locked(0))
        let sessions = MuxSessions<String, Int>(repository: repository) { _, _ in
            .updatedDependency(begun.withLock { $0 })
        }
        let orders = sessions.makeMap { (_: String, _: Int, token: Int) in
            let session = begun.withLock { $0 }
            await Task.yield()
            return min(session, token)
        }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for worker in 0..<4 {
                group.addTask {
                    for step in 0..<2_000 {
                        let since = ended.withLock { $0 }
                        let key = UserKey("alice", (worker + step) % 3)
                        guard let session = try? await orders.request(key: key) else { continue }
                        try #require(session >= since, "a value of session \(session) after \(since) sign-outs")
                    }
                }
            }
            group.addTask {
                for _ in 0..<500 {
                    _ = begun.next()
                    await sessions.signOut("alice")
                    _ = ended.next()
                    await Task.yield()
                }
            }
            try await group.waitForAll()
        }
        #expect(sessions.callingUserCount == 0)
    }

    // MARK: - Memory

    @Test func `FL-07 idle users are evicted`() async throws {
        let (world, backend) = (World(), Backend())
        var policy = MuxPolicy.tokens
        policy.maximumCount = 100
        let sessions = self.sessions(world, backend, policy)
        let orders = sessions.makeMap(policy: MuxPolicy(maximumCount: 50)) { (user: String, id: Int, token: Token) in
            try backend.value("order \(id)", token)
        }
        for user in 0..<1_000 {
            _ = try await orders.request(key: .init("\(user)", 1))
            _ = try await orders.request(key: .init("always here", 1))
        }
        #expect(sessions.count == 100)
        #expect(backend.updates(of: "always here") == 1)
        // An idle user comes back.
        #expect(try await orders.request(key: .init("1", 1)) == "order 1 of 1 2")
    }

    /// Collects inspectable objects.
    private final class Collector: Inspector {
        private let objects = Locked<[any Inspectable]>([])

        /// Ignores clocks, which have timers until the end of the test.
        func note(_ object: any Inspectable) {
            if !(object is VirtualClock) { self.objects.withLock { $0.append(object) } }
        }

        func note(faults: [String]) {}

        var faults: [String] {
            get async {
                var faults: [String] = []
                for object in self.objects.withLock({ $0 }) { faults += await object.faults() }
                return faults
            }
        }
    }

    @Test func `FL-07 after any operations on a map, each user's values are found by the user`() async throws {
        for seed in 0..<repetitions(40) {
            let collector = Collector()
            try await Inspection.$inspector.withValue(collector) { try await self.doesAnything(seed, collector) }
        }
    }

    private func doesAnything(_ seed: Int, _ collector: Collector) async throws {
        var random = SplitMix64(state: UInt64(seed))
        let (world, backend) = (World(), Backend())
        let sessions = self.sessions(world, backend)
        let policy = MuxPolicy(
            timeToLive: .seconds(5),
            staleIfError: .zero,
            remembersFailure: { _ in .seconds(5) },
            maximumCount: seed % 4 == 0 ? 0 : 12,
            maximumCost: Bool.random(using: &random) ? .init(60) { (text: String) in text.count } : nil
        )
        let orders = sessions.makeMap(policy: policy) { (user: String, id: Int, token: Token) in
            if id % 3 == 0 { throw FetchFailed() }
            return String(repeating: "x", count: id * 2)
        }
        for step in 0..<300 {
            let key = UserKey("\(Int.random(in: 0..<4, using: &random))", Int.random(in: 0..<10, using: &random))
            switch Int.random(in: 0..<12, using: &random) {
            case 0:
                await sessions.signOut(key.user)
                for id in 0..<10 { #expect(orders.cachedValue(key: .init(key.user, id)) == nil) }
            case 1: orders.refresh(key: key)
            case 2: orders.refresh()
            case 3: orders.clearMemory()
            case 4: await orders.clear(key: key)
            case 5: orders.store("stored by hand", key: key)
            case 6: world.clock.advance(by: .seconds([1, 2, 3, 200][Int.random(in: 0..<4, using: &random)]))
            case 7 where step % 50 == 0: await world.repository.clearAll()
            default: _ = try? await orders.request(key: key)
            }
            let faults = await collector.faults
            try #require(faults.isEmpty, "seed \(seed), step \(step): \(faults)")
        }
    }

    @Test func `FL-07 user keys are as distinct as the texts of their users and keys`() {
        let pairs = [("a", "b:c"), ("a:b", "c"), ("", "1:a"), ("1:a", ""), ("a", "1"), ("a1", ""), ("", "a1")]
        let keys = pairs.map { UserKey($0.0, $0.1) }
        #expect(Set(keys.map(\.keyText)).count == keys.count)
        #expect(Set(keys).count == keys.count)
        #expect(keys[0].user == "a" && keys[0].key == "b:c" && "\(keys[0])" == "a, b:c")
        // The texts are equal as Swift strings, and different for a server.
        #expect(UserKey("\u{e9}", 1) != UserKey("e\u{301}", 1))
        #expect(UserKey("a", "\u{e9}") != UserKey("a", "e\u{301}"))
    }
}
