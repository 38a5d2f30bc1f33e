import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Critical errors, limits of count and time, and the order of errors.
@Suite(.standard)
struct RunnerLimitTests {
    private let clock = VirtualClock()
    private let events = EventTally()

    private func policy(_ change: (inout RunnerPolicy) -> Void) -> RunnerPolicy {
        var policy = RunnerPolicy()
        change(&policy)
        return policy
    }

    /// The `isOriginator` flag of a call's critical error; `nil` for any other result.
    private func critical(_ task: Task<Int, any Error>) async -> Bool? {
        guard case .failure(let error) = await task.result,
            case .critical(let cause, let isOriginator)? = error as? RunnerError, cause is FetchFailed
        else { return nil }
        return isOriginator
    }

    /// Checks that all callers get the critical error, and that one of the callers is its originator.
    private func expectOneOriginator(_ callers: [Task<Int, any Error>]) async {
        var originators = 0
        for caller in callers {
            let isOriginator = await self.critical(caller)
            #expect(isOriginator != nil)
            originators += isOriginator == true ? 1 : 0
        }
        #expect(originators == 1)
    }

    @Test func `C05 a critical error ends all callers and exactly one caller is its originator`() async {
        let gate = Gate<Int>()
        let runner = DependentRunner<Int>(observer: self.events) { _ in .updatedDependency(try await gate.pass()) }
        let callers = (0..<21).map { _ in Task { try await runner.run { .output($0) } } }
        await self.events.wait(for: .dependencyAwaited, count: 21)
        gate.fail(with: CriticalError(FetchFailed()))

        await self.expectOneOriginator(callers)
        let late = Task { try await runner.run { .output($0) } }
        #expect(await self.critical(late) == false)
        await runner.expectAtRest()
    }

    @Test func `C05 the task that throws a critical error is its originator`() async throws {
        let runner = DependentRunner<Int>(1)
        let call = Task { try await runner.run { _ -> RunResult<Int> in throw CriticalError(FetchFailed()) } }
        #expect(await self.critical(call) == true)
        let next = Task { try await runner.run { .output($0) } }
        #expect(await self.critical(next) == false)
    }

    @Test func `C05 exactly one of several tasks that throw critical errors is the originator`() async {
        let runner = DependentRunner<Int>(1)
        let gate = Gate<Void>()
        let callers = (0..<5).map { _ in
            Task {
                try await runner.run { _ -> RunResult<Int> in
                    try await gate.pass()
                    throw CriticalError(FetchFailed())
                }
            }
        }
        await gate.waitForCall(5)
        gate.openForGood(returning: ())

        await self.expectOneOriginator(callers)
        await runner.expectAtRest()
    }

