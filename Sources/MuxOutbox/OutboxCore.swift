import Foundation
import MuxKit

/// The storage, the senders and the session of an outbox.
///
/// Each operation has exclusive access to the log. If the file is usable, an operation first reads the
/// records of other processes. Then the operation changes the log, and starts senders for lanes with changes
/// to send.
final class OutboxCore<Change: Codable & Sendable>: Sendable {
    typealias ID = OutboxStateMachine.ID
    typealias Item = OutboxStateMachine.Item
    typealias Attempt = MuxOutbox<Change>.Attempt
    typealias Deliver = MuxOutbox<Change>.Deliver

    /// The state outside of the log.
    struct State: Sendable {
        /// Whether the app has released the outbox.
        var isStopped = false
        /// Whether an operation has compared the session of the log with the session of the repository.
        var hasComparedSessions = false
        /// The number of failures without a connection, of all lanes, since the last attempt that may have
        /// reached a server.
        var offlineFailures = 0
        /// The senders, by lane.
        var senders: [String: OutboxSender] = [:]
        /// The tenure of the lease in which the states of interrupted attempts were last written, if any.
        var tenure: UInt64?
        /// Whether a failed change prevents the sending of a later change of the lane; `nil` if a failed
        /// change prevents nothing.
        var isBlocked: (@Sendable (_ later: Change, _ failed: Change) -> Bool)?
        /// The number of dropped changes since the last call of ``OutboxCore/takeDroppedChanges()``.
        var dropped = 0
        /// The updates of the list for the overlays and the consumers, in order.
        var events: [Event] = []
        /// Whether a call of ``OutboxCore/deliverEvents()`` is delivering ``events``.
        var isDelivering = false
        /// The operations waiting for the end of a delivery.
        var deliveryWaiters: [CheckedContinuation<Void, Never>] = []
        /// The number of running and waiting operations.
        var operations = 0
    }

    /// An update of the list, with the change and its payload at the time of the update.
    ///
    /// Without an overlay, `item` and `payload` are `nil`.
    typealias Event = (kind: OutboxLog.Event, item: Item?, payload: Data?)

    let name: String
    let policy: MuxOutboxPolicy
    let repositoryChoice: RepositoryChoice
    let overlays = OutboxOverlays<Change>()
    let state = Locked(State())
    /// Sends a signal after each delivery of events; a delivery can contain many changes of the list.
    let listSignals = Broadcast<Int, Void>()
    let lease: LeaseHolder
    let loop: RetryLoop
    let deliver: Deliver
    /// Limits the number of lanes that send at the same time.
    let slots: PrioritySemaphore<String>
    private let log: Locked<OutboxLog>
    /// Serialises the operations on the log.
    private let mutex = AsyncMutex()
    private let laneOfChange: @Sendable (Change) throws -> String

    var repository: MuxRepository { self.repositoryChoice.repository }

    init(
        _ name: String,
        repository: RepositoryChoice,
        folder: StoreFolder,
        policy: MuxOutboxPolicy,
        wakeUps: [RetrySignal.WakeUp],
        fileSystem: any FileSystem,
        lease: (any MuxLease)?,
        leaseDuration: Duration,
        order: @escaping @Sendable (Change) throws -> String,
        deliver: @escaping Deliver
    ) {
        let owner = repository.repository
        self.name = name
        self.policy = policy
        self.repositoryChoice = repository
        self.laneOfChange = order
        self.deliver = deliver
        self.slots = PrioritySemaphore(limit: policy.maximumConcurrentLanes)
        self.log = Locked(
            OutboxLog(
                folder,
                policy: policy,
                fileSystem: fileSystem,
                problems: owner.problems,
                wallTime: owner.wallTime,
                time: owner.time
            )
        )
        let lease =
            lease
            ?? FileLease(
                OwnedName(.lease, ["MuxOutbox"]),
                in: folder,
                fileSystem: fileSystem,
                problems: owner.problems,
                wallTime: owner.wallTime,
                time: owner.time
            )
        self.lease = LeaseHolder(lease, owner: UUID().uuidString, duration: leaseDuration, time: owner.time)
        // The sender counts the attempts of a change: a failure of the disk or of the lease is no attempt.
        var retry = policy.retry
        retry.maxAttempts = .max
        // Longer than the wait after the first of these failures. The end of the time after such a failure
        // ends the sender, and a new sender starts at once.
        retry.maximumDuration = retry.maximumDuration.map { max($0, .seconds(2)) }
        self.loop = RetryLoop(
            retry,
            wakeUps: wakeUps,
            time: owner.time,
            random: owner.random,
            spawn: owner.spawn
        )
        owner.attach(self)
        Inspection.inspector?.note(self)
    }

