import Foundation
import MuxKit

/// The storage, the senders and the session of an outbox.
///
/// Each operation runs on the log alone: reads the records of other processes, changes the log, and then
/// starts the senders of the lanes with changes to send.
final class OutboxCore<Change: Codable & Sendable>: Sendable {
    typealias ID = OutboxStateMachine.ID
    typealias Item = OutboxStateMachine.Item
    typealias Attempt = MuxOutbox<Change>.Attempt
    /// Sends a change with a token, if any; calls `begin` immediately before each request.
    typealias Deliver =
        @Sendable (_ change: Change, _ begin: @Sendable () async throws -> Attempt) async throws -> Void

    /// The state outside of the log.
    struct State: Sendable {
        /// Whether the app has released the outbox.
        var isStopped = false
        /// Whether an operation has compared the session of the log with the session of the repository.
        var hasComparedSessions = false
        /// Whether the last attempt of any lane found no connection.
        var isOffline = false
        /// The lanes with a running sender.
        var senders: [String: Task<Void, Never>] = [:]
        /// The lanes whose sender waits for the next attempt.
        var waiting: Set<String> = []
        /// The uninterrupted possession of the lease in which the outcomes of earlier senders are settled.
        var tenure: UInt64?
        /// Whether a failed change prevents the sending of a later change of the lane.
        var isBlocked: (@Sendable (_ later: Change, _ failed: Change) -> Bool)?
        /// The number of changes that a sign-out dropped.
        var dropped = 0
    }

