public import Foundation

/// Knows the multiplexers and runners of one account: saves them together, and signs them out together.
///
/// ``shared`` serves an app with one account. A test, or each of several accounts, has a repository of its own:
///
/// ```swift
/// let repository = MuxRepository(directory: folder)
/// let profile = Multiplexer<Profile>(cacheKey: "Profile", repository: repository) { try await api.profile() }
/// ```
///
/// **Concurrent calls.** Saves, removals and sign-outs of one repository happen one after another, in the order in which
/// they were called.
///
/// **Cancellation.** A save or a sign-out that has begun is finished, whatever becomes of the caller's task.
///
/// **After a failure.** Requests go on from memory and the network; reports say what failed, and the next save repairs.
///
/// **On disk.** Everything lives in one folder, in files named by no key; a sign-out renames it away first.
public actor MuxRepository {
    /// The repository of an app with one account, in the caches folder.
    public static let shared = MuxRepository()

    package nonisolated let time: TimeSource
    package nonisolated let wallTime: @Sendable () -> Date
    package nonisolated let random: @Sendable () -> Double
    package nonisolated let spawn: Spawn
    package nonisolated let observer: (any MuxObserver)?
    /// Where everything that changes the store or the session waits for its turn.
    nonisolated let lane = SerialLane()

    private nonisolated let store: any MuxStore
    private nonisolated let durability: MuxDurability
    private nonisolated let savePolicy: MuxSavePolicy
    nonisolated let registry = Guarded(Registry())
    private nonisolated let memoryWarnings = Guarded<MemoryWarnings?>(nil)

    struct Registry: Sendable {
        var participants = WeakParticipants()
        var retained: [ObjectIdentifier: any AnyObject & Sendable] = [:]
        /// The session epoch, once it was read.
        var sessionEpoch: UInt64?
        /// Whether a sign-out could not raise the epoch on disk: what is there belongs to a session that has ended.
        var owesSignOut = false
        /// Whether a save is about to happen by itself.
        var isSaveDue = false
        /// Whether entries of ended sessions could not be removed from disk.
        var owesRemoval = false
    }

    /// Makes a repository that keeps its entries in a folder.
    ///
    /// - Parameters:
    ///   - directory: The folder; made when it is first needed. `nil` for a folder of this app in the caches folder.
    ///     Pass a folder of an app group to share entries between processes.
    ///   - durability: What "saved" means.
    ///   - savePolicy: When values are saved.
    ///   - observer: Receives what is decided by everything that uses the repository.
    ///   - clock: Measures ages inside the process.
    ///   - wallTime: The time of day, by which ages survive a relaunch.
    public init(
        directory: URL? = nil,
        durability: MuxDurability = .full,
        savePolicy: MuxSavePolicy = .explicit,
        observer: (any MuxObserver)? = nil,
        clock: any Clock<Duration> = ContinuousClock(),
        wallTime: @escaping @Sendable () -> Date = { Date() }
    ) {
        let store = JournalStore(directory: directory ?? MuxStoreLocation.standard())
        self.init(
            store: store,
            durability: durability,
            savePolicy: savePolicy,
            observer: observer,
            clock: clock,
            wallTime: wallTime
        )
    }

    /// Makes a repository that keeps its entries in a store of your choice.
    ///
    /// - Parameters:
    ///   - store: Keeps the entries; used by this repository alone.
    ///   - durability: What "saved" means.
    ///   - savePolicy: When values are saved.
    ///   - observer: Receives what is decided by everything that uses the repository.
    ///   - clock: Measures ages inside the process.
    ///   - wallTime: The time of day, by which ages survive a relaunch.
    public init(
        store: any MuxStore,
        durability: MuxDurability = .full,
        savePolicy: MuxSavePolicy = .explicit,
        observer: (any MuxObserver)? = nil,
        clock: any Clock<Duration> = ContinuousClock(),
        wallTime: @escaping @Sendable () -> Date = { Date() }
    ) {
        self.init(
            store: store,
            durability: durability,
            savePolicy: savePolicy,
            observer: observer,
            time: TimeSource(clock),
            wallTime: wallTime,
            random: { .random(in: 0..<1) },
            spawn: Spawn()
        )
    }

    package init(
        store: any MuxStore,
        durability: MuxDurability,
        savePolicy: MuxSavePolicy = .explicit,
        observer: (any MuxObserver)?,
        time: TimeSource,
        wallTime: @escaping @Sendable () -> Date,
        random: @escaping @Sendable () -> Double,
        spawn: Spawn
    ) {
        self.store = store
        self.durability = durability
        self.savePolicy = savePolicy
        self.observer = observer
        self.time = time
        self.wallTime = wallTime
        self.random = random
        self.spawn = spawn
        self.memoryWarnings.withLock { $0 = MemoryWarnings { [weak self] in self?.clearMemory() } }
    }

    // MARK: - Registry

    /// Lets `participant` take part in saves and sign-outs for as long as it lives.
    package nonisolated func attach(_ participant: any SessionParticipant) {
        let met = self.registry.withLock { $0.participants.insert(participant) }
        withExtendedLifetime(met) {}
        guard let observer, let domain = participant.domain,
            self.participants.contains(where: { $0 !== participant && $0.domain == domain })
        else { return }
        observer.observe(MuxEvent(.cacheKeyShared, cacheKey: domain))
    }

    /// Keeps `owner` alive, and lets `participant` take part.
    nonisolated func retain(_ owner: some AnyObject & Sendable, _ participant: any SessionParticipant) {
        let met = self.registry.withLock { registry in
            registry.retained[ObjectIdentifier(participant)] = owner
            return registry.participants.insert(participant)
        }
        withExtendedLifetime(met) {}
    }

    /// Undoes ``retain(_:_:)``; the participant takes part as before while it lives.
    nonisolated func release(_ participant: any SessionParticipant, staysAttached: Bool) {
        let owner = self.registry.withLock { registry in
            if !staysAttached { registry.participants.remove(participant) }
            return registry.retained.removeValue(forKey: ObjectIdentifier(participant))
        }
        _ = owner  // let go outside the lock: it may be the last reference
    }

    /// What everything counted that is registered or has a `cacheKey`, and is alive.
    public nonisolated var statistics: MuxStatistics {
        self.participants.reduce(MuxStatistics()) { $0 + $1.statistics }
    }

    // MARK: - Saving

    /// Writes to disk what changed since the last save, of everything alive that has a `cacheKey`.
    ///
    /// - Parameter budget: How long it may take, about; the newest entries are written first. `nil` for no limit.
    /// - Returns: What was saved, and what was not and why. Ignoring it is fine: what failed is tried again next time.
    /// - Complexity: O(*n*) in the number of changed entries; encoding runs in parallel.
    @discardableResult
    public nonisolated func saveAll(within budget: Duration? = nil) async -> MuxSaveReport {
        await self.save(self.participants, within: budget)
    }

    /// Something changed that the disk does not have: saves it in a while, if that is the policy.
    nonisolated func changed() {
        guard case .afterFetch(let debounce) = self.savePolicy else { return }
        let isFirst = self.registry.withLock { registry -> Bool in
            defer { registry.isSaveDue = true }
            return !registry.isSaveDue
        }
        guard isFirst else { return }
        let time = self.time
        self.spawn(name: "mux.save") { [weak self] in
            try? await time.sleep(for: debounce)
            self?.registry.withLock { $0.isSaveDue = false }
            await self?.saveAll()
        }
    }

    nonisolated func save(
        _ participants: [any SessionParticipant],
        only name: MuxStoreKey? = nil,
        within budget: Duration? = nil
    ) async -> MuxSaveReport {
        let deadline = budget.map { self.time.now.advanced(by: $0) }
        return await self.inLane {
            var report = MuxSaveReport()
            let epoch: UInt64
            do {
                epoch = try await self.settledEpoch(raisedBySibling: &report)
            } catch {
                let unsaved = participants.map { $0.unsaved() }
                report.unchanged = unsaved.reduce(0) { $0 + $1.unchanged }
                report.failed = unsaved.flatMap(\.dirty).map { .init(name: $0.name, error: error) }
                report.repairFailures.append(error)
                return report
            }
            // What a removal that is made good now takes with it has to be saved again: repairs come first.
            for repair in participants.compactMap({ $0.unsaved().repair }) {
                report.repairFailures += await repair().failures
            }
            var dirty: [UnsavedEntry] = []
            for unsaved in participants.map({ $0.unsaved() }) {
                report.unchanged += unsaved.unchanged
                dirty += name == nil ? unsaved.dirty : unsaved.dirty.filter { $0.name == name }
            }
            dirty.sort { $0.fetchedAt > $1.fetchedAt }
            // With a budget, in portions, so that there is a moment to stop at.
            let portion = budget == nil ? max(dirty.count, 1) : 256
            var rest = dirty[...]
            while !rest.isEmpty {
                if let deadline, self.time.now >= deadline { break }
                // Of two entries of one name the newer one is to stay: it goes last.
                await self.write(rest.prefix(portion).reversed(), epoch, into: &report)
                rest = rest.dropFirst(portion)
            }
            report.leftOver += rest.count
            return report
        }
    }

    /// Encodes and writes `entries`; in the lane.
    private nonisolated func write(_ entries: [UnsavedEntry], _ epoch: UInt64, into report: inout MuxSaveReport) async {
        let store = self.store
        let encoded = await OffPool.map(entries) { entry in
            Result {
                let stored = try entry.encode(epoch)
                try store.check(stored)
                return stored
            }
        }
        var ready: [(UnsavedEntry, MuxStoredEntry)] = []
        for (entry, result) in zip(entries, encoded) {
            switch result {
            case .failure(let error): report.failed.append(.init(name: entry.name, error: error))
            case .success(let stored): ready.append((entry, stored))
            }
        }
        // A fence that comes after this look finds the lane taken, and does its part on disk after the save.
        let current = ready.filter { $0.0.isCurrent() }
        report.leftOver += ready.count - current.count
        guard !current.isEmpty else { return }
        do {
            try await self.store.save(current.map(\.1), durability: self.durability)
            for (entry, _) in current { entry.markSaved() }
            report.saved += current.count
        } catch {
            report.failed += current.map { .init(name: $0.0.name, error: error) }
        }
    }

    // MARK: - Loading and removing

    /// Reads an entry of the present session; `nil` if there is none.
    nonisolated func load(_ name: MuxStoreKey) async throws -> MuxStoredEntry? {
        let (known, owes) = self.registry.withLock { ($0.sessionEpoch, $0.owesSignOut) }
        guard !owes else { return nil }
        if known == nil {
            // Whatever is fetched from here on belongs to this session, even if another process ends it meanwhile.
            let epoch = try await self.store.sessionEpoch()
            self.registry.withLock { if $0.sessionEpoch == nil { $0.sessionEpoch = epoch } }
        }
        guard let entry = try await self.store.load(name) else { return nil }
        // A sign-out may have come while the store was reading.
        let isOfThisSession = self.registry.withLock { registry in
            !registry.owesSignOut && entry.sessionEpoch >= registry.sessionEpoch ?? 0
        }
        return isOfThisSession ? entry : nil
    }

    /// Removes entries from disk; in the lane.
    nonisolated func remove(_ names: [MuxStoreKey]) async throws {
        _ = try await self.settledEpoch()
        try await self.store.remove(names, durability: self.durability)
    }

    /// Removes all entries of a domain from disk; in the lane.
    nonisolated func removeAll(domain: String) async throws {
        _ = try await self.settledEpoch()
        try await self.store.removeAll(domain: domain, durability: self.durability)
    }

    // MARK: - Sessions

    /// Raises the number of the session, which goes on, to one that was found elsewhere.
    nonisolated func raiseEpoch(to epoch: UInt64) async throws {
        try await self.lane.run {
            guard try await self.settledEpoch() < epoch else { return }
            try await self.store.raiseSessionEpoch(to: epoch)
            self.registry.withLock { $0.sessionEpoch = epoch }
        }
    }

    /// The number of the present session, for those who are not in the lane.
    package nonisolated func currentEpoch() async throws -> UInt64 {
        let (known, owes) = self.registry.withLock { ($0.sessionEpoch, $0.owesSignOut) }
        if let known, !owes { return known }
        return try await self.lane.run { try await self.settledEpoch() }
    }

    /// Runs `operation` when all that came before have ended, and to its end, whatever becomes of the caller's task.
    nonisolated(nonsending) func inLane<Success: Sendable>(_ operation: () async -> Success) async -> Success {
        await self.lane.run { await finishing { await operation() } }
    }

    /// The number of the present session, after a look at the disk; in the lane.
    ///
    /// Where another process has signed out, the session ends in this one, too.
    nonisolated func settledEpoch(raisedBySibling report: inout MuxSaveReport) async throws -> UInt64 {
        let known = self.registry.withLock { $0.sessionEpoch }
        let settled = try await self.settledEpoch()
        let epoch = try await self.store.sessionEpoch()
        guard let known, epoch > max(known, settled) else {
            try await self.removeOwed(into: &report)
            return settled
        }
        for participant in self.participants { participant.sessionEnded() }
        self.registry.withLock { $0.sessionEpoch = epoch }
        return epoch
    }

    /// Removes what an earlier sign-out could not remove; in the lane.
    private nonisolated func removeOwed(into report: inout MuxSaveReport) async throws {
        guard self.registry.withLock({ $0.owesRemoval }) else { return }
        do {
            try await self.store.removeEverything()
            self.registry.withLock { $0.owesRemoval = false }
        } catch {
            report.repairFailures.append(error)
        }
    }

    /// The number of the present session; in the lane.
    ///
    /// - Throws: What the store threw, also while finishing a sign-out that failed earlier.
    nonisolated func settledEpoch() async throws -> UInt64 {
        let (known, owes) = self.registry.withLock { ($0.sessionEpoch, $0.owesSignOut) }
        if let known, !owes { return known }
        var epoch = try await self.store.sessionEpoch()
        if owes {
            epoch = try Self.next(after: epoch)
            try await self.store.raiseSessionEpoch(to: epoch)
            // What is left is void already.
            let isRemoved = (try? await self.store.removeEverything()) != nil
            self.registry.withLock { $0.owesRemoval = !isRemoved }
        }
        let settled = epoch
        self.registry.withLock { registry in
            registry.sessionEpoch = settled
            registry.owesSignOut = false
        }
        return settled
    }

    /// Signs out: no trace of the session is left, in memory or on disk, and nothing that began before can bring it back.
    ///
    /// In this order: the session epoch is raised, durably; requests that wait throw ``MuxError/sessionEnded``, fetches
    /// are cancelled, runners are signed out; memory is dropped; everything in the repository's folder is removed, also of
    /// multiplexers that this process never touched; the tokens of runners are removed. If the process dies in between,
    /// the next one reads nothing of the old session and finishes the removal.
    ///
    /// - Returns: What could not be removed. Ignoring it is fine: this process does not read what is left, and the next save
    ///   tries again.
    /// - Complexity: The time of a few file-system calls, however many entries there are.
    @discardableResult
    public nonisolated func clearAll() async -> MuxClearReport {
        await self.inLane {
            var report = MuxClearReport()
            var raised: UInt64?
            self.registry.withLock { $0.owesSignOut = true }
            do {
                let epoch = try Self.next(after: await self.store.sessionEpoch())
                try await self.store.raiseSessionEpoch(to: epoch)
                raised = epoch
            } catch {
                report.failures.append(error)
            }
            let participants = self.participants
            for participant in participants { participant.sessionEnded() }
            // Not before: until then nobody outside the lane may learn the new session's number.
            if let raised {
                self.registry.withLock { registry in
                    registry.sessionEpoch = raised
                    registry.owesSignOut = false
                }
            }
            do {
                try await self.store.removeEverything()
                self.registry.withLock { $0.owesRemoval = false }
            } catch {
                self.registry.withLock { $0.owesRemoval = true }
                report.failures.append(error)
            }
            for participant in participants {
                do {
                    try await participant.removeTraces()
                } catch {
                    report.failures.append(error)
                }
            }
            return report
        }
    }

    /// Tells all participants but one what was cleared; in the lane.
    nonisolated func tellOthers(_ cleared: ClearedEntries, but one: any SessionParticipant) {
        for participant in self.participants where participant !== one { participant.cleared(cleared) }
    }

    private static func next(after epoch: UInt64) throws -> UInt64 {
        let (next, overflow) = epoch.addingReportingOverflow(1)
        guard !overflow else { throw MuxError.tooManySessions }
        return next
    }
}
