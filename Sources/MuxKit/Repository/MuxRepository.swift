public import Foundation
import Synchronization

/// The registry of one account's multiplexers and runners, for common saves and sign-outs.
///
/// ``shared`` is for an app with one account. Each test, and each of several accounts, needs a separate
/// repository:
///
/// ```swift
/// let repository = MuxRepository(directory: folder)
/// let profile = Multiplexer<Profile>(cacheKey: "Profile", repository: repository) { try await api.profile() }
/// ```
///
/// **Concurrent calls.** Saves, removals from disk and sign-outs of one repository run one after another, in
/// the order of the calls. A call by the store itself does not wait; see ``MuxStore``.
///
/// **Cancellation.** A cancellation of the caller's task does not end a save, a removal or a sign-out.
///
/// **After a failure.** If the disk fails, requests use memory and the network; reports contain the failures,
/// and the next save tries again.
///
/// **On disk.** By default, all entries are in one folder; no file is named after a key.
public actor MuxRepository {
    /// The repository of an app with one account: the repository of ``setUpShared(_:)``, by default a
    /// repository in the app's caches folder.
    public static var shared: MuxRepository {
        self.sharedRepository.withLock { shared in
            let repository = shared ?? MuxRepository()
            shared = repository
            return repository
        }
    }

    private static let sharedRepository = Locked<MuxRepository?>(nil)

    /// Sets ``shared``: at most once, and before its first use.
    ///
    /// Call this at the start of the program, such as in the initialiser of the app. Swift initialises a
    /// global multiplexer at its first use, which must come after this call.
    ///
    /// ```swift
    /// try MuxRepository.setUpShared(
    ///     MuxRepository(directory: folder, savePolicy: .enteringBackground, observer: LoggingObserver())
    /// )
    /// ```
    ///
    /// - Parameter repository: The repository, with the folder, limits, save policy and observer of the
    ///   program.
    /// - Throws: ``MuxError/sharedRepositoryInUse``, without a change, if ``shared`` was set or used before.
    public static func setUpShared(_ repository: MuxRepository) throws(MuxError) {
        try self.sharedRepository.withLock { (shared: inout MuxRepository?) throws(MuxError) in
            guard shared == nil else { throw .sharedRepositoryInUse }
            shared = repository
        }
    }

    @usableFromInline package nonisolated let time: TimeSource
    package nonisolated let wallTime: @Sendable () -> Date
    @usableFromInline package nonisolated let random: @Sendable () -> Double
    package nonisolated let spawn: TaskLauncher
    package nonisolated let observer: (any MuxObserver)?
    /// The log of programming errors; `nil` in a release build, and for a repository with an observer, which
    /// receives events instead.
    nonisolated let misuseLog: MisuseLog?
    /// The problems of all folders of the repository; the observer gets each problem once.
    package nonisolated let problems = StorageProblems()
    /// Serialises changes of the store and of the session.
    ///
    /// If a wait would deadlock, ``verifySession(_:)`` ends the session outside the lane.
    ///
    /// "In the lane" in a comment means: inside an operation of this mutex.
    nonisolated let lane = ReentrantAsyncMutex(refusal: MuxError.calledFromStore)

    nonisolated let store: any MuxStore
    /// The store, if the store can load an entry without a suspension; otherwise `nil`.
    nonisolated let promptStore: (any PromptStore)?
    /// The client of the shared store; `nil` without a shared store.
    package nonisolated let sharedStore: SharedStoreClient?
    nonisolated let durability: MuxDurability
    nonisolated let savePolicy: MuxRepository.SavePolicy
    nonisolated let registry = Locked(Registry())
    /// The changes of tags.
    @usableFromInline package nonisolated let tagLog: TagLog
    /// The number of requests for a sweep since the last complete sweep; see ``applyTagChanges()``.
    nonisolated let dueSweeps = Atomic(0)
    /// Whether ``learnSession(isMemoryOnly:)`` could not read the session epoch; the lock is held during the
    /// read.
    nonisolated let hasUnreadableSession = Locked(false)
    /// The task that watches for sign-outs of other processes.
    nonisolated let sessionWatch = Locked<Task<Void, Never>?>(nil)
    private nonisolated let memoryWarnings = Locked<MemoryWarnings?>(nil)
    nonisolated let backgroundNotices = Locked<BackgroundNotices?>(nil)

    struct Registry: Sendable {
        var participants = WeakParticipants()
        /// The owners of registered participants, by participant; see ``MuxRepository/retain(_:_:)``.
        var retained: [ObjectIdentifier: any AnyObject & Sendable] = [:]
        /// The number of this process's session (the session epoch); `nil` before the first read.
        var sessionEpoch: UInt64?
        /// Whether another process has ended the session, and this process has not yet cleared its memory;
        /// until then no entry is read from disk.
        var isEnding = false
        /// Whether a sign-out has begun, but has not yet raised, or could not raise, the epoch on disk.
        ///
        /// The entries on disk then belong to the ended session, and are not read.
        var owesSignOut = false
        /// The epoch to which the owed sign-out raises the epoch on disk, if not higher already; `nil` for
        /// the epoch after the epoch on disk.
        var owedEpoch: UInt64?
        /// Whether an automatic save is scheduled.
        var isSaveDue = false
        /// Participants with unsaved values, which the app may have released: retained until the scheduled
        /// save, and after a failed save until ``releaseSavedParticipants()`` finds no unsaved value.
        var unsaved: [ObjectIdentifier: any SessionParticipant] = [:]
        /// The number of failures of the last ``MuxRepository/saveAll(within:)`` or save by the save policy.
        var lastSaveFailures = 0
        /// Whether entries of ended sessions could not be removed from disk.
        var owesRemoval = false
        /// The number of times that the store has lost all entries, as last read by a save.
        var losses = 0

        /// Records that no sign-out is owed any more.
        mutating func endOwedSignOut() { (self.owesSignOut, self.owedEpoch) = (false, nil) }
    }

    /// Makes a repository with entries in a folder.
    ///
    /// - Parameters:
    ///   - directory: The folder, created at the first use; `nil` for a folder of this app in the caches
    ///     folder. The folder must belong to the user of the process or to the superuser, and only the owner may
    ///     have write permission. Otherwise no entry is read or saved; reports and
    ///     ``MuxEvent/Kind/storageFailed`` contain the reason. In a folder of an app group, all processes of
    ///     the group share the entries.
    ///   - byteLimit: The maximum size of the entries on disk in bytes, by default 100 million; `nil` for no
    ///     limit. A save that exceeds the limit evicts the least recently used entries.
    ///   - durability: The durability of saves and removals.
    ///   - savePolicy: Determines when the repository saves.
    ///   - observer: Receives the events of the repository, its multiplexers and runners.
    ///   - clock: Measures ages inside the process.
    ///   - wallTime: Returns the wall-clock time, which measures ages across launches.
    public init(
        directory: URL? = nil,
        byteLimit: Int? = 100_000_000,
        durability: MuxDurability = .full,
        savePolicy: MuxRepository.SavePolicy = .explicit,
        observer: (any MuxObserver)? = nil,
        clock: any Clock<Duration> = ContinuousClock(),
        wallTime: @escaping @Sendable () -> Date = { Date() }
    ) {
        let store = JournalStore(directory.map { StoreFolder($0) } ?? .standard(), byteLimit: byteLimit)
        self.init(
            store: store,
            durability: durability,
            savePolicy: savePolicy,
            observer: observer,
            clock: clock,
            wallTime: wallTime
        )
    }

    /// Makes a repository with entries in a custom store.
    ///
    /// - Parameters:
    ///   - store: The store of the entries; no other repository may use the store.
    ///   - durability: The durability of saves and removals.
    ///   - savePolicy: Determines when the repository saves.
    ///   - observer: Receives the events of the repository, its multiplexers and runners.
    ///   - clock: Measures ages inside the process.
    ///   - wallTime: Returns the wall-clock time, which measures ages across launches.
    public init(
        store: any MuxStore,
        durability: MuxDurability = .full,
        savePolicy: MuxRepository.SavePolicy = .explicit,
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
            wallTime: wallTime
        )
    }

    /// Makes a repository with entries that several machines share.
    ///
    /// Values of multiplexers with a `cacheKey` are in memory and in the shared store, and not on disk: saves
    /// do nothing. See <doc:SeveralMachines>.
    ///
    /// - Parameters:
    ///   - sharedStore: The connection of this machine to the shared store; no other repository may use the
    ///     connection.
    ///   - policy: The limits of calls to the store.
    ///   - observer: Receives the events of the repository, its multiplexers and runners.
    ///   - clock: Measures ages inside the process. The store measures the ages of entries from other
    ///     machines.
    ///   - wallTime: Returns the wall-clock time.
    public init(
        sharedStore: any MuxSharedStore,
        policy: MuxShared.Policy = .init(),
        observer: (any MuxObserver)? = nil,
        clock: any Clock<Duration> = ContinuousClock(),
        wallTime: @escaping @Sendable () -> Date = { Date() }
    ) {
        self.init(
            store: .none,
            durability: .full,
            observer: observer,
            time: TimeSource(clock),
            wallTime: wallTime,
            sharedStore: (sharedStore, policy)
        )
    }

    package init(
        store: any MuxStore,
        durability: MuxDurability,
        savePolicy: MuxRepository.SavePolicy = .explicit,
        observer: (any MuxObserver)?,
        time: TimeSource,
        wallTime: @escaping @Sendable () -> Date,
        random: @escaping @Sendable () -> Double = { .random(in: 0..<1) },
        spawn: TaskLauncher = TaskLauncher(),
        backgroundNotifications: [Notification.Name] = BackgroundNotices.standardNames,
        sharedStore: (store: any MuxSharedStore, policy: MuxShared.Policy)? = nil,
        misuseLog: MisuseLog? = .standard
    ) {
        self.store = store
        self.promptStore = store as? any PromptStore
        self.durability = durability
        self.savePolicy = savePolicy
        self.observer = observer
        self.misuseLog = observer == nil ? misuseLog : nil
        self.time = time
        self.wallTime = wallTime
        (store as? any FolderStore)?.setWallTime(wallTime)
        self.random = random
        self.spawn = spawn
        self.tagLog = TagLog(wallTime: wallTime)
        self.sharedStore = sharedStore.map {
            SharedStoreClient($0.store, $0.policy, time: time, random: random, spawn: spawn, observer: observer)
        }
        self.sharedStore?.listen { [weak self] change in
            guard let self else { return }
            // Another machine may have refreshed or cleared the tag: the store reports no difference.
            if case .invalidated(.tag(let tag)) = change { self.recordTagChange([tag], isClear: true) }
            // Values in memory only may have missed changes of tags, too.
            let others = [.unknown, .emptied].contains(change) ? self.tagLog.members.filter(\.isMemoryOnly) : []
            for participant in self.concernedParticipants + others { participant.sharedStoreChanged(change) }
        }
        if let observer {
            self.problems.connect { error in
                // The observer is called in a task, because the caller of this closure may hold locks.
                spawn(name: "mux.problem") { observer.tell(MuxEvent(.storageFailed, problem: error.problem)) }
            }
        }
        self.collectProblems(of: store)
        Inspection.inspector?.note(self)
        self.memoryWarnings.withLock { $0 = MemoryWarnings { [weak self] in self?.clearMemory() } }
        guard savePolicy != .explicit else { return }
        self.backgroundNotices.withLock { notices in
            notices = BackgroundNotices(backgroundNotifications) { [weak self] isLast in
                self?.enteredBackground(isLast: isLast)
            }
        }
    }

    deinit { self.sessionWatch.withLock { $0 }?.cancel() }

    // MARK: - Registry

    /// Includes `participant` in sign-outs and saves until its deallocation.
    ///
    /// - Returns: The participant's number, for ``detach(_:domain:)``.
    /// - Complexity: Amortised O(1) without a domain, otherwise amortised O(log *n*).
    @discardableResult
    package nonisolated func attach(_ participant: any SessionParticipant) -> UInt64 {
        let domain = participant.domain
        self.learnSession(isMemoryOnly: participant.isMemoryOnly)
        let insertion = self.registry.withLock { $0.participants.insert(participant, domain: domain) }
        if insertion.sharesDomain {
            self.observer?.tell(MuxEvent(.cacheKeyShared, cacheKey: domain))
            if let domain { self.misuseLog?.write(.cacheKeyShared(domain)) }
        }
        return insertion.order
    }

    /// Removes the participant with the number `order`; called by the participant's `deinit`.
    nonisolated func detach(_ order: UInt64, domain: String?) {
        self.registry.withLock { $0.participants.remove(order, domain: domain) }
    }

    /// Retains `owner`, the public object of `participant`.
    nonisolated func retain(_ owner: some AnyObject & Sendable, _ participant: any SessionParticipant) {
        self.registry.withLock { $0.retained[ObjectIdentifier(participant)] = owner }
    }

    /// Undoes ``retain(_:_:)``.
    nonisolated func release(_ participant: any SessionParticipant) {
        let owner = self.registry.withLock { $0.retained.removeValue(forKey: ObjectIdentifier(participant)) }
        _ = owner  // released outside the lock: it may be the last reference
    }
}

