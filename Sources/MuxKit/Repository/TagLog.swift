package import Foundation
public import Synchronization

/// The changes of tags of a repository, for all its multiplexers, and their exchange with the disk.
@usableFromInline
package final class TagLog: Sendable {
    /// A multiplexer with tags.
    private struct Member: Sendable {
        /// Another multiplexer may get the same identifier after the deallocation of this multiplexer.
        let id: ObjectIdentifier
        weak var participant: (any SessionParticipant)?
    }

    private struct State: Sendable {
        var changes: TagChanges
        var exchange: TagChanges.Exchange
        /// The last changes read or written, and the payload of their entry; `nil` without an entry.
        var onDisk: (changes: TagChanges, payload: Data)?
        /// The payload of a write that has begun and is not complete, or of an unreadable entry.
        var ignored: Data?
        /// Whether the disk had entries with tags, but no changes.
        var hasLost = false
        /// The number of ended sessions.
        var session: UInt64 = 0
        /// The number of completed writes.
        var writes: UInt64 = 0
        var members: [Member] = []
        /// The number of members at which members without a multiplexer are removed.
        var purgeCount = 64
    }

    /// The number of the last change.
    ///
    /// Set after the record of a change: a reader of the number also finds the change.
    @usableFromInline let number: Atomic<UInt64>
    private let state: Locked<State>
    private let wallTime: @Sendable () -> Date

    /// Makes a log with `changes`; with `nil`, without changes.
    package init(_ changes: TagChanges? = nil, wallTime: @escaping @Sendable () -> Date = { Date() }) {
        let changes = changes ?? TagChanges(number: wallTime().milliseconds)
        self.wallTime = wallTime
        self.number = Atomic(changes.number)
        self.state = Locked(State(changes: changes, exchange: .init(start: changes.number)))
    }

    /// The number of the last change.
    @usableFromInline package var lastNumber: UInt64 { self.number.load(ordering: .relaxed) }

    /// The effect of the changes on an entry, and the number of the last change.
    func effect(on condition: EntryCondition) -> (EntryCondition.Effect, number: UInt64) {
        self.state.withLock { ($0.changes.effect(on: condition), $0.changes.number) }
    }

    /// Records a change of tags by this process.
    func record(_ tags: [String], isClear: Bool) {
        let now = self.wallTime().milliseconds  // outside the lock, because the clock is code of the app
        self.change { $0.changes.record(tags, isClear: isClear, at: now) }
    }

    /// Whether the log has so many tags that ``forget(through:)`` is due, after
    /// ``EntryCondition/marked(at:)`` for the entries in memory.
    package var isFull: Bool { self.state.withLock { $0.changes.changes.count > TagChanges.usualCount } }

    /// Forgets changes of a full log, after their effect on all entries in memory.
    func forget(through number: UInt64) { self.state.withLock { $0.changes.forget(through: number) } }

    private func change<R>(_ body: (inout State) -> R) -> R {
        self.state.withLock { state in
            let result = body(&state)
            self.number.store(state.changes.number, ordering: .relaxed)
            return result
        }
    }

    // MARK: - Members

    /// Adds a multiplexer with tags, for ``members``, unless already a member.
    ///
    /// - Complexity: O(*n*) in the number of members.
    func join(_ participant: any SessionParticipant) {
        let met = self.state.withLock { state -> [any SessionParticipant] in
            var met: [any SessionParticipant] = []
            if state.members.count >= state.purgeCount {
                state.members.removeAll { member in
                    guard let participant = member.participant else { return true }
                    met.append(participant)
                    return false
                }
                state.purgeCount = max(64, state.members.count * 2)
            }
            // Two fetches may call `join` at the same time for the same multiplexer. The read of the weak
            // reference retains only `participant`, which the caller retains, too.
            let id = ObjectIdentifier(participant)
            if !state.members.contains(where: { $0.id == id && $0.participant != nil }) {
                state.members.append(Member(id: id, participant: participant))
            }
            return met
        }
        withExtendedLifetime(met) {}  // released outside the lock: each may be the last reference
    }

    /// The living multiplexers with tags.
    var members: [any SessionParticipant] { self.state.withLock { $0.members.compactMap(\.participant) } }

    // MARK: - Disk

    /// Whether a save must exchange the changes with the disk.
    var isInUse: Bool { self.state.withLock { !$0.members.isEmpty || $0.changes.number > $0.exchange.written } }

    /// The progress of the sessions and of the writes, at the start of a read.
    package typealias Progress = (session: UInt64, writes: UInt64)

    package var progress: Progress { self.state.withLock { ($0.session, $0.writes) } }

    /// The result of a read.
    package enum News: Sendable {
        case none
        case changes
        /// Other processes have changed tags, and this process has written during the read: the disk may lack
        /// the changes of the other processes.
        case overwritten
    }

    /// Adopts the changes on disk.
    ///
    /// - Parameters:
    ///   - entry: The entry on disk; `nil` without an entry.
    ///   - start: The progress at the start of the read.
    ///   - isExpected: Whether the disk has entries with tags: if `entry` is `nil`, the changes of the tags
    ///     are then lost.
    /// - Returns: ``News/changes`` if other processes have changed tags, or if changes on disk are unreadable
    ///   or lost; ``News/overwritten`` if this process has also written during the read; otherwise
    ///   ``News/none``.
    /// - Complexity: O(*n*) in the number of changes if the entry differs from the last entry.
    package func read(_ entry: MuxStoredEntry?, since start: Progress, isExpected: Bool = false) -> News {
        let (last, ignored) = self.state.withLock { ($0.onDisk, $0.ignored) }
        let isNew = entry.map { $0.payload != last?.payload && $0.payload != ignored } ?? true
        // Decoded outside the lock.
        let other = isNew ? entry.flatMap(Self.changes) : nil
        return self.change { state in
            guard isNew, state.session == start.session else { return .none }
            if let entry, let other {
                (state.onDisk, state.hasLost) = ((other, entry.payload), false)
                guard state.changes.merge(other, &state.exchange) else { return .none }
                return state.writes == start.writes ? .changes : .overwritten
            }
            (state.onDisk, state.exchange.hasRead) = (nil, true)
            if let entry {
                // Unreadable: any value may be cleared.
                state.ignored = entry.payload
                state.changes.recordAll(isClear: true)
                return .changes
            }
            guard isExpected, !state.hasLost else { return .none }
            state.hasLost = true
            state.changes.recordAll(isClear: false)
            return .changes
        }
    }

    /// The changes to write after a read; `nil` if the entry on disk has all changes.
    ///
    /// Changes that were read during a write count as unwritten, because the write has replaced their entry.
    func unwritten() -> TagChanges? {
        // The number on disk must be at least the number of each entry on disk, so that the next change of
        // any process has a greater number.
        self.state.withLock { state in
            let number = state.changes.number
            return number > state.exchange.written || state.onDisk?.changes.number ?? 0 < number ? state.changes : nil
        }
    }

    /// Notes the start of a write of `payload`: a read of this payload is no news.
    func noteWriteStart(_ payload: Data) { self.state.withLock { $0.ignored = payload } }

    /// Notes that the changes were written.
    func noteWrite(_ changes: TagChanges, _ payload: Data) {
        self.state.withLock { state in
            state.exchange.wrote(changes)
            state.onDisk = (changes, payload)
            (state.ignored, state.hasLost) = (nil, false)
            state.writes += 1
        }
    }

    /// Discards all changes at the end of the session: entries of the ended session are invalid.
    package func sessionEnded() {
        let former = self.change { state in
            let former = state.changes
            state.changes = TagChanges(number: former.number)
            // Also removes a late value of the ended session.
            state.changes.recordAll(isClear: true)
            state.exchange = TagChanges.Exchange(start: state.changes.number)
            (state.onDisk, state.hasLost) = (nil, false)
            state.session += 1
            return former
        }
        withExtendedLifetime(former) {}
    }

    /// The name of the entry with the changes on disk; a value of a map with the same `cacheKey` and key
    /// would have the same name.
    package static let name = MuxStoreKey(domain: "MuxKit.tags", key: "changes")

    /// The entry of `changes` for the disk.
    func entry(_ changes: TagChanges, _ sessionEpoch: UInt64) throws -> MuxStoredEntry {
        MuxStoredEntry(
            name: Self.name,
            schemaVersion: MuxStoredEntry.tagChangesVersion,
            sessionEpoch: sessionEpoch,
            // About the time of the last change: numbers start at the wall-clock time in milliseconds.
            fetchedAt: Date(timeIntervalSince1970: Double(changes.number) / 1_000),
            timeToLive: .zero,
            payload: try JSONEncoder().encode(changes)
        )
    }

    private static func changes(_ entry: MuxStoredEntry) -> TagChanges? {
        guard entry.schemaVersion == MuxStoredEntry.tagChangesVersion else { return nil }
        return try? JSONDecoder().decode(TagChanges.self, from: entry.payload)
    }
}

extension MuxStoredEntry {
    /// The version of ``TagChanges`` on disk; no version of a value.
    static let tagChangesVersion = -2
}
