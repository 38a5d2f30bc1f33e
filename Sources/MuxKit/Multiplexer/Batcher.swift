/// Gathers fetches of single keys into fetches of many keys.
///
/// A batch is a flight of a separate ``FlightEngine``, with the number of the batch as the key. The callers
/// of this flight are the fetches of the single keys. As a result:
///
/// - A key is not fetched if the fetch of the key is cancelled before the fetch of the batch begins.
/// - A batch without callers is cancelled.
/// - If the fetch of a batch waits for one of its own keys, the deadlock is detected.
final class Batcher<Key: Hashable & Sendable, Value: Sendable>: Sendable {
    /// The output is `nil` for a key that arrived after the batch was closed; the key joins a later batch.
    private typealias Engine = FlightEngine<UInt64, [Key: Value]?, State>

    private struct State: Sendable, SelfChecking {
        /// The number of the batch that accepts keys.
        var openBatch: UInt64 = 0
        /// The keys of the waiting fetches, by batch and ticket.
        ///
        /// If a fence occurs during the fetch of a key, the next fetch of the key may join the same batch, so
        /// a batch may have several tickets of one key.
        var keys: [UInt64: [Ticket: Key]] = [:]
        /// The timer of the batch that accepts keys.
        var window: Task<Void, Never>?

        mutating func remove(_ ticket: Ticket, from batch: UInt64) {
            self.keys[batch]?[ticket] = nil
            if self.keys[batch]?.isEmpty ?? false { self.keys[batch] = nil }
        }

        /// Closes `batch`: further keys join the next batch.
        ///
        /// - Returns: The timer to cancel; `nil` without a timer, or if `batch` was closed before.
        mutating func close(_ batch: UInt64) -> Task<Void, Never>? {
            guard self.openBatch == batch else { return nil }
            self.openBatch += 1
            return self.window.take()
        }

        func leftover() -> String? { self.keys.isEmpty ? nil : "the keys of \(self.keys.count) batches are left" }
    }

    private let engine: Engine
    private let batching: MuxPolicy.Batching
    private let fetch: @Sendable @concurrent ([Key]) async throws -> [Key: Value]

    init(
        _ batching: MuxPolicy.Batching,
        time: TimeSource,
        spawn: TaskLauncher,
        fetch: @escaping @Sendable @concurrent ([Key]) async throws -> [Key: Value]
    ) {
        self.batching = batching
        self.fetch = fetch
        let options = Engine.Options(name: "mux.batch", linger: .zero, wouldDeadlock: MuxError.wouldDeadlock)
        self.engine = Engine(State(), options, time: time, spawn: spawn)
        self.engine.setWork { [weak self] batch, flight in await self?.fly(batch, flight) }
    }

    /// Adds `key` to a batch, and returns the key's value.
    ///
    /// - Throws: ``MuxError/notFound`` if the result has no value for `key`; the error of the fetch;
    ///   ``MuxError/wouldDeadlock`` if the wait would never end; `CancellationError` if the caller is
    ///   cancelled.
    func value(of key: Key) async throws -> Value {
        while true {
            let batch = self.engine.withState { $0.openBatch }
            let ticket = self.engine.nextID()
            var window: Task<Void, Never>?
            defer { self.engine.withState { $0.remove(ticket, from: batch) } }
            let landing = try await withTaskCancellationHandler {
                try await self.engine.enter(
                    batch,
                    ticket: ticket,
                    decide: { $0.openBatch == batch ? .fly : .answer(nil) },
                    joined: { state, _ in
                        state.keys[batch, default: [:]][ticket] = key
                        let count = state.keys[batch]?.count ?? 0
                        if count >= self.batching.maximumSize { window = state.close(batch) }
                    },
                    arrived: { window?.cancel() }
                )
            } onCancel: {
                // Not only in the `defer`: a cancelled key must not count towards the size of the batch.
                self.engine.withState { $0.remove(ticket, from: batch) }
            }
            guard case .output(let values?) = landing else { continue }
            guard let value = values[key] else { throw MuxError.notFound }
            return value
        }
    }

    private func fly(_ batch: UInt64, _ flight: FlightID) async {
        await self.waitForWindow(of: batch)
        do {
            try Task.checkCancellation()
            var keys: [Key] = []
            let isOver = self.engine.answerEarly(flight, of: batch) { state, tickets in
                _ = state.close(batch)
                keys = tickets.compactMap { state.keys[batch]?[$0] }
                var early = Engine.EarlyAnswers()
                early.isOver = true
                return early
            }
            guard !isOver else { return }
            var seen: Set<Key> = []
            let distinct = keys.filter { seen.insert($0).inserted }
            let values = try await self.fetch(distinct)
            self.engine.land(flight, of: batch, failed: false) { _, _ in .success(values) }
        } catch {
            self.engine.land(flight, of: batch, failed: true) { _, _ in .failure(error) }
        }
    }

    /// Returns when the window has passed, the batch is full, or the current task is cancelled.
    private func waitForWindow(of batch: UInt64) async {
        guard self.engine.withState({ $0.openBatch == batch }) else { return }
        let (time, window) = (self.engine.time, self.batching.window)
        let timer: Task<Void, Never> = self.engine.spawn(name: "mux.batch.window") {
            try? await time.sleep(for: window)
        }
        let isOpen = self.engine.withState { state in
            guard state.openBatch == batch else { return false }
            state.window = timer
            return true
        }
        guard isOpen else { return timer.cancel() }
        await withTaskCancellationHandler {
            await timer.value
        } onCancel: {
            timer.cancel()
        }
    }
}