    /// Ends all senders; the app has released the outbox.
    func stop() {
        self.state.withLock { $0.isStopped = true }
        self.cancelSenders()
    }

    func cancelSenders() { for sender in self.state.withLock({ $0.senders }).values { sender.cancel() } }

    // MARK: - Operations

    /// Runs `body` on the log, after all earlier operations.
    ///
    /// - Throws: `MuxStoreError`, if `body` has not run or has failed; the error of the repository, if the
    ///   session cannot be read, or cannot be raised to the session of the log. If the session cannot be
    ///   raised, `body` may have run.
    func perform<R: Sendable>(
        _ body: @escaping @Sendable (OutboxLog) throws(MuxStoreError) -> R
    ) async throws -> R {
        // Outside of the mutex: a sign-out, which `currentEpoch` waits for, uses the mutex.
        let session = try await self.repository.currentEpoch()
        let (result, logSession) = await self.update { log throws(MuxStoreError) in
            log.drop(before: session)
            return try body(log)
        }
        if case .success = result { self.state.withLock { $0.hasComparedSessions = true } }
        if session < logSession {
            try await self.repository.adoptSession(logSession, sparing: self.identity)
            // The end of a session removes all values with the shown changes: show the changes again.
            await self.updateEvenWithoutFile { $0.queueRedisplay() }
        }
        return try result.get()
    }

    /// As ``perform(_:)``, without a read of the repository's session; returns also the session of the log.
    func update<R: Sendable>(
        _ body: @escaping @Sendable (OutboxLog) throws(MuxStoreError) -> R
    ) async -> (Result<R, MuxStoreError>, session: UInt64) {
        await self.run { log in Result { () throws(MuxStoreError) in try log.update(body) } }
    }

    /// As ``update(_:)``; if the file is unusable, `body` changes only the memory.
    ///
    /// A failed write of a state is repeated by the first later operation with a usable file.
    func updateEvenWithoutFile<R: Sendable>(_ body: @escaping @Sendable (OutboxLog) -> R) async -> R {
        await self.run { $0.updateEvenWithoutFile(body) }.0
    }

    /// Runs `body`, delivers events, and then starts senders; returns also the session of the log.
    private func run<R: Sendable>(_ body: @escaping @Sendable (OutboxLog) -> R) async -> (R, session: UInt64) {
        self.state.withLock { $0.operations += 1 }
        defer { self.state.withLock { $0.operations -= 1 } }
        return await self.mutex.run {
            let (limit, waiting) = self.state.withLock { state in
                (state.laneLimit(self.policy.maximumConcurrentLanes), state.waitingCount)
            }
            let (result, session, startedLanes, rests) = await BlockingWork.run {
                self.log.withLock { log in
                    let result = body(log)
                    let session = log.machine.session
                    let startedLanes = log.machine.startLanes(upTo: limit)
                    self.queueEvents(of: log)
                    return (result, session, startedLanes, log.machine.senderCount <= waiting)
                }
            }
            self.deliverEvents()
            await self.waitForEventDelivery()
            self.start(startedLanes)
            // All senders wait: no response to a request for a change is outstanding.
            if rests { self.overlays.releaseHolds() }
            return (result, session)
        }
    }

    /// Reads the changes on the caller's thread, and shows the changes in the overlays.
    ///
    /// Then starts an operation in a separate task; the operation starts the senders.
    func restore() {
        let session = self.repository.knownEpoch
        self.log.withLock { log in
            try? log.readIfPresent()
            if let session { log.drop(before: session) }
            self.queueEvents(of: log)
        }
        self.deliverEvents()
        _ = ReentrantAsyncMutex.outside {
            self.repository.spawn(name: "mux.outbox") { [weak self] in _ = try? await self?.perform { _ in } }
        }
    }

    // MARK: - The list

