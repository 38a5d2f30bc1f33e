import Foundation
public import Synchronization

/// The changes of tags of a repository, for all its multiplexers, and their exchange with the disk.
@usableFromInline
final class TagLog: Sendable {
    /// A multiplexer with tags.
    private struct Member: Sendable {
        weak var participant: (any SessionParticipant)?
    }

    private struct State: Sendable {
        var changes: TagChanges
        var exchange: TagChanges.Exchange
        /// The last changes that were read or written, and their entry's payload.
        var onDisk: (changes: TagChanges, payload: Data)?
        var members: [Member] = []
        /// The number of members at which members without a multiplexer are removed.
        var purgeCount = 64
    }

    /// The number of the last change.
    ///
    /// Set after a change is recorded: a reader that finds this number also finds the change.
    @usableFromInline let number: Atomic<UInt64>
    private let state: Locked<State>
    private let wallTime: @Sendable () -> Date

    init(wallTime: @escaping @Sendable () -> Date) {
        let start = Self.milliseconds(wallTime())
        self.wallTime = wallTime
        self.number = Atomic(start)
        self.state = Locked(State(changes: TagChanges(number: start), exchange: .init(start: start)))
    }

    private static func milliseconds(_ date: Date) -> UInt64 {
        let milliseconds = date.timeIntervalSince1970 * 1_000
        return milliseconds > 0 ? UInt64(min(milliseconds, Double(1 << 53))) : 0
    }

    /// The number of the last change.
    @usableFromInline var lastNumber: UInt64 { self.number.load(ordering: .relaxed) }

    /// The effect of the changes on an entry, and the number of the last change.
    func effect(on condition: EntryCondition) -> (EntryCondition.Effect, number: UInt64) {
        self.state.withLock { ($0.changes.effect(on: condition), $0.changes.number) }
    }

    /// Records a change of tags by this process.
    func record(_ tags: [String], isClear: Bool) {
        self.change { $0.changes.record(tags, isClear: isClear, at: Self.milliseconds(self.wallTime())) }
    }

    /// Whether the log has so many tags that the entries in memory should be marked; see
    /// ``forget(through:)``.
    var isFull: Bool { self.state.withLock { $0.changes.changes.count > TagChanges.usualCount } }

    /// Forgets changes of a full log that have been applied to all entries in memory.
    func forget(through number: UInt64) { self.state.withLock { $0.changes.forget(through: number) } }

    private func change<R>(_ body: (inout State) -> R) -> R {
        self.state.withLock { state in
            let result = body(&state)
            self.number.store(state.changes.number, ordering: .relaxed)
            return result
        }
    }

    // MARK: - Members

    /// Adds a multiplexer with tags, for ``members``.
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
            state.members.append(Member(participant: participant))
            return met
        }
        withExtendedLifetime(met) {}  // released outside the lock: each may be the last reference
    }

    /// The living multiplexers with tags.
    var members: [any SessionParticipant] { self.state.withLock { $0.members.compactMap(\.participant) } }

    // MARK: - Disk

    /// Whether a save must exchange the changes with the disk.
    var isInUse: Bool { self.state.withLock { !$0.members.isEmpty || $0.changes.number > $0.exchange.written } }

    /// Adopts the changes on disk.
    ///
    /// - Parameter entry: The entry on disk; `nil` without an entry.
    /// - Returns: Whether other processes have changed tags.
    /// - Complexity: O(*n*) in the number of changes if the entry differs from the last entry.
    func read(_ entry: MuxStoredEntry?) -> Bool {
        let last = self.state.withLock { $0.onDisk }
        guard let entry, entry.payload != last?.payload, let other = Self.changes(entry) else {
            if entry == nil { self.state.withLock { $0.onDisk = nil } }
            return false
        }
        return self.change { state in
            state.onDisk = (other, entry.payload)
            return state.changes.merge(other, &state.exchange)
        }
    }

    /// The changes to write after a read; `nil` if the disk has all changes.
    func unwritten() -> TagChanges? {
        self.state.withLock { state in
            let forDisk = state.changes.forDisk
            // The number on disk is at least the number of each entry on disk: the next change of any process
            // has a greater number.
            guard state.onDisk?.changes == forDisk else { return forDisk }
            state.exchange.written = forDisk.number
            return nil
        }
    }

    /// The changes were written.
    func wrote(_ changes: TagChanges, _ payload: Data) {
        self.state.withLock { state in
            state.exchange.written = max(state.exchange.written, changes.number)
            state.exchange.read = max(state.exchange.read, changes.number)
            state.onDisk = (changes, payload)
        }
    }

    /// A sign-out has removed all entries, also from disk.
    func sessionEnded() {
        let former = self.change { state in
            let former = state.changes
            state.changes = TagChanges(number: former.number)
            state.exchange = TagChanges.Exchange(start: former.number)
            state.onDisk = nil
            return former
        }
        withExtendedLifetime(former) {}
    }

    /// The name of the changes on disk; a multiplexer with this `cacheKey` could not save its values.
    static let name = MuxStoreKey(domain: "MuxKit.tags")

    /// The entry of `changes` for the disk.
    func entry(_ changes: TagChanges, _ sessionEpoch: UInt64) throws -> MuxStoredEntry {
        MuxStoredEntry(
            name: Self.name,
            schemaVersion: MuxStoredEntry.tagChangesVersion,
            sessionEpoch: sessionEpoch,
            // The time of the last change, so that a store with a limit evicts the entries that the changes
            // affect first.
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
