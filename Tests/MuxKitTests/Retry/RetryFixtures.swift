import Foundation
import MuxKit
import MuxTesting
import Testing

/// A transient error, like a lost connection.
struct Flaky: Error, Equatable {
    var call = 0
}

/// An error with retry advice that the test sets.
struct Advised: RetryableError {
    var retryAdvice: RetryAdvice

    init(_ advice: RetryAdvice) { self.retryAdvice = advice }

    static func status(_ status: Int, retryAfter: Duration? = nil, isRepeatable: Bool = true) -> Advised {
        Advised(
            RetryAdvice(isTransient: status >= 500, isRepeatable: isRepeatable, status: status, retryAfter: retryAfter)
        )
    }
}

/// A helper that counts its set-ups and tear-downs.
///
/// The test triggers the wake-up.
final class CountingHelper: Sendable {
    private struct State: Sendable {
        var setUps = 0
        var tearDowns = 0
        var wake: (@Sendable () -> Void)?
    }

    private let state = Locked(State())
    private let ready = Tally()
    private let over = Tally()

    /// Whether the helper wakes during its set-up.
    let isHasty: Bool

    init(isHasty: Bool = false) { self.isHasty = isHasty }

    func setUp(wake: @escaping @Sendable () -> Void) {
        self.state.withLock { state in
            state.setUps += 1
            state.wake = wake
        }
        if self.isHasty { wake() }
        self.ready.add()
    }

    func tearDown() {
        self.state.withLock { $0.tearDowns += 1 }
        self.over.add()
    }

    func fire() { self.state.withLock { $0.wake }?() }

    /// Suspends until the first tear-down, because a wait that ends during its set-up may be torn down later.
    func waitForTearDown() async { await self.over.reached(1) }

    func waitForSetUp(_ count: Int = 1) async { await self.ready.reached(count) }

    var setUps: Int { self.state.withLock { $0.setUps } }
    var tearDowns: Int { self.state.withLock { $0.tearDowns } }
}

extension RetrySignal.WakeUp {
    static func helper(_ helper: CountingHelper) -> RetrySignal.WakeUp {
        RetrySignal.WakeUp(name: "helper") { wake in
            helper.setUp(wake: wake)
            return { helper.tearDown() }
        }
    }
}

/// The environment of a test of `retry`: virtual time, chosen random numbers and a log.
struct RetryWorld: Sendable {
    let clock = VirtualClock()
    let lines = Locked<[String]>([])
    let tally = Tally()
    var random: @Sendable () -> Double = { 0.5 }

    var log: RetryLog {
        RetryLog { [lines, tally] event in
            lines.withLock { $0.append("\(event)") }
            tally.add()
        }
    }

    func loop(
        _ policy: RetryPolicy,
        on host: RetryPolicy.Host? = nil,
        wakingOn wakeUps: RetrySignal.WakeUp...,
        providers: [RetryProvider] = []
    ) -> RetryLoop {
        RetryLoop(
            policy,
            host: host,
            wakeUps: wakeUps,
            providers: providers,
            log: self.log,
            time: TimeSource(self.clock),
            random: self.random
        )
    }

    /// Ends each of the next `count` waits by advancing the clock to the deadline of the wait.
    ///
    /// - Returns: The duration of each wait.
    func passWaits(_ count: Int) async -> [Duration] {
        var waits: [Duration] = []
        for _ in 0..<count {
            // A sleeper that was replaced may leave between the two calls.
            var wait: Duration?
            while wait == nil {
                await self.clock.waitForSleepers(1)
                wait = self.clock.advanceToNextDeadline()
            }
            waits.append(wait ?? .zero)
        }
        return waits
    }
}

/// The error that `body` throws, if it is a ``RetryError``.
func retryError(_ body: () async throws -> Void) async -> RetryError? {
    do {
        try await body()
        return nil
    } catch {
        return error as? RetryError
    }
}