    /// Adds a change to its lane; returns after the change is on disk and in the overlays.
    ///
    /// - Returns: The identity of the change.
    /// - Throws: `MuxOutboxError`; `MuxError/repositoryMismatch` if the dependency has another repository.
    func add(_ change: Change) async throws -> ID {
        try self.repositoryChoice.check(nil, name: self.name)
        let (lane, payload): (String, Data)
        do {
            lane = try self.laneOfChange(change)
            payload = try JSONEncoder().encode(change)
        } catch {
            throw MuxOutboxError.invalidChange(underlying: error)
        }
        guard !self.repository.isSigningOut else {
            // `currentEpoch` completes a sign-out that failed earlier.
            _ = try? await self.repository.currentEpoch()
            throw MuxOutboxError.sessionEnded
        }
        let id = UUID().uuidString
        do {
            // The repository may have lost the number of the session. An operation restores the number from
            // the log.
            if !self.state.withLock({ $0.hasComparedSessions }) { try await self.perform { _ in } }
            let session = try await self.repository.currentEpoch()
            let result = try await self.perform { log -> Result<Void, MuxOutboxError> in
                // The change belongs to the session at the time of the call.
                guard log.machine.session == session, !self.repository.isSigningOut else {
                    return .failure(.sessionEnded)
                }
                return Result { () throws(MuxOutboxError) in try log.append(payload, id: id, lane: lane) }
            }
            try result.get()
        } catch let error as MuxOutboxError {
            throw error
        } catch {
            throw MuxOutboxError.notStored(underlying: error)
        }
        self.tell(.changeAdded)
        return id
    }

    /// All changes, in the order of their addition; after a read error, the changes in memory.
    func list() async -> [MuxOutbox<Change>.PendingChange] {
        _ = try? await self.perform { _ in }
        return await BlockingWork.run {
            self.log.withLock { log in
                log.machine.all.compactMap { item in log.contents[item.id].map { (item, $0) } }
            }
        }.map { self.description(of: $0, $1) }
    }

    private func description(of item: Item, _ content: OutboxLog.Content) -> MuxOutbox<Change>.PendingChange {
        let change = item.isReadable ? self.decoded(content.payload) : nil
        let state: MuxOutbox<Change>.PendingChange.State =
            switch item.progress.status {
            case _ where change == nil: .unreadable
            case .waiting: .waiting
            case .sending: .sending
            case .refused: .refused(item.progress.message ?? "")
            case .expired: .expired
            case .unknown: .unknown
            }
        return MuxOutbox<Change>.PendingChange(
            id: item.id,
            change: change,
            lane: item.lane,
            addedAt: content.addedAt,
            attempts: item.progress.attempts,
            state: state
        )
    }

    /// The change of a payload; `nil` without a payload, or after a decoding error.
    func decoded(_ payload: Data?) -> Change? { payload.flatMap { try? JSONDecoder().decode(Change.self, from: $0) } }

    /// Lets a failed change wait for further attempts, with a new age.
    ///
    /// A change that the app cannot decode stays failed: a waiting change of this kind stops its lane.
    func retry(_ id: ID) async throws(MuxStoreError) {
        let key = UUID().uuidString
        let since = self.repository.wallTime().timeIntervalSince1970
        try await self.updateEvenWithoutFile(id) { log throws(MuxStoreError) in
            guard self.decoded(log.contents[id]?.payload) != nil else { return }
            let expiry = log.expiry(since: since)
            let item = log.machine.resetForRetry(id, key: key, since: since, expiry: expiry)
            if let item { try log.writeRetry(item) }
        }
    }

    /// Removes a change; an attempt of the change continues.
    func discard(_ id: ID) async throws(MuxStoreError) {
        // The lane may wait for the next attempt of the removed change: later changes need not wait.
        defer { self.state.withLock { $0.senders }.values.first { $0.change == id }?.retryNow() }
        try await self.updateEvenWithoutFile(id) { log throws(MuxStoreError) in try log.discard(id) }
    }

    /// Runs `body`.
    ///
    /// If the file is unusable, `body` runs only if the change is in memory.
    ///
    /// - Throws: The error of the file, or of `body`.
    private func updateEvenWithoutFile(
        _ id: ID,
        _ body: @escaping @Sendable (OutboxLog) throws(MuxStoreError) -> Void
    ) async throws(MuxStoreError) {
        let result = await self.updateEvenWithoutFile { log -> Result<Void, MuxStoreError>? in
            guard log.machine[id] != nil else { return nil }
            return Result { () throws(MuxStoreError) in try body(log) }
        }
        if let result { return try result.get() }
        try await self.update(body).0.get()
    }

    /// Starts the next attempt of each lane that waits for an attempt.
    func retryNow() { for sender in self.state.withLock({ $0.senders }).values { sender.retryNow() } }

    // MARK: - Effects

    /// Queues the updates of the list for ``deliverEvents()``.
    ///
    /// Called under the lock of the log, so that the queue has the order of the log.
    private func queueEvents(of log: OutboxLog) {
        let isOverlaid = !self.overlays.isEmpty
        let events = log.takeEvents().map { event -> Event in
            isOverlaid ? (event, log.machine[event.id], log.contents[event.id]?.payload) : (event, nil, nil)
        }
        self.state.withLock { $0.events += events }
    }

