import Dispatch

/// Work that keeps a processor busy, run on Dispatch's threads so that it holds up nobody's `await`.
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
