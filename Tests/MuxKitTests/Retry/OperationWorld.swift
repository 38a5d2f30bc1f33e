import Foundation
import MuxKit
import MuxTesting
import Testing

/// The ways in which the work of an operation reports its end.
enum Manner: CaseIterable, Sendable {
    /// Before the closure returns.
    case synchronous
    /// After the return of the closure, from another thread.
    case asynchronous
    /// By the end of a Swift task.
    case task
}

/// Makes operations whose attempts end according to a script.
struct OperationWorld: Sendable {
    /// The result of an attempt.
    enum Step: Sendable {
        case value(Int)
        case failure(RetryProvider.Plan)
    }

    let retry = RetryWorld()
    let runs = Tally()
    let queue = OperationQueue()

    func operation(
        _ manner: Manner,
        _ policy: RetryPolicy = .fixed(.seconds(10), maxAttempts: 9, jitter: .none),
        wakingOn wakeUps: [RetrySignal.WakeUp] = [],
        steps: [Step]
    ) -> RetryingOperation<Int> {
        var loop = self.retry.loop(policy)
        loop.wakeUps = wakeUps
        let next = { @Sendable (attempt: RetryPolicy.Attempt) in
            self.runs.add()
            return attempt.index < steps.count ? steps[attempt.index] : .value(-1)
        }
        switch manner {
        case .synchronous:
            return RetryingOperation(loop) { run in Self.end(run, next(run.attempt)) }
        case .asynchronous:
            return RetryingOperation(loop) { run in
                let step = next(run.attempt)
                DispatchQueue.global().async { Self.end(run, step) }
            }
        case .task:
            // A task can only throw, so the plan comes from a provider.
            let provider = RetryProvider { failure in
                guard case .failure(let plan) = steps[failure.index] else { return .pass }
                return plan
            }
            loop.providers = [provider]
            return RetryingOperation(
                loop,
                work: { attempt in
                    switch next(attempt) {
                    case .value(let value): return value
                    case .failure: throw Flaky(call: attempt.index)
                    }
                }
            )
        }
    }

    private static func end(_ run: RetryingOperation<Int>.Run, _ step: Step) {
        switch step {
        case .value(let value): run.end(returning: value)
        case .failure(let plan): run.end(throwing: Flaky(call: run.attempt.index), plan)
        }
    }

    /// Adds the operation to the queue and suspends until the operation has ended.
    func run(_ operation: Operation) async {
        await withCheckedContinuation { continuation in
            let end = BlockOperation { continuation.resume() }
            end.addDependency(operation)
            self.queue.addOperations([operation, end], waitUntilFinished: false)
        }
    }

    /// Adds the operation to the queue.
    ///
    /// The returned task ends after the operation.
    func begin(_ operation: Operation) -> Task<Void, Never> { Task { await self.run(operation) } }

    /// The number of logged lines with the suffix `end`.
    func count(_ end: String) -> Int { self.retry.lines.withLock { $0.count { $0.hasSuffix(end) } } }
}
