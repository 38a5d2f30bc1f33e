import Foundation
import MuxCompatibility
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct RunnerFeatureTests {
    private let clock = VirtualClock()
    private let events = EventTally()

    @Test func `A10 each call gets its own update count and elapsed time`() async throws {
        let runner = DependentRunner<Int>(0, policy: .init(maximumUpdatesPerWindow: nil), clock: self.clock)
        let seen = Locked<[String]>([])
        let gate = Gate<Void>()
        let looping = Task {
            try await runner.run { value, context -> RunResult<Int> in
                seen.withLock { $0.append("\(context.updates) \(context.elapsed)") }
                if value == 4 { try await gate.pass() }
                guard value == 4 else { throw BadDependency() }
                #expect(context.lastError is BadDependency)
                return .output(context.updates)
            } update: { failed, context in
                #expect(context.updates == (failed ?? 0) + 1)
                self.clock.advance(by: .seconds(1))
                return .updatedDependency((failed ?? 0) + 1)
            }
        }
        await gate.waitForCall(1)

        let fresh = try await runner.run { _, context -> RunResult<String> in
            .output("\(context.updates) \(context.elapsed) \(context.lastError == nil)")
        }

        #expect(fresh == "0 0.0 seconds true")
        gate.open()
        #expect(try await looping.value == 4)
        #expect(
            seen.withLock { $0 } == [
                "0 0.0 seconds", "1 1.0 seconds", "2 2.0 seconds", "3 3.0 seconds", "4 4.0 seconds",
            ]
        )
    }

    @Test func `CS-01 a task may return its output, and refuses the dependency by its error`() async throws {
        let runner = DependentRunner<Int>(1, clock: self.clock) { refused in
            .updatedDependency((refused ?? 0) + 1)
        }
        func page(_ token: Int) async throws -> String {
            guard token > 1 else { throw BadDependency() }
            return "page \(token)"
        }

        let output = try await runner.run { token in try await page(token) }
        // The output of a closure with a `RunResult` is the output of the result.
        let explicit = try await runner.run { token -> RunResult<Int> in .output(token) }
        let other: any DependencyRunner<Int> = runner
        let erased = try await other.run { token in try await page(token) }

        #expect(output == "page 2" && erased == "page 2")
        #expect(explicit == 2)
    }

    private struct Counting: DependentOperation {
        var timeout: Duration? = .seconds(60)

        func run(_ dependency: Int, _ context: RunnerPolicy.Call) async throws -> RunResult<String> {
            dependency == 3 ? .output("\(dependency)") : .badDependency
        }

        func refresh(_ refused: Int?, _ context: RunnerPolicy.Call) async throws -> UpdateResult<Int> {
            .updatedDependency((refused ?? 0) + 1)
        }
    }

    private struct Patient: DependentOperation {
        func run(_ dependency: Int, _ context: RunnerPolicy.Call) async throws -> RunResult<Int> { .output(dependency) }
        func refresh(_ refused: Int?, _ context: RunnerPolicy.Call) async throws -> UpdateResult<Int> {
            .updatedDependency(9)
        }
    }

    @Test func `A13 a runner accepts one object with run, refresh and an optional time-out`() async throws {
        #expect(try await DependentRunner<Int>().run(Counting()) == "3")
        #expect(Patient().timeout == nil)
        #expect(try await DependentRunner<Int>().run(Patient()) == 9)
    }

    @Test func `A13 the time-out of an operation object takes effect`() async throws {
        let runner = DependentRunner<Int>(clock: self.clock)
        let error = await #expect(throws: RunnerError.self) { try await runner.run(Counting(timeout: .zero)) }
        #expect(error?.code == .timedOut)
    }

    @Test func `A15 results support map, flatMap and comparison`() throws {
        let good = RunResult.output(2)
        let bad = RunResult<Int>.badDependency
        for result in [good, bad] {
            #expect(result.map { $0 } == result, "identity")
            #expect(result.map { $0 + 1 }.map { $0 * 2 } == result.map { ($0 + 1) * 2 }, "composition")
            #expect(result.flatMap { .output($0) } == result, "right unit")
        }
        let half: (Int) -> RunResult<Int> = { $0.isMultiple(of: 2) ? .output($0 / 2) : .badDependency }
        #expect(RunResult.output(4).flatMap(half) == half(4), "left unit")
        for start in [RunResult.output(8), .output(6), .output(3), .badDependency] {
            #expect(start.flatMap(half).flatMap(half) == start.flatMap { half($0).flatMap(half) }, "associativity")
        }
        #expect(good != bad && good == .output(2) && good != .output(3))
        #expect(throws: FetchFailed.self) { try good.map { _ -> Int in throw FetchFailed() } }
        #expect(try bad.flatMap { _ -> RunResult<Int> in throw FetchFailed() } == .badDependency)
    }

    @Test func `A17 any value can be a dependency`() async throws {
        struct Connection: Sendable { var host: String }
        #expect(try await DependentRunner<Int>(1).run { .output($0) } == 1)
        #expect(try await DependentRunner<String>("one").run { .output($0) } == "one")
        #expect(try await DependentRunner(Connection(host: "h")).run { .output($0.host) } == "h")
    }

    // MARK: - Known expiry

    private struct Pass: ExpiringDependency, Equatable {
        var number: Int
        var expiry: Date?
    }

    private var wall: @Sendable () -> Date {
        let clock = self.clock
        return { World.start.addingTimeInterval(clock.now.offset.secondsValue) }
    }

    @Test func `A18 a dependency that ends within the leeway is renewed before the task`() async throws {
        let preset = Pass(number: 1, expiry: World.start.addingTimeInterval(10))
        let wall = self.wall
        let runner = DependentRunner<Pass>(preset, clock: self.clock, wallTime: wall) { failed in
            #expect(failed?.number == 1)
            return .updatedDependency(Pass(number: 2, expiry: wall().addingTimeInterval(300)))
        }
        let numbers = Locked<[Int]>([])
        for _ in 0..<3 {
            try await runner.run { pass in
                numbers.withLock { $0.append(pass.number) }
                return .output(())
            }
        }
        #expect(numbers.withLock { $0 } == [2, 2, 2])
    }

    @Test func `A18 a dependency with a long lifetime is used until the leeway begins`() async throws {
        let wall = self.wall
        let updates = Locked(0)
        let runner = DependentRunner<Pass>(clock: self.clock, wallTime: wall) { _ in
            .updatedDependency(Pass(number: updates.next(), expiry: wall().addingTimeInterval(300)))
        }
        for (seconds, number) in [(0, 1), (269, 1), (1, 2), (269, 2), (1, 3)] {
            self.clock.advance(by: .seconds(seconds))
            #expect(try await runner.run { .output($0.number) } == number)
        }
    }

    @Test func `A18 a dependency with a lifetime below the leeway is not renewed by every call`() async throws {
        let wall = self.wall
        let updates = Locked(0)
        let runner = DependentRunner<Pass>(clock: self.clock, wallTime: wall) { _ in
            .updatedDependency(Pass(number: updates.next(), expiry: wall().addingTimeInterval(10)))
        }
        for (seconds, number) in [(0, 1), (0, 1), (4, 1), (1, 2)] {
            self.clock.advance(by: .seconds(seconds))
            #expect(try await runner.run { .output($0.number) } == number)
        }
    }

    @Test func `A18 if the early renewal fails the old dependency is used until its end`() async throws {
        let wall = self.wall
        let preset = Pass(number: 1, expiry: World.start.addingTimeInterval(10))
        let runner = DependentRunner<Pass>(preset, clock: self.clock, wallTime: wall) { _ in throw FetchFailed() }
        #expect(try await runner.run { .output($0.number) } == 1)
        self.clock.advance(by: .seconds(10))
        await #expect(throws: FetchFailed.self) { try await runner.run { .output($0.number) } }
    }

    @Test func `A18 an access token with a known lifetime is renewed before its refusal`() async throws {
        let world = World()
        let refreshes = Locked<[Duration]>([])
        let refusals = Locked(0)
        let runner = OAuthDependentRunner<Int, String>(
            repository: world.repository,
            refreshAccess: { _ in
                let count = refreshes.withLock { refreshes in
                    refreshes.append(world.clock.now.offset)
                    return refreshes.count
                }
                return OAuthRenewal(access: count, accessLifetime: .seconds(100))
            },
            signIn: { OAuthSignIn(refresh: "refresh") }
        )
        for _ in 0..<10 {
            let now = world.clock.now.offset
            _ = try await runner.run { token -> RunResult<Int> in
                guard now < .seconds(100 * token) else {
                    refusals.withLock { $0 += 1 }
                    return .badDependency
                }
                return .output(token)
            }
            world.clock.advance(by: .seconds(35))
        }
        #expect(refusals.withLock { $0 } == 0)
        // Each refresh is 70 seconds after the previous refresh, 30 seconds before the end of its token.
        #expect(refreshes.withLock { $0 } == [0, 70, 140, 210, 280].map { .seconds($0) })
    }

    // MARK: - Forced renewal and events

    @Test func `A19 two concurrent forced renewals share one update`() async throws {
        let gate = Gate<Int>()
        let runner = DependentRunner<Int>(1, observer: self.events) { _ in .updatedDependency(try await gate.pass()) }
        let first = Task { try await runner.renew() }
        let second = Task { try await runner.renew() }
        await self.events.wait(for: .dependencyAwaited, count: 2)
        gate.open(returning: 2)
        #expect(try await first.value == 2)
        #expect(try await second.value == 2)
        #expect(gate.callCount == 1)
        #expect(runner.value == 2)
        await runner.expectAtRest()
    }

    @Test func `A19 a valid access token is renewed on request`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        let gate = Gate<Void>()
        oauth.beforeRefreshReply.withLock { $0 = { try await gate.pass() } }
        let awaited = oauth.world.events.count(of: .dependencyAwaited)
        let calls = (0..<2).map { _ in Task { try await runner.renew() } }
        await oauth.world.events.wait(for: .dependencyAwaited, count: awaited + 2)
        gate.openForGood(returning: ())
        let token = try await calls[0].value
        #expect(try await calls[1].value == token)
        #expect(oauth.refreshes.withLock { $0 } == 2, "the first one, and one for both")
        #expect(oauth.server.authorize(token) == "alice")
        #expect(oauth.statistics.reusesDetected == 0)
    }

    @Test func `A20 each observer gets the events in order`() async throws {
        let update = ScriptedFetch<Int>([.value(1), .failure(FetchFailed()), .value(2)])
        let runner = DependentRunner<Int> { _ in .updatedDependency(try await update()) }
        var watched = runner.events.makeAsyncIterator()
        var other = runner.events.makeAsyncIterator()

        _ = try await runner.run { .output($0) }
        await #expect(throws: FetchFailed.self) { try await runner.renew() }
        runner.set(7)
        runner.reset()
        _ = try await runner.run { .output($0) }
        await #expect(throws: RunnerError.self) {
            try await runner.run { _ -> RunResult<Int> in throw CriticalError(FetchFailed()) }
        }

        let expected: [RunnerEvent] = [
            .updateStarted, .updated(epoch: 1), .updateStarted, .updateFailed, .set(epoch: 2), .reset, .updateStarted,
            .updated(epoch: 4), .critical,
        ]
        for event in expected {
            #expect(await watched.next() == event)
            #expect(await other.next() == event)
        }
    }

    @Test func `A20 an update that a reset overtakes is dropped and the stream ends with the runner`() async throws {
        let gate = Gate<Int>()
        var runner: DependentRunner<Int>? = DependentRunner { _ in
            .updatedDependency(try await gate.pass(ignoringCancellation: true))
        }
        let stream = try #require(runner?.events)
        let call = Task { [runner] in try await runner?.run { .output($0) } }
        await gate.waitForCall(1)
        runner?.reset()
        _ = await call.result
        runner = nil
        gate.open(returning: 1)
        var seen: [RunnerEvent] = []
        for await event in stream { seen.append(event) }
        #expect(seen.prefix(2) == [.updateStarted, .reset])
    }

    @Test func `A20 concurrent changes on several threads are reported in their order`() async {
        for _ in 0..<50 {
            let runner = DependentRunner<Int>()
            let events = runner.events
            await BlockingWork.run {
                DispatchQueue.concurrentPerform(iterations: 2) { _ in
                    for value in 0..<100 { runner.set(value) }
                }
            }
            var epoch: UInt64 = 0
            for await event in events.prefix(200) {
                epoch += 1
                guard event == .set(epoch: epoch) else {
                    Issue.record("\(event) is told in the place of \(epoch)")
                    return
                }
            }
        }
    }

    // MARK: - Layers

    private final class Layers: Sendable {
        let counts = Locked<[String: Int]>([:])
        let order = Locked<[String]>([])

        func made(_ layer: String) -> Int {
            self.order.withLock { $0.append(layer) }
            return self.counts.withLock { counts in
                counts[layer, default: 0] += 1
                return counts[layer] ?? 0
            }
        }
    }

    private func layers(_ layers: Layers, _ good: Locked<Int>)
        -> (DependentRunner<Int>, DependentRunner<Int>, DependentRunner<Int>)
    {
        let top = DependentRunner<Int>(policy: .onePerCall) { _ in .updatedDependency(layers.made("top")) }
        let middle = DependentRunner<Int>(dependingOn: top, policy: .onePerCall) { parent, _ in
            guard parent >= good.withLock({ $0 }) else { return .updateFailed }
            return .updatedDependency(layers.made("middle"))
        }
        let leaf = DependentRunner<Int>(dependingOn: middle, policy: .onePerCall) { parent, _ in
            guard parent >= good.withLock({ $0 }) else { return .updateFailed }
            return .updatedDependency(layers.made("leaf"))
        }
        return (top, middle, leaf)
    }

    @Test func `B07 three expired layers are each renewed once, from the top down`() async throws {
        let layers = Layers()
        let good = Locked(1)
        let (_, _, leaf) = self.layers(layers, good)
        let call: @Sendable () async throws -> Int = {
            try await leaf.run { value in value >= good.withLock { $0 } ? .output(value) : .badDependency }
        }
        #expect(try await call() == 1)
        #expect(layers.order.withLock { $0 } == ["top", "middle", "leaf"])
        good.withLock { $0 = 2 }
        layers.order.withLock { $0 = [] }

        let values = try await withThrowingTaskGroup { group in
            for _ in 0..<50 { group.addTask { try await call() } }
            return try await group.reduce(into: []) { $0.append($1) }
        }

        #expect(values == Array(repeating: 2, count: 50))
        #expect(layers.order.withLock { $0 } == ["top", "middle", "leaf"])
    }

    @Test func `B07 B03 a replaced value at the top makes the layers below renew their values`() async throws {
        let layers = Layers()
        let (top, middle, leaf) = self.layers(layers, Locked(0))
        _ = try await leaf.run { .output($0) }
        top.set(9)
        #expect(leaf.value == nil && middle.value == nil)
        #expect(try await leaf.run { .output($0) } == 2)
        #expect(layers.counts.withLock { $0 } == ["top": 1, "middle": 2, "leaf": 2])
    }

    @Test func `B07 B06 a preset value at the bottom causes no update of the layers above`() async throws {
        let layers = Layers()
        let (top, middle, _) = self.layers(layers, Locked(0))
        let leaf = DependentRunner<Int>(dependingOn: middle, 5) { _, _ in .updatedDependency(6) }
        #expect(try await leaf.run { .output($0) } == 5)
        #expect(layers.order.withLock { $0 } == [])
        middle.set(3)
        #expect(try await leaf.run { .output($0) } == 6)
        #expect(layers.order.withLock { $0 } == [])
        #expect(top.value == nil)
    }

    @Test func `B07 a preset value belongs to the preset value of the parent`() async throws {
        let parent = DependentRunner<Int>(1)
        let child = DependentRunner<Int>(dependingOn: parent, 5) { parent, _ in .updatedDependency(parent * 10) }
        #expect(child.value == 5)
        #expect(try await child.run { .output($0) } == 5)
        parent.set(2)
        #expect(child.value == nil)
        #expect(try await child.run { .output($0) } == 20)
    }

    @Test func `B09 an error of the child passes through and the parent is not renewed`() async throws {
        let signIns = Locked(0)
        let top = DependentRunner<Int> { _ in .updatedDependency(signIns.next()) }
        let leaf = DependentRunner<Int>(dependingOn: top) { _, _ in throw offline }
        for _ in 0..<3 {
            await #expect(throws: SilenceableError.self) { try await leaf.run { .output($0) } }
        }
        #expect(signIns.withLock { $0 } == 1)
    }

    @Test func `B10 five thousand calls on tokens that expire and rotate all succeed`() async throws {
        var options = FakeOAuthServer.Configuration()
        options.accessLifetime = .milliseconds(300)
        options.refreshLifetime = .seconds(3)
        let oauth = OAuthWorld(options)
        let runner = oauth.runner(policy: .init(maximumUpdatesPerCall: 1, maximumUpdatesPerWindow: nil))
        var random = SplitMix64(state: 10)
        var successes = 0
        while successes < 5_000 {
            let callers = min(Int.random(in: 1...20, using: &random), 5_000 - successes)
            let users = try await withThrowingTaskGroup { group in
                for _ in 0..<callers { group.addTask { try await oauth.call(runner) } }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            #expect(users.allSatisfy { $0 == "alice" })
            successes += users.count
            // A rare long pause also expires the refresh token.
            let pause = Int.random(in: 0..<100, using: &random) == 0 ? 4_000 : Int.random(in: 0...200, using: &random)
            oauth.world.clock.advance(by: .milliseconds(pause))
        }
        #expect(successes == 5_000)
        #expect(oauth.statistics.reusesDetected == 0)
        #expect(oauth.statistics.revocations == 0)
        #expect(oauth.statistics.refreshes > 100)
        #expect(oauth.statistics.signIns > 1)
    }

    // MARK: - One interface

    private struct Service: OAuthService {
        let calls = Locked<[String]>([])
        let server: FakeOAuthServer

        private func noted(_ call: String) { self.calls.withLock { $0.append(call) } }

        func authorize() async throws -> OAuthSignIn<String, String> {
            self.noted("authorize")
            let tokens = try await self.server.signIn(user: "alice", password: "a")
            return OAuthSignIn(access: tokens.access, refresh: tokens.refresh)
        }

        func editProfile() async throws -> OAuthSignIn<String, String> {
            self.noted("editProfile")
            let tokens = try await self.server.signIn(user: "bob", password: "b")
            return OAuthSignIn(access: tokens.access, refresh: tokens.refresh)
        }

        func refresh(_ token: String) async throws -> OAuthRenewal<String, String> {
            self.noted("refresh")
            let tokens = try await self.server.refresh(token)
            return OAuthRenewal(access: tokens.access, refresh: tokens.refresh)
        }

        func logout() async throws {
            self.noted("logout")
            self.server.revokeAllRefreshTokens()
        }
    }

    @Test func `D08 one interface has authorize, edit, refresh and log out`() async throws {
        let oauth = OAuthWorld()
        let service = Service(server: oauth.server)
        let account = OAuthAccount(service, store: oauth.tokens, repository: oauth.world.repository)

        try await account.authorize()
        try await account.authorize()
        #expect(try await oauth.call(account.runner) == "alice")
        try await account.editProfile()
        #expect(try await oauth.call(account.runner) == "bob")
        try await account.refresh()
        #expect(try await oauth.call(account.runner) == "bob")
        #expect(try await account.logout().isComplete)

        #expect(service.calls.withLock { $0 } == ["authorize", "editProfile", "refresh", "logout"])
        #expect(try await oauth.call(account.runner) == "alice", "a new session")
    }

    private final class Refusing: SessionParticipant {
        func refusalOfSignOut() async -> (any Error)? { FetchFailed() }
        func sessionEnded(sendsEvent: Bool) -> @Sendable () -> Void { {} }
    }

    @Test func `D08 a refused log-out keeps the session at the server, too`() async throws {
        let oauth = OAuthWorld()
        let service = Service(server: oauth.server)
        let account = OAuthAccount(service, store: oauth.tokens, repository: oauth.world.repository)
        try await account.authorize()
        let participant = Refusing()
        oauth.world.repository.attach(participant)

        let report = try await account.logout()

        #expect(report.failures.count == 1)
        #expect(await account.status == .signedIn)
        #expect(service.calls.withLock { $0 } == ["authorize"])
        withExtendedLifetime(participant) {}
    }
}
