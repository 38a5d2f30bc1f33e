/// Gathers the fetches of single keys into fetches of many.
///
/// Each key is still fetched by its own flight, which waits here for its part of a batch; so whatever holds for flights holds
/// for keys in a batch. A key whose flight is cancelled before the batch begins is not in it; a batch that no flight waits
/// for any more is cancelled.
final class Batcher<Key: Hashable & Sendable, Value: Sendable>: Sendable {
    private typealias Waiter = CheckedContinuation<Value, any Error>

    private struct Batch: Sendable {
        var waiters: [UInt64: (key: Key, waiter: Waiter)] = [:]
        var task: Task<Void, Never>?
    }

    private struct State: Sendable {
        /// The batch that gathers keys; none if no key waits.
        var gathering: UInt64?
        var batches: [UInt64: Batch] = [:]
        var lastID: UInt64 = 0

        mutating func nextID() -> UInt64 {
            self.lastID &+= 1
            return self.lastID
        }
    }

    private enum Arrival {
        case first(UInt64)
        case full(UInt64)
        case waiting
    }

    private let state = Guarded(State())
    private let batching: MuxBatching
    private let time: TimeSource
    private let spawn: Spawn
    private let fetch: @Sendable ([Key]) async throws -> [Key: Value]

    init(
        _ batching: MuxBatching,
        time: TimeSource,
        spawn: Spawn,
        fetch: @escaping @Sendable ([Key]) async throws -> [Key: Value]
    ) {
        self.batching = batching
        self.time = time
        self.spawn = spawn
        self.fetch = fetch
    }

    /// Returns the value of `key` from the batch that it falls into.
    ///
    /// - Throws: ``MuxError/notFound`` if the batch brings none for it, what the fetch threw, or `CancellationError`.
    func value(of key: Key) async throws -> Value {
        let place = Guarded<UInt64?>(nil)
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { (continuation: Waiter) in
                let (id, arrival) = self.arrive(key, continuation)
                place.withLock { $0 = id }
                switch arrival {
                case .first(let batch): self.startTimer(of: batch)
                case .full(let batch): self.begin(batch)
                case .waiting: break
                }
                if Task.isCancelled { self.leave(id) }
            }
        } onCancel: {
            if let id = place.withLock({ $0 }) { self.leave(id) }
        }
    }

    private func arrive(_ key: Key, _ waiter: Waiter) -> (UInt64, Arrival) {
        self.state.withLock { state in
            let id = state.nextID()
            let isFirst = state.gathering == nil
            let batch = state.gathering ?? state.nextID()
            state.gathering = batch
            state.batches[batch, default: Batch()].waiters[id] = (key, waiter)
            if (state.batches[batch]?.waiters.count ?? 0) >= max(self.batching.maximumSize, 1) {
                return (id, .full(batch))
            }
            return (id, isFirst ? .first(batch) : .waiting)
        }
    }

    private func leave(_ id: UInt64) {
        let (waiter, task) = self.state.withLock { state -> (Waiter?, Task<Void, Never>?) in
            guard let batch = state.batches.first(where: { $0.value.waiters[id] != nil })?.key else {
                return (nil, nil)
            }
            let waiter = state.batches[batch]?.waiters.removeValue(forKey: id)?.waiter
            guard state.batches[batch]?.waiters.isEmpty ?? false else { return (waiter, nil) }
            let task = state.batches.removeValue(forKey: batch)?.task
            if state.gathering == batch { state.gathering = nil }
            return (waiter, task)
        }
        waiter?.resume(throwing: CancellationError())
        task?.cancel()
    }

    private func startTimer(of batch: UInt64) {
        let (time, window) = (self.time, self.batching.window)
        self.run(batch, "mux.batch.window") { [weak self] in
            guard (try? await time.sleep(for: window)) != nil else { return }
            self?.begin(batch)
        }
    }

    /// Closes the batch and fetches it, unless that has happened.
    private func begin(_ batch: UInt64) {
        let (keys, timer) = self.state.withLock { state -> ([Key], Task<Void, Never>?) in
            guard state.gathering == batch else { return ([], nil) }
            state.gathering = nil
            let waiting = state.batches[batch]
            let keys = waiting?.waiters.sorted { $0.key < $1.key }.map(\.value.key) ?? []
            return (keys, waiting?.task)
        }
        guard !keys.isEmpty else { return }
        let fetch = self.fetch
        self.run(batch, "mux.batch") { [weak self] in
            do {
                let values = try await fetch(keys)
                self?.end(batch) { key in values[key].map(Result.success) ?? .failure(MuxError.notFound) }
            } catch {
                self?.end(batch) { _ in .failure(error) }
            }
        }
        timer?.cancel()
    }

    private func run(_ batch: UInt64, _ name: String, _ work: @escaping @Sendable () async -> Void) {
        let task = self.spawn(name: name) { await work() }
        let isGone = self.state.withLock { state -> Bool in
            guard state.batches[batch] != nil else { return true }
            state.batches[batch]?.task = task
            return false
        }
        if isGone { task.cancel() }
    }

    private func end(_ batch: UInt64, _ result: (Key) -> Result<Value, any Error>) {
        let waiters = self.state.withLock { $0.batches.removeValue(forKey: batch)?.waiters ?? [:] }
        for (_, place) in waiters.sorted(by: { $0.key < $1.key }) { place.waiter.resume(with: result(place.key)) }
    }
}