    @Test func `C06 a critical error ends all waiters and drops the update's value, until a reset`()
        async throws
    {
        let gate = Gate<Int>()
        let runner = DependentRunner<Int>(1, observer: self.events) { _ in
            .updatedDependency(try await gate.pass(ignoringCancellation: true))
        }
        let working = Gate<Void>()
        let thrower = Task {
            try await runner.run { _ -> RunResult<Int> in
                try await working.pass()
                throw CriticalError(FetchFailed())
            }
        }
        await working.waitForCall(1)
        let waiting = (0..<5).map { _ in Task { try await runner.run { $0 == 1 ? .badDependency : .output($0) } } }
        await self.events.wait(for: .dependencyAwaited, count: 5)
        // An update that has not begun when a critical error is raised never begins.
        await gate.waitForCall(1)
        working.open()

        #expect(await self.critical(thrower) == true)
        for call in waiting { #expect(await self.critical(call) == false) }
        gate.open(returning: 2)
        await self.events.wait(for: .updated)
        #expect(runner.value == nil)
        let late = Task { try await runner.run { .output($0) } }
        #expect(await self.critical(late) == false)

        runner.reset()
        gate.open(returning: 3)
        #expect(try await runner.run { .output($0) } == 3)
    }

    @Test func `C06 a set value clears a critical error and ignores an error of an old session`() async throws {
        let runner = DependentRunner<Int>(1)
        let gate = Gate<Void>()
        let old = Task {
            try await runner.run { _ -> RunResult<Int> in
                try await gate.pass()
                throw CriticalError(FetchFailed())
            }
        }
        await gate.waitForCall(1)
        runner.reset()
        runner.set(2)
        gate.open()
        #expect(await self.critical(old) == true)
        #expect(try await runner.run { .output($0) } == 2, "the session of that error is over")

        let bad = Task { try await runner.run { _ -> RunResult<Int> in throw CriticalError(FetchFailed()) } }
        _ = await bad.result
        runner.set(3)
        #expect(try await runner.run { .output($0) } == 3)
    }

    @Test func `C09 a call ends at its time-out and the update serves the next call`() async throws {
        let clock = self.clock
        let update = ScriptedFetch<Int>(
            thereafter: .computed { _ in
                try await clock.sleep(for: .seconds(10))
                return 5
            }
        )
        let runner = DependentRunner<Int>(policy: self.policy { $0.updateTimeout = nil }, clock: clock) { _ in
            .updatedDependency(try await update())
        }
        let call = Task { try await runner.run(timeout: .seconds(1)) { value, _ in .output(value) } }
        await clock.waitForSleepers(2)
        clock.advance(by: .seconds(1))
        let error = await #expect(throws: RunnerError.self) { try await call.value }
        guard case .timedOut(after: .seconds(1))? = error else { return #expect(Bool(false), "\(error)") }

        clock.advance(by: .seconds(9))
        #expect(try await runner.run { .output($0) } == 5)
        #expect(update.callCount == 1)
        await runner.expectAtRest()
    }

    /// With `hasNewValue`, the call could run its task again without an update.
    @Test(arguments: [false, true])
    func `C09 PT-06 after its time-out a call does not run its task again and starts no update`(hasNewValue: Bool)
        async throws
    {
        let updates = Locked(0)
        let runner = DependentRunner<Int>(1, clock: self.clock) { _ in
            updates.withLock { $0 += 1 }
            return .updatedDependency(2)
        }
        let runs = Locked(0)
        let error = await #expect(throws: RunnerError.self) {
            try await runner.run(timeout: .seconds(1)) { _, _ -> RunResult<Int> in
                guard runs.next() == 1 else { return .output(0) }
                self.clock.advance(by: .seconds(1))
                if hasNewValue { runner.set(3) }
                return .badDependency
            }
        }
        #expect(error?.code == .timedOut)
        #expect(runs.withLock { $0 } == 1)
        await runner.expectAtRest()
        #expect(updates.withLock { $0 } == 0)
        #expect(runner.value == (hasNewValue ? 3 : 1))
    }

    @Test func `C09 a call without time runs its task with a valid dependency and starts no update`() async throws {
        let updates = Locked(0)
        let runner = DependentRunner<Int>(clock: self.clock) { _ in .updatedDependency(updates.next()) }
        let absent = await #expect(throws: RunnerError.self) {
            try await runner.run(timeout: .zero) { value, _ in .output(value) }
        }
        #expect(absent?.code == .timedOut)
        await runner.expectAtRest()
        #expect(updates.withLock { $0 } == 0)

        runner.set(7)
        #expect(try await runner.run(timeout: .zero) { value, _ in .output(value) } == 7)
        let refused = await #expect(throws: RunnerError.self) {
            try await runner.run(timeout: .zero) { _, _ -> RunResult<Int> in .badDependency }
        }
        #expect(refused?.code == .timedOut)
        #expect(updates.withLock { $0 } == 0)
    }

    @Test func `C09 a call for a token ends at its time-out and the refresh continues`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        let gate = Gate<Void>()
        oauth.beforeRefreshReply.withLock { $0 = { try await gate.pass() } }
        let call = Task { try await runner.run(timeout: .seconds(1)) { .output($0) } }
        await gate.waitForCall(1)
        // The time limits of the call, of the refresh, and of the token exchange.
        await oauth.world.clock.waitForSleepers(3)
        oauth.world.clock.advance(by: .seconds(1))
        await #expect(throws: RunnerError.self) { try await call.value }
        gate.openForGood(returning: ())
        #expect(try await oauth.call(runner) == "alice")
        #expect(oauth.statistics.refreshRequests == 1)
    }

    @Test func `C10 a hanging update fails at its time-out and the next call updates again`() async throws {
        let gate = Gate<Int>()
        let runner = DependentRunner<Int>(policy: self.policy { $0.updateTimeout = .seconds(5) }, clock: self.clock) {
            _ in .updatedDependency(try await gate.pass())
        }
        let call = Task { try await runner.run { .output($0) } }
        await gate.waitForCall(1)
        await self.clock.waitForSleepers(1)
        self.clock.advance(by: .seconds(5))
        let error = await #expect(throws: RunnerError.self) { try await call.value }
        guard case .updateTimedOut(after: .seconds(5))? = error else { return #expect(Bool(false), "\(error)") }
        gate.openForGood(returning: 2)
        #expect(try await runner.run { .output($0) } == 2)
    }

    @Test func `C10 a caller's update closure is cancelled at its time-out`() async throws {
        let gate = Gate<Int>()
        let runner = DependentRunner<Int>(policy: self.policy { $0.updateTimeout = .seconds(5) }, clock: self.clock)
        let call = Task {
            try await runner.run {
                .output($0)
            } update: { _ in
                .updatedDependency(try await gate.pass())
            }
        }
        await gate.waitForCall(1)
        await self.clock.waitForSleepers(1)
        self.clock.advance(by: .seconds(5))
        let error = await #expect(throws: RunnerError.self) { try await call.value }
        #expect(error?.code == .updateTimedOut)
        await runner.expectAtRest()
    }

    @Test func `C10 a hanging refresh fails at its time-out without another sign-in`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        oauth.server.expireAllAccessTokens()
        let gate = Gate<Void>()
        oauth.beforeRefreshReply.withLock { $0 = { try await gate.pass() } }
        let call = Task { try await oauth.call(runner) }
        await gate.waitForCall(1)
        await oauth.world.clock.waitForSleepers(2)  // the limits of the wait and of the exchange
        oauth.world.clock.advance(by: .seconds(300))
        let error = await #expect(throws: RunnerError.self) { try await call.value }
        #expect(error?.code == .updateTimedOut)
        #expect(oauth.signIns.withLock { $0 } == 1)
    }

    /// Repeated: the scheduler decides whether the reply or the next call comes first.
    @Test(arguments: 0..<100)
    func `C10 B11 tokens that a refresh returns after its time-out are not lost`(_: Int) async throws {
        var options = FakeOAuthServer.Configuration()
        options.accessLifetime = .seconds(3_600)
        let oauth = OAuthWorld(options)
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        oauth.server.expireAllAccessTokens()
        let gate = Gate<Void>()
        oauth.beforeRefreshReply.withLock { reply in
            // The server has exchanged the token, and the cancellation at the time limit releases its reply.
            reply = {
                try await withTaskCancellationHandler {
                    try await gate.pass(ignoringCancellation: true)
                } onCancel: {
                    gate.openForGood(returning: ())
                }
            }
        }
        let call = Task { try await oauth.call(runner) }
        await gate.waitForCall(1)
        await oauth.world.clock.waitForSleepers(2)  // the limits of the wait and of the exchange
        oauth.world.clock.advance(by: .seconds(300))

        _ = try? await call.value  // at the limit, unless the reply comes just in time
        #expect(try await oauth.call(runner) == "alice")
        oauth.server.expireAllAccessTokens()
        #expect(try await oauth.call(runner) == "alice")
        #expect(oauth.statistics.refreshRequests == 3)
        #expect(oauth.statistics.reusesDetected == 0)
        #expect(oauth.statistics.signIns == 1)
    }

    @Test func `C11 a thousand callers that refuse every value stay within the window's limit`() async throws {
        let updates = Locked(0)
        let runner = DependentRunner<Int>(0, policy: .init(maximumUpdatesPerCall: 50), clock: self.clock) { _ in
            .updatedDependency(updates.next())
        }
        let call: @Sendable () async -> RunnerError.Code? = {
            do {
                return try await runner.run { _ in RunResult<RunnerError.Code?>.badDependency }
            } catch {
                return (error as? RunnerError)?.code
            }
        }
        let codes = await withTaskGroup { group in
            for _ in 0..<1_000 { group.addTask { await call() } }
            return await group.reduce(into: []) { $0.append($1) }
        }
        #expect(updates.withLock { $0 } == 5)
        #expect(codes.allSatisfy { $0 == .tooManyUpdatesInWindow })

        self.clock.advance(by: .seconds(29))
        #expect(await call() == .tooManyUpdatesInWindow)
        #expect(updates.withLock { $0 } == 5)
        self.clock.advance(by: .seconds(1))
        #expect(await call() == .tooManyUpdatesInWindow)
        #expect(updates.withLock { $0 } == 10, "the window has moved on")
        await runner.expectAtRest()
    }

    @Test func `C12 an update that returns the refused value fails after one attempt`() async throws {
        let updates = Locked(0)
        let runner = DependentRunner<Int>(7, policy: self.policy { $0.refusesSameDependency = true }) { _ in
            updates.withLock { $0 += 1 }
            return .updatedDependency(7)
        }
        let error = await #expect(throws: RunnerError.self) {
            try await runner.run { _ in RunResult<Int>.badDependency }
        }
        #expect(error?.code == .sameDependency)
        #expect(updates.withLock { $0 } == 1)
        let again = await #expect(throws: RunnerError.self, "it is still what was refused") {
            try await runner.renew()
        }
        #expect(again?.code == .sameDependency)
    }

    @Test func `C12 an update may return an equal value that no call has refused`() async throws {
        let runner = DependentRunner<Int>(7, policy: self.policy { $0.refusesSameDependency = true }) { _ in
            .updatedDependency(7)
        }
        #expect(try await runner.renew() == 7)
    }

    @Test func `C13 no update starts during the cool-down after a failed update`() async throws {
        let update = ScriptedFetch<Int>([.failure(FetchFailed(call: 1)), .value(2)])
        let runner = DependentRunner<Int>(policy: self.policy { $0.coolDown = .seconds(10) }, clock: self.clock) { _ in
            .updatedDependency(try await update())
        }
        for _ in 0..<10 {
            await #expect(throws: FetchFailed(call: 1)) { try await runner.run { .output($0) } }
            self.clock.advance(by: .milliseconds(999))
        }
        #expect(update.callCount == 1)
        self.clock.advance(by: .milliseconds(10))
        #expect(try await runner.run { .output($0) } == 2)
    }

    @Test func `C13 C10 no update starts during the cool-down after a timed-out update`() async throws {
        let gate = Gate<Int>()
        let runner = DependentRunner<Int>(
            policy: self.policy {
                $0.coolDown = .seconds(10)
                $0.updateTimeout = .seconds(5)
            },
            clock: self.clock
        ) { _ in .updatedDependency(try await gate.pass()) }
        let call = Task { try await runner.run { .output($0) } }
        await gate.waitForCall(1)
        await self.clock.waitForSleepers(1)
        self.clock.advance(by: .seconds(5))
        await #expect(throws: RunnerError.self) { try await call.value }
        gate.openForGood(returning: 2)

        let error = await #expect(throws: RunnerError.self) { try await runner.run { .output($0) } }
        #expect(error?.code == .updateTimedOut)
        #expect(gate.callCount == 1)
        self.clock.advance(by: .seconds(10))
        #expect(try await runner.run { .output($0) } == 2)
    }

    @Test func `C14 a critical error takes precedence over an earlier refusal`() async throws {
        let runner = DependentRunner<Int>(1) { _ in .updateFailed }
        let gate = Gate<Void>()
        let thrower = Task {
            try await runner.run { _ -> RunResult<Int> in
                try await gate.pass()
                throw CriticalError(FetchFailed())
            }
        }
        await gate.waitForCall(1)
        await #expect(throws: RunnerError.self) { try await runner.run { _ in RunResult<Int>.badDependency } }
        gate.open()
        #expect(await self.critical(thrower) == true)
        #expect(await self.critical(Task { try await runner.run { .output($0) } }) == false)
    }

    @Test func `C06 a critical error of an ended session has no effect on the next session`() {
        var machine = DependencyStateMachine<Int>(1)
        let call = machine.makeCall(at: .init(nanoseconds: 0))
        machine.endSession(.reset)
        _ = machine.setValue(2, parentEpoch: 0)
        let isRaised = machine.recordCriticalError(RaisedCritical(FetchFailed()), by: call)
        #expect(!isRaised)
        #expect(machine.current(parentEpoch: 0)?.value == 2)
        let next = machine.makeCall(at: .init(nanoseconds: 0))
        let isRaisedNow = machine.recordCriticalError(RaisedCritical(FetchFailed()), by: next)
        #expect(isRaisedNow)
        #expect(machine.current(parentEpoch: 0) == nil)
    }

    @Test(arguments: [true, false])
    func `C06 setting tokens clears a critical error`(isOther: Bool) async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner()
        let alice = try await oauth.server.signIn(user: "alice", password: "a")
        try await runner.set(refresh: alice.refresh)
        let call = Task { try await runner.run { _ -> RunResult<Int> in throw CriticalError(FetchFailed()) } }
        #expect(await self.critical(call) == true)
        let later = Task { try await runner.run { _ -> RunResult<Int> in .output(1) } }
        #expect(await self.critical(later) == false)

        if isOther {
            try await runner.set(refresh: try await oauth.server.signIn(user: "bob", password: "b").refresh)
            #expect(try await oauth.call(runner) == "bob")
        } else {
            // The server has rotated the first token, and the store contains its successor.
            let stored = String(decoding: try #require(try await oauth.tokens.load()), as: UTF8.self)
            let refresh = try #require(stored.split(separator: "\"").first { $0.hasPrefix("refresh-") })
            try await runner.set(refresh: String(refresh))
            #expect(try await oauth.call(runner) == "alice")
        }
        #expect(oauth.statistics.reusesDetected == 0)
    }

    @Test func `C14 a call with several failures throws the most severe error`() async throws {
        let runner = DependentRunner<Int> { _ in .updateFailed }
        let call: @Sendable () async -> (any Error)? = {
            await Task {
                withUnsafeCurrentTask { $0?.cancel() }
                do {
                    try await runner.run(timeout: .zero) { _, _ in RunResult<Void>.badDependency }
                    return nil
                } catch {
                    return error
                }
            }.value
        }
        #expect(await call() is CancellationError)
        await #expect(throws: RunnerError.self) { try await runner.run { .output($0) } }
        #expect((await call() as? RunnerError)?.code == .updateFailed)

        // A critical error takes precedence over a refusal and a cancellation.
        let both = DependentRunner<Int>(1) { _ in throw CriticalError(FetchFailed()) }
        let cancelled = Task {
            try await both.run { _ -> RunResult<Int> in
                _ = try? await both.renew()
                withUnsafeCurrentTask { $0?.cancel() }
                return .badDependency
            }
        }
        let error = await #expect(throws: RunnerError.self) { try await cancelled.value }
        #expect(error?.code == .critical)
    }

    @Test func `C15 each error has a comparable code and a description`() {
        let cause = FetchFailed()
        let errors: [RunnerError] = [
            .updateFailed(underlying: nil), .tooManyUpdates(count: 1, elapsed: .zero, underlying: nil),
            .tooManyUpdatesInWindow(count: 5, window: .seconds(30), underlying: nil), .sameDependency,
            .timedOut(after: .seconds(1)), .updateTimedOut(after: .seconds(1)),
            .critical(underlying: cause, isOriginator: true), .reset, .signedOut, .wouldDeadlock, .noUpdate,
            .signInFailed(underlying: cause), .tokensUnreadable(underlying: cause), .tokensNotStored(underlying: cause),
            .leaseUnavailable(underlying: cause),
        ]
        #expect(Set(errors.map(\.code)) == Set(RunnerError.Code.allCases))
        #expect(errors.count == RunnerError.Code.allCases.count)
        #expect(Set(errors.map(\.localizedDescription)).count == errors.count)
        for error in errors { #expect(error.localizedDescription.hasSuffix(".")) }
        #expect(errors.filter { $0.underlying is FetchFailed }.count == 5)
    }

    @Test func `D04 the policy may cancel an update without waiters`() async throws {
        let gate = Gate<Int>()
        let runner = DependentRunner<Int>(
            policy: self.policy { $0.cancelsUnwantedUpdates = true },
            observer: self.events
        ) { _ in .updatedDependency(try await gate.pass()) }
        let call = Task { try await runner.run { .output($0) } }
        await gate.waitForCall(1)
        call.cancel()
        await #expect(throws: CancellationError.self) { try await call.value }
        await self.events.wait(for: .updateFailed)
        #expect(gate.heldCount == 0)
        gate.openForGood(returning: 2)
        #expect(try await runner.run { .output($0) } == 2)
    }

    @Test func `D04 a token refresh is not cancelled under any policy`() async throws {
        let oauth = OAuthWorld()
        let runner = oauth.runner(policy: self.policy { $0.cancelsUnwantedUpdates = true })
        let gate = Gate<Void>()
        oauth.beforeRefreshReply.withLock { $0 = { try await gate.pass() } }
        let call = Task { try await oauth.call(runner) }
        await gate.waitForCall(1)
        call.cancel()
        await #expect(throws: CancellationError.self) { try await call.value }
        #expect(gate.heldCount == 1)
        gate.openForGood(returning: ())
        #expect(try await oauth.call(runner) == "alice")
        #expect(oauth.statistics.refreshRequests == 1)
    }

    @Test func `D10 idle, signed-out and observed runners are released without a reference`() async throws {
        weak var idle: DependentRunner<Int>?
        weak var child: DependentRunner<Int>?
        weak var signedOut: OAuthDependentRunner<String, String>?
        do {
            let runner = DependentRunner<Int>(1) { _ in .updatedDependency(2) }
            let other = DependentRunner<Int>(dependingOn: runner) { parent, _ in .updatedDependency(parent) }
            let stream = runner.events
            _ = try await other.run { .output($0) }
            _ = try await runner.renew()
            (idle, child) = (runner, other)
            withExtendedLifetime(stream) {}
            let oauth = OAuthWorld()
            let oauthRunner = oauth.runner()
            _ = try await oauth.call(oauthRunner)
            await oauthRunner.signOut()
            signedOut = oauthRunner
        }
        #expect(idle == nil)
        #expect(child == nil)
        #expect(signedOut == nil)
    }

    @Test func `D10 D03 the closures of a call are released at the end of the call`() async throws {
        final class Screen: Sendable {}
        let gate = Gate<Int>()
        let runner = DependentRunner<Int>(observer: self.events)
        weak var leader: Screen?
        weak var waiter: Screen?
        do {
            let (first, second) = (Screen(), Screen())
            (leader, waiter) = (first, second)
            let leading = Task { [first] in
                try await runner.run { value in
                    withExtendedLifetime(first) { .output(value) }
                } update: { _ in
                    let value = try await gate.pass()
                    return withExtendedLifetime(first) { .updatedDependency(value) }
                }
            }
            await gate.waitForCall(1)
            let waiting = Task { [second] in
                try await runner.run { value in
                    withExtendedLifetime(second) { .output(value) }
                } update: { _ in
                    withExtendedLifetime(second) { .updateFailed }
                }
            }
            await self.events.wait(for: .dependencyAwaited, count: 1)
            leading.cancel()
            gate.open(returning: 5)
            await #expect(throws: CancellationError.self) { try await leading.value }
            #expect(try await waiting.value == 5)
        }
        #expect(leader == nil)
        #expect(waiter == nil)
        #expect(runner.value == 5)
    }
}