    let name: String
    let policy: MuxOutboxPolicy
    let repositoryChoice: RepositoryChoice
    let overlays = OutboxOverlays<Change>()
    let state = Locked(State())
    /// Sends a signal after each change of the list.
    let changes = Broadcast<Int, Void>()
    /// Ends the waits of all lanes.
    let signal = RetrySignal()
    let lease: LeaseHolder
    let loop: RetryLoop
    let deliver: Deliver
    private let log: Locked<OutboxLog>
    /// Serialises the operations on the log.
    private let mutex = AsyncMutex()
    private let order: @Sendable (Change) throws -> String

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
        self.order = order
        self.deliver = deliver
        self.log = Locked(
            OutboxLog(
                folder,
                limits: OutboxLog.Limits(
                    count: max(0, policy.maximumCount),
                    bytes: max(0, policy.maximumBytes),
                    age: max(.zero, policy.maximumAge)
                ),
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
        self.loop = RetryLoop(
            policy.retry,
            wakeUps: wakeUps + [.signal(self.signal)],
            time: owner.time,
            random: owner.random,
            spawn: owner.spawn
        )
        owner.attach(self)
    }

    /// Ends all senders; the app has released the outbox.
    func stop() {
        self.state.withLock { $0.isStopped = true }
        self.cancelSenders()
    }

    func cancelSenders() { for sender in self.state.withLock({ $0.senders }).values { sender.cancel() } }

    // MARK: - Operations

    /// Runs `body` on the log, after all earlier operations, to its end.
    ///
    /// - Throws: ``MuxStoreError``; `body` has not run, or has failed.
    func perform<R: Sendable>(
        _ body: @escaping @Sendable (OutboxLog) throws(MuxStoreError) -> R
    ) async throws(MuxStoreError) -> R {
        // Outside of the mutex: a sign-out, which `currentEpoch` waits for, uses the mutex. If the repository's
        // folder is unreadable, the session of the log is the current session.
        let session = try? await self.repository.currentEpoch()
        let (result, logSession) = await self.run { log in
            Result { () throws(MuxStoreError) in
                try log.update { log throws(MuxStoreError) in
                    if let session, session > log.machine.session { try log.beginSession(session) }
                    return try body(log)
                }
            }
        }
        if let session { await self.compare(session, to: logSession) }
        return try result.get()
    }

    /// As ``perform(_:)``, without a read of the repository's session, and even if the file is unusable.
    ///
    /// The next operation then writes the new states.
    func finish<R: Sendable>(_ body: @escaping @Sendable (OutboxLog) -> R) async -> R {
        await self.run { $0.finish(body) }.0
    }

    /// Runs `body`, and then starts senders; returns also the session of the log.
    private func run<R: Sendable>(_ body: @escaping @Sendable (OutboxLog) -> R) async -> (R, session: UInt64) {
        await self.mutex.run {
            let (limit, waiting) = self.state.withLock { state in
                (state.laneLimit(self.policy.maximumConcurrentLanes), state.waiting.count)
            }
            let done = await BlockingWork.run { () -> Done<R> in
                self.log.withLock { Done($0, body($0), startingUpTo: limit, waiting: waiting) }
            }
            self.changed(done.events)
            self.start(done.lanes)
            if done.rests { self.overlays.rest() }
            return (done.result, done.session)
        }
    }

    /// Ends the repository's session if the log has a later session: another process has signed out.
    ///
    /// If this is the first comparison, and the repository has the number 0, the number may have been lost with
    /// the repository's folder of caches: then the number rises without the end of the session.
    private func compare(_ session: UInt64, to logSession: UInt64) async {
        let isFirst = self.state.withLock { state in
            defer { state.hasComparedSessions = true }
            return !state.hasComparedSessions
        }
        guard session < logSession else { return }
        if isFirst, session == 0 {
            try? await self.repository.raiseEpoch(to: logSession)
        } else {
            try? await self.repository.endSession(before: logSession, sparing: self.identity)
        }
    }

    /// The effects of an operation.
    private struct Done<R: Sendable>: Sendable {
        let result: R
        /// The session of the log.
        let session: UInt64
        /// The new states of changes.
        let events: [(OutboxLog.Event, Item?, Data?)]
        /// The lanes whose sender has to start.
        let lanes: [String]
        /// Whether no change is being sent.
        let rests: Bool

        init(_ log: OutboxLog, _ result: R, startingUpTo limit: Int, waiting: Int) {
            self.result = result
            self.session = log.machine.session
            self.events = log.takeEvents().map { ($0, log.machine[$0.id], log.contents[$0.id]?.payload) }
            self.lanes = log.withMachine { $0.startedLanes(upTo: limit) }
            self.rests = log.machine.senderCount <= waiting
        }
    }

    /// Reads the changes on the caller's thread, and shows the changes in the overlays.
    func restore() {
        let session = self.repository.knownEpoch
        let events = self.log.withLock { log -> [(OutboxLog.Event, Item?, Data?)] in
            try? log.readIfPresent()
            if let session { log.drop(before: session) }
            return log.takeEvents().map { ($0, log.machine[$0.id], log.contents[$0.id]?.payload) }
        }
        self.changed(events)
        self.repository.spawn(name: "mux.outbox") { [weak self] in _ = try? await self?.perform { _ in } }
    }

    // MARK: - The list

    func add(_ change: Change) async throws -> ID {
        try self.repositoryChoice.check(nil, name: self.name)
        let (lane, payload): (String, Data)
        do {
            lane = try self.order(change)
            payload = try JSONEncoder().encode(change)
        } catch {
            throw MuxOutboxError.invalidChange(underlying: error)
        }
        let id = UUID().uuidString
        do {
            let result = try await self.perform { log -> Result<Void, OutboxLogError> in
                Result { () throws(OutboxLogError) in try log.append(payload, id: id, lane: lane) }
            }
            try result.get()
        } catch let error as MuxStoreError {
            throw MuxOutboxError.notStored(underlying: error)
        } catch OutboxLogError.store(let error) {
            throw MuxOutboxError.notStored(underlying: error)
        } catch OutboxLogError.tooLarge(let bytes, let limit) {
            throw MuxOutboxError.tooLarge(bytes: bytes, limit: limit)
        } catch OutboxLogError.tooMany(let limit) {
            throw MuxOutboxError.tooManyChanges(limit: limit)
        }
        self.tell(.changeAdded)
        return id
    }

    /// All changes, in the order of their addition; after a read error, the changes in memory.
    func list() async -> [MuxOutbox<Change>.PendingChange] {
        _ = try? await self.perform { log throws(MuxStoreError) in _ = log }
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

    func decoded(_ payload: Data?) -> Change? { payload.flatMap { try? JSONDecoder().decode(Change.self, from: $0) } }

    /// Requests further attempts of a failed change.
    func retry(_ id: ID) async throws(MuxStoreError) {
        let key = UUID().uuidString
        let since = self.repository.wallTime().timeIntervalSince1970
        try await self.perform { log throws(MuxStoreError) in
            let expiry = log.expiry(since: since)
            let item = log.withMachine { $0.retried(id, key: key, since: since, expiry: expiry) }
            if let item { try log.write(item, .full) }
        }
        self.signal.retryNow()
    }

    /// Removes a change; an attempt of the change continues.
    func discard(_ id: ID) async throws(MuxStoreError) {
        try await self.perform { log throws(MuxStoreError) in try log.end(id) }
        self.signal.retryNow()
    }

    // MARK: - Effects

    /// Updates the overlays, and tells the consumers of the list.
    private func changed(_ events: [(OutboxLog.Event, Item?, Data?)]) {
        guard !events.isEmpty else { return }
        var dropped = 0
        for (event, item, payload) in events {
            switch event {
            case .ended(let id): self.overlays.end(id, isCommitted: true)
            case .discarded(let id): self.overlays.end(id, isCommitted: false)
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
        self.changes.send((), to: 0)
    }

    private func updateOverlay(_ id: ID, _ item: Item?, _ payload: Data?) {
        guard let item, !self.overlays.isEmpty else { return }
        switch item.progress.status {
        case .waiting, .sending:
            if item.isReadable { self.overlays.show(id, isUnsent: item.isUnsent) { self.decoded(payload) } }
        case .refused, .expired: self.overlays.end(id, isCommitted: false)
        // The next fetch shows whether the server has the change.
        case .unknown: self.overlays.end(id, isCommitted: true)
        }
    }

    /// Adds an overlay, also for the changes that are known already.
    func overlay(_ overlay: @escaping @Sendable (Change) -> OutboxOverlays<Change>.Target?) {
        self.overlays.add(overlay)
        let known = self.log.withLock { log in
            log.machine.all.filter { $0.progress.isPending && $0.isReadable }.map {
                ($0, log.contents[$0.id]?.payload)
            }
        }
        for (item, payload) in known {
            if let change = self.decoded(payload) {
                self.overlays.show(item.id, isUnsent: item.isUnsent, change, in: overlay)
            }
        }
    }

    /// The number of lanes that wait for the next attempt; `nil` while a change is being sent.
    var waitCount: Int? { self.state.withLock { $0.senders.count == $0.waiting.count ? $0.waiting.count : nil } }

    func tell(_ kind: MuxEvent.Kind, reason: MuxEvent.Reason? = nil) {
        self.repository.observer?.tell(MuxEvent(kind, name: self.name, reason: reason))
    }
}

extension OutboxCore.State {
    /// The maximum number of lanes with a sender.
    ///
    /// A sender that waits for its next attempt does not count. Without a connection, a single lane tries.
    fileprivate func laneLimit(_ maximum: Int) -> Int {
        if self.isStopped { return 0 }
        return self.isOffline ? 1 : max(1, maximum) + self.waiting.count
    }
}