extension MuxRepository: Inspectable {
    /// The living participants.
    nonisolated var participants: [any SessionParticipant] { self.registry.withLock { $0.participants.living() } }

    /// The living participants, except participants in memory only; see ``SessionParticipant/isMemoryOnly``.
    nonisolated var concernedParticipants: [any SessionParticipant] {
        self.registry.withLock { $0.participants.living(includingMemoryOnly: false) }
    }

    /// The number of places in the registry, including places of deallocated participants.
    package nonisolated var participantPlaces: Int { self.registry.withLock { $0.participants.placeCount } }

    package nonisolated func faults() async -> [String] {
        let slots = self.registry.withLock { $0.participants }.leftoverCount()
        let waits = self.sharedStore?.waitCount ?? 0
        return [
            slots > 0 ? "\(slots) slots of released participants are left" : nil,
            waits > 0 ? "\(waits) waits for claims are left" : nil,
        ].compactMap(\.self)
    }

    /// Removes values from memory, in all living multiplexers, maps and caches of this repository.
    ///
    /// Unsaved values stay in memory. The next request of a removed value reads the value from disk or from
    /// the shared store, or fetches. Running fetches continue. On Apple platforms a memory warning of the
    /// system has this effect.
    ///
    /// - Complexity: O(*n*) in the number of values in memory.
    public nonisolated func clearMemory() {
        for participant in self.participants { participant.clearMemory() }
    }
}

