import Foundation
import MuxKit
import MuxTesting
import Testing

/// An error that another attempt may mend, as a lost connection is.
struct Flaky: Error, Equatable {
    var call = 0
}

/// An error with advice of the test's own.
struct Advised: RetryableError {
    var retryAdvice: RetryAdvice

    init(_ advice: RetryAdvice) { self.retryAdvice = advice }

    static func status(_ status: Int, retryAfter: Duration? = nil, isRepeatable: Bool = true) -> Advised {
        Advised(
            RetryAdvice(isTransient: status >= 500, isRepeatable: isRepeatable, status: status, retryAfter: retryAfter)
        )
    }
}

/// A helper that counts what is done to it and wakes when the test says so.
final class CountingHelper: Sendable {
    private struct State: Sendable {
        var setUps = 0
        var tearDowns = 0
        var wake: (@Sendable () -> Void)?
    }

    private let state = Locked(State())
    private let ready = Tally()
    private let over = Tally()

    /// Whether it wakes while it is still being set up.
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

    /// A wait that ends while it is still being set up may be torn down a little later.
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

/// What a test of `retry` needs: virtual time, chance of its choice, a log.
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

    /// Lets the next `count` waits pass, each when its time is over.
    ///
    /// - Returns: How long each was.
    func passWaits(_ count: Int) async -> [Duration] {
        var waits: [Duration] = []
        for _ in 0..<count {
            await self.clock.waitForSleepers(1)
            waits.append(self.clock.advanceToNextDeadline() ?? .zero)
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
