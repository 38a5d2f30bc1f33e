import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct RunnerFailureTests {
    private let events = EventTally()

    @Test func `C01 a refused update fails a hundred callers after one attempt`() async throws {
        let gate = Gate<Void>()
        let update = ScriptedFetch<Void>(thereafter: .gated(gate))
        let tasks = Locked(0)
        let runner = DependentRunner<Int>(observer: events) { _ in
            try await update()
            return .updateFailed
        }
        let call: @Sendable () async -> Bool = {
            do {
                try await runner.run { _ in
                    tasks.withLock { $0 += 1 }
                    return .output(())
                }
                return false
            } catch RunnerError.updateFailed {
                return true
            } catch {
                return false
            }
        }

        let failures = await withTaskGroup { group in
            for _ in 0..<50 { group.addTask { await call() } }
            await events.wait(for: .dependencyAwaited, count: 50)
            gate.open()
            for _ in 0..<50 { group.addTask { await call() } }
            return await group.reduce(0) { $0 + ($1 ? 1 : 0) }
        }

        #expect(failures == 100)
        #expect(update.callCount == 1)
        #expect(tasks.withLock { $0 } == 0)
        await runner.expectAtRest()
    }

    @Test func `C02 an update that throws fails its waiters and the very next call works`() async throws {
        let gate = Gate<Int>()
        let runner = DependentRunner<Int>(observer: events) { _ in .updatedDependency(try await gate.pass()) }

        await withTaskGroup { group in
            for _ in 0..<20 {
                group.addTask {
                    await #expect(throws: FetchFailed(call: 1)) { try await runner.run { .output($0) } }
                }
            }
            await events.wait(for: .dependencyAwaited, count: 20)
            gate.fail(with: FetchFailed(call: 1))
        }
        gate.open(returning: 2)

        #expect(try await runner.run { .output($0) } == 2)
        await runner.expectAtRest()
    }

    @Test func `C02 an update closure that throws fails its call and the next call works`() async throws {
        let runner = DependentRunner<Int>(observer: events)
        await #expect(throws: FetchFailed.self) {
            try await runner.run {
                .output($0)
            } update: { _ in
                throw FetchFailed()
            }
        }
        #expect(
            try await runner.run {
                .output($0)
            } update: { _ in
                .updatedDependency(2)
            } == 2
        )
    }

    @Test func `C03 a transient failure does not persist, a refusal persists until a reset`() async throws {
        let update = ScriptedFetch<UpdateResult<Int>>(
            [.failure(offline), .value(.updatedDependency(1)), .value(.updateFailed), .value(.updatedDependency(4))]
        )
        let runner = DependentRunner<Int>(policy: .onePerCall) { _ in try await update() }

        await #expect(throws: SilenceableError.self) { try await runner.run { .output($0) } }
        #expect(try await runner.run { .output($0) } == 1)
        for _ in 0..<3 {
            await #expect(throws: RunnerError.self) { try await runner.run { _ in RunResult<Int>.badDependency } }
        }
        #expect(update.callCount == 3)
        runner.reset()
        #expect(try await runner.run { .output($0) } == 4)
    }

    @Test func `C04 an error of a refused update has the underlying error`() async throws {
        let runner = DependentRunner<Int> { _ in throw BadDependency() }
        let error = await #expect(throws: RunnerError.self) { try await runner.run { .output($0) } }
        #expect(error?.underlying is BadDependency)
    }

    @Test func `C07 a success is not lost to another call's failure`() async throws {
        let working = Gate<String>()
        let updating = Gate<Int>()
        let runner = DependentRunner<Int>(1) { _ in .updatedDependency(try await updating.pass()) }
        let alice = Task { try await runner.run { _ in .output(try await working.pass()) } }
        await working.waitForCall(1)
        let bob = Task { try await runner.run { $0 == 1 ? .badDependency : .output($0) } }
        await updating.waitForCall(1)

        updating.fail(with: FetchFailed())
        await #expect(throws: FetchFailed.self) { try await bob.value }
        working.open(returning: "done")

        #expect(try await alice.value == "done")
        await runner.expectAtRest()
    }

    @Test func `C07 a success is not lost to a reset or a late cancellation`() async throws {
        let working = Gate<String>()
        let runner = DependentRunner<Int>(1)
        let alice = Task {
            try await runner.run { _ in
                .output(try await working.pass(ignoringCancellation: true))
            } update: { _ in
                .updateFailed
            }
        }
        await working.waitForCall(1)
        runner.reset()
        alice.cancel()
        working.open(returning: "done")
        #expect(try await alice.value == "done")
    }

    @Test(arguments: [0, 1, 2, 7])
    func `C08 S6 a task that refuses every value ends after the allowed updates`(limit: Int) async throws {
        let clock = VirtualClock()
        let updates = Locked(0)
        let runner = DependentRunner<Int>(0, policy: .init(maximumUpdatesPerCall: limit), clock: clock) { _ in
            clock.advance(by: .seconds(10))
            return .updatedDependency(
                updates.next()
            )
        }

        let error = await #expect(throws: RunnerError.self) {
            try await runner.run { _ in RunResult<Int>.badDependency }
        }

        guard case .tooManyUpdates(limit, .seconds(10 * limit), nil)? = error else {
            return #expect(Bool(false), "\(error)")
        }
        #expect(updates.withLock { $0 } == limit)
        await runner.expectAtRest()
    }

    @Test func `C04 no description quotes an underlying error`() {
        struct Secret: Error, CustomStringConvertible { var description: String { "token-123" } }
        let errors: [RunnerError] = [
            .updateFailed(underlying: Secret()), .tooManyUpdates(count: 1, elapsed: .zero, underlying: Secret()),
            .reset, .signedOut, .noUpdate, .signInFailed(underlying: Secret()),
            .tokensUnreadable(underlying: Secret()), .tokensNotStored(underlying: Secret()),
        ]
        for error in errors {
            #expect(!"\(error)".contains("token-123"))
            #expect(!error.localizedDescription.contains("token-123"))
            #expect(!error.localizedDescription.isEmpty)
        }
    }

    @Test func `C04 no dump quotes an underlying error`() {
        struct Quoting: Error { var token = "token-123" }
        var text = ""
        dump(RunnerError.tokensNotStored(underlying: Quoting()), to: &text)
        #expect(!text.contains("token-123"))
    }

    @Test func `D09 no description and no dump shows a token`() {
        var text = "\(OAuthSignIn(access: "token-2", refresh: "token-1"))"
        text += "\(OAuthRenewal(access: "token-3", refresh: "token-4"))"
        dump(OAuthSignIn(access: "token-6", refresh: "token-5"), to: &text)
        dump(OAuthRenewal(access: "token-7", refresh: "token-8"), to: &text)
        #expect(!text.contains("token-"))
    }

    @Test func `C01 after a refusal calls fail at once and do not run their tasks`() async throws {
        let runner = DependentRunner<Int>(1) { _ in .updateFailed }
        let runs = Locked(0)
        for _ in 0..<3 {
            await #expect(throws: RunnerError.self) {
                try await runner.run { _ in
                    runs.withLock { $0 += 1 }
                    return RunResult<Int>.badDependency
                }
            }
        }
        #expect(runs.withLock { $0 } == 1)
    }
}
