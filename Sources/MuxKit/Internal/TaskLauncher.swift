import Dispatch

/// Starts the library's unstructured tasks: the only place that does.
///
/// The owner of a task keeps its handle and cancels it. Tests inject an executor, or a ``JobSchedule``.
@usableFromInline
package struct TaskLauncher: Sendable {
    /// What decides about the order of all that the present task starts; `nil` outside such tests.
    @TaskLocal package static var schedule: (any JobSchedule)?

    private let executor: (any TaskExecutor)?

    /// Tasks run on `executor`, or on the concurrent pool if it is `nil`.
    package init(executor: (any TaskExecutor)? = nil) {
        self.executor = executor
    }

    /// Starts `operation` in a task that inherits the task-locals of the caller, and its priority unless one is given.
    ///
    /// Where nothing decides where tasks run, it runs on `usual`, or on the concurrent pool if that is `nil`.
    @discardableResult
    package func callAsFunction(
        name: String,
        priority: TaskPriority? = nil,
        otherwiseOn usual: (any TaskExecutor)? = nil,
        _ operation: @escaping @Sendable @concurrent () async -> Void
    ) -> Task<Void, Never> {
        let executor = self.executor ?? Self.schedule ?? usual
        return Task(name: name, executorPreference: executor, priority: priority, operation: operation)
    }
}

extension TaskLauncher {
    /// Starts `operation` in a task that belongs to no caller: it inherits no task-locals, priority or schedule.
    static func uninherited(name: String, _ operation: @escaping @Sendable @concurrent () async -> Void) {
        Task.detached(name: name, priority: .high, operation: operation)
    }
}

/// An executor that decides in which order everything runs: how a test sees every order that there is.
package protocol JobSchedule: TaskExecutor {
    /// Runs `action` between two jobs, when its turn comes: what other threads do in earnest.
    func later(_ action: @escaping @Sendable () -> Void)

    /// Says that what the present job does last brings exactly one more, from whatever thread: no other runs before.
    func awaitArrival()
}

/// Runs `operation`, which throws nothing, to its end, whatever becomes of the caller's task.
///
/// `started` is given the task that runs it.
package func finishing<Success: Sendable>(
    _ operation: @escaping @Sendable @concurrent () async -> Success,
    started: (Task<Success, Never>) -> Void = { _ in }
) async -> Success {
    let task = Task(executorPreference: TaskLauncher.schedule, operation: operation)
    started(task)
    return await task.value
}

extension Task {
    /// Has the task run at `priority` at least, where the system can raise it.
    @usableFromInline
    package func raisePriority(to priority: TaskPriority) {
        guard #available(macOS 26, iOS 26, tvOS 26, watchOS 26, visionOS 26, *) else { return }
        self.escalatePriority(to: priority)
    }
}

/// An answer that one task waits for and several may give: the first one counts.
package final class FirstAnswer<Answer: Sendable>: Sendable {
    private enum State: Sendable {
        case open(CheckedContinuation<Answer, Never>?)
        case answered(Answer)
    }

    private let state = Locked(State.open(nil))

    package init() {}

    /// Resumes the task that waits for the answer.
    ///
    /// - Returns: Whether this is the first answer.
    @discardableResult
    package func give(_ answer: Answer) -> Bool {
        let (isFirst, waiter) = self.state.withLock { state -> (Bool, CheckedContinuation<Answer, Never>?) in
            guard case .open(let waiter) = state else { return (false, nil) }
            state = .answered(answer)
            return (true, waiter)
        }
        waiter?.resume(returning: answer)
        return isFirst
    }

    /// Suspends until there is an answer; for one task.
    package nonisolated(nonsending) func wait() async -> Answer {
        await withCheckedContinuation { continuation in
            let answer = self.state.withLock { state -> Answer? in
                if case .answered(let answer) = state { return answer }
                state = .open(continuation)
                return nil
            }
            if let answer { continuation.resume(returning: answer) }
        }
    }
}

/// Work that keeps a processor busy, run on Dispatch's threads so that it blocks no thread of the cooperative pool.
package enum BlockingWork {
    /// Runs `work`, which may block, on one of Dispatch's threads.
    package static func run<Result: Sendable>(_ work: @escaping @Sendable () -> Result) async -> Result {
        await withCheckedContinuation { continuation in
            if let schedule = TaskLauncher.schedule { return schedule.later { continuation.resume(returning: work()) } }
            DispatchQueue.global(qos: .userInitiated).async { continuation.resume(returning: work()) }
        }
    }

    /// Transforms `items` in parallel; results come in the order of the items.
    package static func map<Item: Sendable, Result: Sendable>(
        _ items: [Item],
        _ transform: @escaping @Sendable (Item) -> Result
    ) async -> [Result] {
        guard !items.isEmpty else { return [] }
        if TaskLauncher.schedule != nil { return await self.run { items.map(transform) } }
        let chunk = max(16, (items.count + 63) / 64)
        let starts = Array(stride(from: 0, to: items.count, by: chunk))
        return await withCheckedContinuation { continuation in
            DispatchQueue.global(qos: .utility).async {
                let parts = Locked([Int: [Result]]())
                DispatchQueue.concurrentPerform(iterations: starts.count) { part in
                    let start = starts[part]
                    let results = items[start..<min(start + chunk, items.count)].map(transform)
                    parts.withLock { $0[part] = results }
                }
                let sorted = parts.withLock { parts in starts.indices.flatMap { parts[$0] ?? [] } }
                continuation.resume(returning: sorted)
            }
        }
    }
}

/// Does `work` for all items at once and, where that fails, for parts of them, until those that fail are alone.
///
/// - Parameters:
///   - items: The items, which may be done in any order.
///   - concernsAll: Whether an error says that trying parts would be no use.
///   - work: Does something for all items that it is given, or throws.
/// - Returns: The items for which it failed, and why.
/// - Complexity: O(log *n*) calls for each item that fails. When ``mostFailuresInARow`` calls have failed one after another,
///   the rest counts as failed: nothing works any more.
package nonisolated(nonsending) func isolatingFailures<Item>(
    of items: [Item],
    concernsAll: (any Error) -> Bool,
    _ work: ([Item]) async throws -> Void
) async -> [(item: Item, error: any Error)] {
    var failures: [(item: Item, error: any Error)] = []
    var parts = items.isEmpty ? [] : [items]
    var failuresInARow = 0
    while let part = parts.popLast() {
        do {
            try await work(part)
            failuresInARow = 0
        } catch {
            failuresInARow += 1
            if failuresInARow >= mostFailuresInARow {
                failures += (parts.flatMap(\.self) + part).map { ($0, error) }
                return failures
            }
            guard part.count > 1, !concernsAll(error) else {
                failures += part.map { ($0, error) }
                continue
            }
            // Every second one, so that neighbours, which are often of one kind, come apart.
            for remainder in 0...1 {
                parts.append(part.indices.filter { $0 % 2 == remainder }.map { part[$0] })
            }
        }
    }
    return failures
}

/// Enough to find its way to single ones of millions of items, few enough for a store that is down.
private let mostFailuresInARow = 64
