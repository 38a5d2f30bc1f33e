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
    /// The repository of an app with one account: in the caches folder, unless ``setUpShared(_:)`` said otherwise.
    public static var shared: MuxRepository {
        self.sharedRepository.withLock { shared in
            let repository = shared ?? MuxRepository()
            shared = repository
            return repository
        }
    }

    private static let sharedRepository = Locked<MuxRepository?>(nil)

    /// Has ``shared`` be `repository` from now on: once, and before it is first used.
    ///
    /// Call it where the program starts, such as in the initialiser of the app. Global multiplexers are made when they are
    /// first used, so they come later.
    ///
    /// ```swift
    /// try MuxRepository.setUpShared(
    ///     MuxRepository(directory: folder, savePolicy: .enteringBackground, observer: LoggingObserver())
    /// )
    /// ```
    ///
    /// - Parameter repository: The repository, with the folder, limits, save policy and observer of the program.
    /// - Throws: ``MuxError/sharedRepositoryInUse`` if it was set up or used before; nothing has changed then.
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
    /// `nil` in a release build, and where an observer is told of misuse.
    nonisolated let misuseLog: MisuseLog?
    /// The problems of the folders of everything that uses the repository, each reported once to the observer.
    package nonisolated let problems = StorageProblems()
    /// Serialises all changes of the store and the session.
    nonisolated let lane = ReentrantAsyncMutex(refusal: MuxError.calledFromStore)

    nonisolated let store: any MuxStore
    /// The store, if it can load without waiting.
    nonisolated let promptStore: (any PromptStore)?
    /// `nil` if no other machine shares the entries.
    package nonisolated let sharedStore: SharedStoreClient?
    nonisolated let durability: MuxDurability
    nonisolated let savePolicy: MuxRepository.SavePolicy
    nonisolated let registry = Locked(Registry())
    /// Whether the session epoch was read before the first value; the lock is held during the read.
    nonisolated let sessionKnowledge = Locked(SessionKnowledge.none)
    /// The task that watches for sign-outs of other processes.
    nonisolated let sessionWatch = Locked<Task<Void, Never>?>(nil)
    private nonisolated let memoryWarnings = Locked<MemoryWarnings?>(nil)
    private nonisolated let backgroundNotices = Locked<BackgroundNotices?>(nil)

    enum SessionKnowledge: Sendable {
        /// The session epoch was not read.
        case none
        /// It could not be read.
        case unreadable
        case known
    }

    struct Registry: Sendable {
        var participants = WeakParticipants()
        var retained: [ObjectIdentifier: any AnyObject & Sendable] = [:]
        /// The epoch of this process's session, once it was read.
        var sessionEpoch: UInt64?
        /// Whether a session that another process has ended is about to end here: nothing is read from disk meanwhile.
        var isEnding = false
        /// Whether a sign-out could not raise the epoch on disk, whose entries belong to an ended session.
        var owesSignOut = false
        /// Whether an automatic save is scheduled.
        var isSaveDue = false
        /// Participants with values that the scheduled save has to write: users may have released them.
        var unsaved: [ObjectIdentifier: any SessionParticipant] = [:]
        /// What the last save could not write or repair.
        var lastSaveFailures = 0
        /// Whether entries of ended sessions could not be removed from disk.
        var owesRemoval = false
        /// The store's count of losses, when it was last read.
        var losses = 0
    }

    /// Makes a repository that keeps its entries in a folder.
    ///
    /// - Parameters:
    ///   - directory: The folder; made when it is first needed. `nil` for a folder of this app in the caches folder. It has to
    ///     belong to the user of the process, and be writable by this user alone; otherwise nothing is read or saved, and reports
    ///     and ``MuxEvent/Kind/storageFailed`` give the reason.
    ///     Pass a folder of an app group to share entries between processes.
    ///   - byteLimit: How many bytes the entries may take on disk; 100 million, `nil` for any number. After each save the
    ///     least recently used ones go.
    ///   - durability: What "saved" means.
    ///   - savePolicy: When values are saved.
    ///   - observer: Receives what is decided by everything that uses the repository.
    ///   - clock: Measures ages inside the process.
    ///   - wallTime: The time of day, by which ages survive a relaunch.
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
            wallTime: wallTime,
            random: { .random(in: 0..<1) },
            spawn: TaskLauncher()
        )
    }

    /// Makes a repository whose entries several machines share: one fetch for all of them, and one invalidation.
    ///
    /// Values of multiplexers with a `cacheKey` are in memory and in the shared store, and nothing is on disk, so that there is nothing to
    /// save. See <doc:SeveralMachines>.
    ///
    /// - Parameters:
    ///   - sharedStore: Keeps the entries; used by this repository alone, as one machine's connection.
    ///   - policy: How much is expected of the store.
    ///   - observer: Receives what is decided by everything that uses the repository.
    ///   - clock: Measures ages inside the process. Ages of what others fetched are the store's.
    ///   - wallTime: The time of day.
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
            random: { .random(in: 0..<1) },
            spawn: TaskLauncher(),
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
        random: @escaping @Sendable () -> Double,
        spawn: TaskLauncher,
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
        self.sharedStore = sharedStore.map {
            SharedStoreClient($0.store, $0.policy, time: time, random: random, spawn: spawn, observer: observer)
        }
        self.sharedStore?.listen { [weak self] change in
            for participant in self?.concernedParticipants ?? [] { participant.sharedStoreChanged(change) }
        }
        if let observer {
            self.problems.connect { error in
                // In a task, because locks may be held here.
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

    /// Whether it saves when the app enters the background.
    package nonisolated var watchesBackground: Bool { self.backgroundNotices.withLock { $0 != nil } }

    // MARK: - Registry

    /// Includes `participant` in sign-outs and saves as long as it lives.
    ///
    /// - Returns: Its number, for ``detach(_:domain:)``.
    /// - Complexity: Amortised O(1), without a hash for a participant without a domain.
    @discardableResult
    package nonisolated func attach(_ participant: any SessionParticipant) -> UInt64 {
        let domain = participant.domain
        self.learnSession(isPlain: participant.isPlain)
        let insertion = self.registry.withLock { $0.participants.insert(participant, domain: domain) }
        if insertion.sharesDomain {
            self.observer?.tell(MuxEvent(.cacheKeyShared, cacheKey: domain))
            if let domain { self.misuseLog?.write(.cacheKeyShared(domain)) }
        }
        return insertion.order
    }

    /// Forgets a participant; called by its `deinit`.
    nonisolated func detach(_ order: UInt64, domain: String?) {
        self.registry.withLock { $0.participants.remove(order, domain: domain) }
    }

    /// Keeps `owner`, of which `participant` is the implementation, alive.
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

    /// The living participants but the plain ones.
    nonisolated var concernedParticipants: [any SessionParticipant] {
        self.registry.withLock { $0.participants.living(plain: false) }
    }

    /// The number of places in the registry of participants.
    package nonisolated var participantPlaces: Int { self.registry.withLock { $0.participants.placeCount } }

    package nonisolated func faults() async -> [String] {
        let slots = self.registry.withLock { $0.participants }.leftoverCount()
        let waits = self.sharedStore?.waitCount ?? 0
        return [
            slots > 0 ? "\(slots) slots of released participants are left" : nil,
            waits > 0 ? "\(waits) waits for claims are left" : nil,
        ].compactMap(\.self)
    }

    /// Forgets values in memory, of everything of this repository that is alive.
    ///
    /// Nothing is lost: what has to go to disk and is not there yet stays in memory, what is on disk is read again when it is
    /// asked for, and the rest is fetched. Fetches that are running go on. On Apple platforms this happens by itself when
    /// the system warns that memory is short.
    ///
    /// - Complexity: O(*n*) in the number of values in memory.
    public nonisolated func clearMemory() {
        for participant in self.participants { participant.clearMemory() }
    }
}

extension MuxRepository {
    /// The folder for files that belong to the session, in the app's caches folder: another one for each folder of a store.
    ///
    /// Repositories with different folders, such as those of accounts, share no files, and processes that share a store's folder share none
    /// either. A folder is identified by its place in the home folder, which an update of an app moves, or else by its path.
    ///
    /// - Parameters:
    ///   - kind: The kind of files.
    ///   - key: Distinguishes several folders of one kind; `nil` for the only one.
    /// - Returns: The folder, with its full name, or the reason why there is none.
    package nonisolated func folder(_ kind: OwnedName.Kind, for key: String? = nil) -> StoreFolder {
        let standard = StoreFolder.standard()
        guard case .success(let path) = standard.location, let app = FilePath.parent(of: path) else { return standard }
        var place = "standard"
        switch (self.store as? any FolderStore)?.folder?.location {
        case .success(let folder)? where !folder.utf8.elementsEqual(path.utf8):
            place = StoreFolder.place(of: folder, home: NSHomeDirectory())
        case .failure(let error)?: return StoreFolder(.failure(error))
        case .success?, nil: break
        }
        let owner = OwnedName(kind, [place] + [key].compactMap(\.self))
        let isSole = place == "standard" && key == nil
        return StoreFolder(.success(app)).appending(isSole ? kind.rawValue : owner.fileName, owner: owner)
    }

    /// Reports the problems of the folder of `source`, if it has one, to the observer.
    package nonisolated func collectProblems(of source: any Sendable) {
        let problems = self.problems
        (source as? any ReportsProblems)?.problems?.connect { problems.note($0) }
    }
}

/// The repository of what needs a dependency: by default the dependency's.
@usableFromInline
package struct RepositoryChoice: Sendable {
    @usableFromInline package let repository: MuxRepository
    /// The dependency's repository, if it is another one: a sign-out of one would not end the session of the other.
    private let other: MuxRepository?
    private let isReported = Locked(false)

    /// Chooses `given`, or else the one of the dependency, or else the shared one.
    ///
    /// - Parameters:
    ///   - repository: The one that the user has named; `nil` for none.
    ///   - dependency: That of the dependency; `nil` if it belongs to no session.
    ///   - cache: That of a cache that is used, too; `nil` if there is none.
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

    /// Whether the dependency belongs to the session of another repository.
    @usableFromInline package var isMismatch: Bool { self.other != nil }

    /// Refuses a request if the dependency belongs to the session of another repository; reports this to observers once.
    ///
    /// - Throws: ``MuxError/repositoryMismatch``.
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
            // One of two observers is enough.
            if other.observer == nil { self.repository.misuseLog?.write(.repositoryMismatch(name ?? cacheKey)) }
        }
        throw MuxError.repositoryMismatch
    }
}