extension MuxRepository {
    /// A folder for other files of the session, such as downloads, in the app's folder for `purpose`.
    ///
    /// Repositories whose stores have different folders, such as repositories of different accounts, get
    /// different folders. Two apps that share a store's folder, such as an app and its extension, get
    /// different folders, too, because each app has its own folders.
    ///
    /// The path of the store's folder distinguishes repositories. A path in the home folder counts relative
    /// to the home folder, because an update of the app may move the home folder.
    ///
    /// - Parameters:
    ///   - kind: The kind of files.
    ///   - key: Distinguishes several folders of one kind; `nil` for a single folder.
    ///   - purpose: The kind of the app's folder.
    /// - Returns: The folder; its ``StoreFolder/location`` is an error if the path of the app's folder, or of
    ///   the store's folder, is unusable.
    package nonisolated func folder(
        _ kind: OwnedName.Kind,
        for key: String? = nil,
        in purpose: MuxStoreLocation.Purpose = .caches
    ) -> StoreFolder {
        let standard = StoreFolder.standard(purpose)
        guard case .success(let path) = standard.location, let app = FilePath.parent(of: path) else { return standard }
        let usual = purpose == .caches ? path : StoreFolder.standard().path
        var place = "standard"
        switch (self.store as? any FolderStore)?.folder?.location {
        case .success(let folder)? where !folder.utf8.elementsEqual(usual.utf8):
            place = StoreFolder.place(of: folder, home: NSHomeDirectory())
        case .failure(let error)?: return StoreFolder(.failure(error))
        case .success?, nil: break
        }
        let owner = OwnedName(kind, [place] + [key].compactMap(\.self))
        let isSole = place == "standard" && key == nil
        return StoreFolder(.success(app)).appending(isSole ? kind.rawValue : owner.fileName, owner: owner)
    }

