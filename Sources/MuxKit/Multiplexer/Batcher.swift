/// Gathers the fetches of single keys into fetches of many.
///
/// Each key is still fetched by its own flight, which waits here for its part of a batch; so whatever holds for flights holds
/// for keys in a batch. A key whose flight is cancelled before the batch begins is not in it; a batch that no flight waits
/// for any more is cancelled. To those who look for circles a batch is one more thing that flights wait for.
final class Batcher<Key: Hashable & Sendable, Value: Sendable>: Sendable {
    private typealias Waiter = CheckedContinuation<Value, any Error>

    private struct Batch: Sendable {
        /// By number, in the order of arrival; from before and after a fence there may be two of one key.
        var waiters: [UInt64: (key: Key, waiter: Waiter)] = [:]
        var timer: Task<Void, Never>?
        var fetch: Task<Void, Never>?
        /// The highest of those who wait.
        var priority = TaskPriority.background
    }

    private struct Place: Sendable {
        let batch: UInt64
        let number: UInt64
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

    /// What is to be done for one who has come, once the lock is let go.
    private enum Arrival {
        case startTimer
        case begin
        case wait
    }

    private let state = Locked(State())
    private let batching: MuxBatching
    private let time: TimeSource
    private let spawn: TaskLauncher
    private let fetch: @Sendable @concurrent ([Key]) async throws -> [Key: Value]

    init(
        _ batching: MuxBatching,
        time: TimeSource,
        spawn: TaskLauncher,
        fetch: @escaping @Sendable @concurrent ([Key]) async throws -> [Key: Value]
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
        let caller = FlightContext.current
        let place = Locked<Place?>(nil)
        defer { if let here = place.withLock({ $0 }) { WaitForGraph.end(WaitForGraph.WaitID(self, here.number)) } }
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { (continuation: Waiter) in
                let (here, arrival) = self.arrive(key, continuation, caller)
                place.withLock { $0 = here }
                switch arrival {
                case .startTimer: self.startTimer(of: here.batch)
                case .begin: self.begin(here.batch)
                case .wait: break
                }
                if Task.isCancelled { self.leave(here) }
            }
        } onCancel: {
            if let here = place.withLock({ $0 }) { self.leave(here) }
        }
    }

    private func arrive(
        _ key: Key,
        _ waiter: Waiter,
        _ caller: FlightContext?
    ) -> (Place, Arrival) {
        let priority = Task.currentPriority
        return self.state.withLock { state in
            let number = state.nextID()
            let isFirst = state.gathering == nil
            let id = state.gathering ?? state.nextID()
            state.gathering = id
            var batch = state.batches[id] ?? Batch()
            batch.waiters[number] = (key, waiter)
            batch.priority = max(batch.priority, priority)
            state.batches[id] = batch
            // A batch that gathers waits for nobody, so this cannot close a circle.
            let wait = WaitForGraph.WaitID(self, number)
            if let caller { _ = WaitForGraph.begin(wait, of: caller, for: WaitForNode(self, id, id), isNew: false) }
            let isFull = batch.waiters.count >= max(self.batching.maximumSize, 1)
            return (Place(batch: id, number: number), isFull ? .begin : isFirst ? .startTimer : .wait)
        }
    }

    private func leave(_ place: Place) {
        let (waiter, tasks) = self.state.withLock { state -> (Waiter?, [Task<Void, Never>?]) in
            let waiter = state.batches[place.batch]?.waiters.removeValue(forKey: place.number)?.waiter
            guard let batch = state.batches[place.batch], batch.waiters.isEmpty else { return (waiter, []) }
            state.batches[place.batch] = nil
            if state.gathering == place.batch { state.gathering = nil }
            return (waiter, [batch.timer, batch.fetch])
        }
        waiter?.resume(throwing: CancellationError())
        for task in tasks { task?.cancel() }
    }

    private func startTimer(of batch: UInt64) {
        let (time, window) = (self.time, self.batching.window)
        let timer = self.spawn(name: "mux.batch.window") { [weak self] in
            guard (try? await time.sleep(for: window)) != nil else { return }
            self?.begin(batch)
        }
        let isOver = self.state.withLock { state in
            guard state.gathering == batch else { return true }
            state.batches[batch]?.timer = timer
            return false
        }
        if isOver { timer.cancel() }
    }

    /// Closes the batch and fetches it, unless that has happened.
    private func begin(_ batch: UInt64) {
        let closed = self.state.withLock { state -> Batch? in
            guard state.gathering == batch else { return nil }
            state.gathering = nil
            return state.batches[batch]
        }
        guard let closed else { return }
        var asked: Set<Key> = []
        let keys = closed.waiters.sorted { $0.key < $1.key }.map(\.value.key).filter { asked.insert($0).inserted }
        let fetch = self.fetch
        let node = WaitForNode(self, batch, batch)
        let task = self.spawn(name: "mux.batch", priority: closed.priority, for: node) { [weak self] in
            do {
                let values = try await fetch(keys)
                self?.end(batch) { key in values[key].map(Result.success) ?? .failure(MuxError.notFound) }
            } catch {
                self?.end(batch) { _ in .failure(error) }
            }
        }
        let isGone = self.state.withLock { state in
            guard state.batches[batch] != nil else { return true }
            state.batches[batch]?.fetch = task
            return false
        }
        if isGone { task.cancel() }
        closed.timer?.cancel()
    }

    private func end(_ batch: UInt64, _ result: (Key) -> Result<Value, any Error>) {
        let waiters = self.state.withLock { $0.batches.removeValue(forKey: batch)?.waiters ?? [:] }
        for (_, place) in waiters.sorted(by: { $0.key < $1.key }) { place.waiter.resume(with: result(place.key)) }
    }
}