    /// Applies the queued events to the overlays, in order, and signals the consumers of the list.
    ///
    /// Returns at once without events, or if another call is delivering: the other call also delivers the new
    /// events. Called without the lock of the log, because overlays call code of the app.
    private func deliverEvents() {
        let isFirst = self.state.withLock { state in
            guard !state.isDelivering, !state.events.isEmpty else { return false }
            state.isDelivering = true
            return true
        }
        guard isFirst else { return }
        while true {
            let (events, waiters) = self.state.withLock { state -> ([Event], [CheckedContinuation<Void, Never>]) in
                defer { state.events = [] }
                guard state.events.isEmpty else { return (state.events, []) }
                state.isDelivering = false
                defer { state.deliveryWaiters = [] }
                return ([], state.deliveryWaiters)
            }
            for waiter in waiters { waiter.resume() }
            guard !events.isEmpty else { break }
            self.apply(events)
        }
        self.listSignals.send((), to: 0)
    }

    /// Waits for the end of a running delivery of events, if any; a cancellation has no effect.
    private func waitForEventDelivery() async {
        guard self.state.withLock({ $0.isDelivering }) else { return }
        await withCheckedContinuation { continuation in
            let isDelivering = self.state.withLock { state in
                if state.isDelivering { state.deliveryWaiters.append(continuation) }
                return state.isDelivering
            }
            if !isDelivering { continuation.resume() }
        }
    }

    /// Updates the overlays, counts dropped changes, and tells the observer of dropped changes.
    private func apply(_ events: [Event]) {
        var dropped = 0
        let isOverlaid = !self.overlays.isEmpty
        for (event, item, payload) in events where isOverlaid || event.isDrop {
            switch event {
            case .ended(let id): self.overlays.end(id, isCommitted: true)
            case .discarded(let id), .hidden(let id): self.overlays.end(id, isCommitted: false)
            case .dropped(let id):
                dropped += 1
                self.overlays.end(id, isCommitted: false)
            case .added(let id), .progressed(let id): self.updateOverlay(id, item, payload)
            }
        }
        if dropped > 0 {
            self.state.withLock { $0.dropped += dropped }
            self.tell(.changesDropped)
        }
    }

    /// Shows a pending change in the overlays, and removes a failed change from the overlays.
    private func updateOverlay(_ id: ID, _ item: Item?, _ payload: Data?) {
        guard let item, !self.overlays.isEmpty else { return }
        switch item.progress.status {
        case .waiting, .sending:
            if item.isReadable { self.overlays.show(id, isUnsent: item.isUnsent) { self.decoded(payload) } }
        // For `unknown`, the next fetch shows whether the server has the change.
        case .refused, .expired, .unknown: self.overlays.end(id, isCommitted: false)
        }
    }

    /// Adds an overlay for the changes in the log and for later changes.
    func overlay(_ overlay: @escaping @Sendable (Change) -> OutboxOverlays<Change>.Target?) {
        self.log.withLock { log in
            self.overlays.add(overlay)
            log.queueAllUpdates()
            self.queueEvents(of: log)
        }
        self.deliverEvents()
    }

    /// The number of lanes that wait for the next attempt; `nil` if the sender of another lane runs, or if
    /// an operation on the log runs or waits.
    var waitCount: Int? {
        self.state.withLock { state in
            let count = state.waitingCount
            return state.operations == 0 && state.senders.count == count ? count : nil
        }
    }

    /// Sends an event with the name of the outbox to the observer.
    func tell(_ kind: MuxEvent.Kind, reason: MuxEvent.Reason? = nil) {
        self.repository.observer?.tell(MuxEvent(kind, name: self.name, reason: reason))
    }
}

extension OutboxCore.State {
    /// The number of senders that wait for the next attempt.
    var waitingCount: Int { self.senders.values.count { $0.wait != nil } }

    /// The number of senders that wait for a connection.
    var offlineCount: Int { self.senders.values.count { $0.wait == .connection } }

    /// The maximum number of lanes with a sender, including the waiting senders.
    ///
    /// - With a connection: `maximum` senders, from 1 to 1,000, may send, and any number of senders may wait
    ///   for an attempt.
    /// - Without a connection: no sender starts while another sender tries to send, or waits for the
    ///   connection. Any number of senders may wait for other reasons.
    fileprivate func laneLimit(_ maximum: Int) -> Int {
        if self.isStopped { return 0 }
        guard self.offlineFailures == 0 else { return 1 + self.waitingCount - self.offlineCount }
        return min(max(1, maximum), 1_000) + self.waitingCount
    }
}