    /// Reports problems of the folder of `source` to the observer; no effect if `source` has no folder.
    package nonisolated func collectProblems(of source: any Sendable) {
        let problems = self.problems
        (source as? any ReportsProblems)?.problems?.connect { problems.note($0) }
    }

    /// Whether the session is ending.
    ///
    /// A sign-out has not raised the epoch yet, or another process has ended the session and memory is not
    /// cleared yet.
    package nonisolated var isSigningOut: Bool { self.registry.withLock { $0.owesSignOut || $0.isEnding } }

    /// Adopts the later session `epoch` of another store of the same user.
    ///
    /// Another process has signed out, or the session number of this repository was lost.
    ///
    /// - Parameters:
    ///   - epoch: The later epoch.
    ///   - spared: A participant without values of an ended session, which is not cleared.
    /// - Throws: The error of the store; ``MuxError/calledFromStore`` if the lane refuses the call.
    package nonisolated func adoptSession(_ epoch: UInt64, sparing spared: ObjectIdentifier) async throws {
        // The system may have removed the folder of caches, and with the folder the number.
        if try await self.store.sessionEpoch() == 0 {
            try await self.raiseEpoch(to: epoch)
        } else {
            try await self.endSession(before: epoch, sparing: spared)
        }
    }
}

/// The repository of an object with a dependency: by default the dependency's repository.
@usableFromInline
package struct RepositoryChoice: Sendable {
    @usableFromInline package let repository: MuxRepository
    /// The repository of the dependency or of the cache, if different from ``repository``; otherwise `nil`.
    ///
    /// A sign-out of one repository would not end the session of the other repository.
    private let other: MuxRepository?
    private let isReported = Locked(false)

    /// Chooses `given`, otherwise the repository of the dependency, otherwise the shared repository.
    ///
    /// - Parameters:
    ///   - repository: The repository that the app has given; `nil` if the app gave no repository.
    ///   - dependency: The repository of the dependency; `nil` if the dependency belongs to no session.
    ///   - cache: The repository of a cache that the object also uses; `nil` without a cache.
    @usableFromInline
    package init(
        given repository: MuxRepository?,
        ofDependency dependency: MuxRepository?,
        ofCache cache: MuxRepository? = nil
    ) {
        let repository = repository ?? dependency ?? .shared
        self.repository = repository
        self.other = [dependency, cache].compactMap(\.self).first { $0 !== repository }
    }

    /// Whether the dependency or the cache belongs to the session of another repository.
    @usableFromInline package var isMismatch: Bool { self.other != nil }

    /// Refuses a request if the dependency or the cache belongs to the session of another repository.
    ///
    /// The first refusal is reported to the observers of both repositories, or to the log of misuse if
    /// neither repository has an observer.
    ///
    /// - Throws: ``MuxError/repositoryMismatch`` for a refusal.
    @usableFromInline
    package func check(_ cacheKey: String?, name: String? = nil) throws {
        guard let other else { return }
        let isFirst = self.isReported.withLock { isReported in
            defer { isReported = true }
            return !isReported
        }
        if isFirst {
            for repository in [self.repository, other] {
                repository.observer?.tell(MuxEvent(.repositoryMismatch, name: name ?? cacheKey, cacheKey: cacheKey))
            }
            // Logged only without an observer of either repository: `misuseLog` is `nil` with an observer.
            if other.observer == nil { self.repository.misuseLog?.write(.repositoryMismatch(name ?? cacheKey)) }
        }
        throw MuxError.repositoryMismatch
    }
}
