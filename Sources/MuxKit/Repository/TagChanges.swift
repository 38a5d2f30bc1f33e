import Foundation

/// The last refresh and the last clear of each tag, in one order.
///
/// Each change has a number, and each entry has the number of the last change before the fetch. A change has
/// an effect on each entry with the tag and a smaller number. So a change has the same cost for any number of
/// entries, and has an effect on entries on disk and on running fetches, too.
///
/// Numbers ascend. The numbers of a process start at the wall-clock time in milliseconds, and the number of a
/// change of single tags is at least the wall-clock time. So entries of this process are newer than the
/// changes of earlier processes, even before this process reads the earlier changes.
///
/// An exception is a clock that is set back while several processes run: until the first read of the disk,
/// changes of other processes may then have no effect on entries in memory.
package struct TagChanges: Sendable, Equatable {
    /// The numbers of the last refresh and the last clear of a tag; 0 without a change.
    package struct Change: Sendable, Equatable {
        var refresh: UInt64 = 0
        var clear: UInt64 = 0

        var last: UInt64 { max(self.refresh, self.clear) }

        /// Adopts the later changes.
        mutating func formUnion(_ other: Change) {
            self.refresh = max(self.refresh, other.refresh)
            self.clear = max(self.clear, other.clear)
        }

        typealias Kind = WritableKeyPath<Change, UInt64>

        private static var kinds: [Kind] { [\.refresh, \.clear] }

        /// The kinds with a later number in `other`, if this number is greater than `least`.
        func kinds(laterIn other: Change, after least: UInt64) -> [Kind] {
            Self.kinds.filter { other[keyPath: $0] > max(self[keyPath: $0], least) }
        }

        /// Gives the number `next` to the kinds in `changed` with a number after `least`, and to the other
        /// kinds with a number after `written`.
        mutating func renumber(_ changed: [Kind], after least: UInt64, others written: UInt64, as next: UInt64) {
            for kind in Self.kinds where self[keyPath: kind] > (changed.contains(kind) ? least : written) {
                self[keyPath: kind] = next
            }
        }
    }

    /// The number of the last change.
    package private(set) var number: UInt64
    package private(set) var changes: [MuxShared.Scope: Change] = [:]
    /// The last refresh and the last clear that count for all tags: because of forgotten changes of single
    /// tags, lost or unreadable changes, or ends of sessions.
    private(set) var forgotten = Change()

    /// The number of tags in memory above which the older half is forgotten, after all entries in memory have
    /// been marked.
    static let usualCount = 65_536
    /// The maximum number of tags in memory; above this number, the older half is forgotten at once.
    static let maximumCount = 1_048_576
    /// The maximum number of tags on disk, because each save with a change writes all changes.
    package static let maximumOnDisk = 4_096
    /// The maximum total size of the tags on disk, in bytes.
    static let maximumBytes = 1 << 20

    package init(number: UInt64) { self.number = number }

    /// Records a change of tags.
    ///
    /// - Parameters:
    ///   - tags: The tags.
    ///   - isClear: Whether the change is a clear; otherwise a refresh.
    ///   - now: The wall-clock time in milliseconds.
    package mutating func record(_ tags: some Sequence<String>, isClear: Bool, at now: UInt64) {
        self.number = max(self.number + 1, now)
        let change = isClear ? Change(clear: self.number) : Change(refresh: self.number)
        for tag in tags { self.changes[.tag(tag), default: Change()].formUnion(change) }
        self.forget()
    }

    package mutating func recordAll(isClear: Bool) {
        self.number += 1
        if isClear { self.forgotten.clear = self.number } else { self.forgotten.refresh = self.number }
    }

    /// The effect of the changes on an entry.
    func effect(on condition: EntryCondition) -> EntryCondition.Effect {
        var change = self.forgotten
        for tag in condition.tags { if let other = self.changes[tag] { change.formUnion(other) } }
        if change.clear > condition.number { return .cleared }
        return change.refresh > condition.number ? .refreshed : .none
    }

    /// The progress of the exchange of changes with other processes over the disk.
    package struct Exchange: Sendable {
        /// The number of the last change that this process or another process has written to disk.
        ///
        /// A change of this process with a greater number is unwritten.
        var written: UInt64
        /// The number of the last change on disk at the last read or write.
        var read: UInt64
        /// Whether the disk was read.
        var hasRead = false

        /// Makes the progress at the start of a process.
        ///
        /// - Parameter start: The number at the start of the process: earlier changes of other processes have
        ///   no effect on the entries of this process.
        package init(start: UInt64) { (self.written, self.read) = (start, start) }

        /// The changes were written.
        package mutating func wrote(_ changes: TagChanges) {
            (self.written, self.read) = (max(self.written, changes.number), max(self.read, changes.number))
        }
    }

    /// Adopts the changes of other processes.
    ///
    /// The order of unwritten changes of this process and new changes of other processes may be unknown. In
    /// this case, all these changes get the same new number, so that the changes have an effect on all
    /// earlier entries.
    ///
    /// - Parameters:
    ///   - other: The changes on disk.
    ///   - exchange: The progress; receives the read.
    /// - Returns: Whether other processes have changed tags since the last exchange.
    package mutating func merge(_ other: TagChanges, _ exchange: inout Exchange) -> Bool {
        // Before the first read, changes from before the start of this process are no news: all entries of
        // this process are newer.
        let least = exchange.hasRead ? 0 : exchange.read
        var changed: [MuxShared.Scope: [Change.Kind]] = [:]
        let hasUnwritten = self.number > exchange.written
        var isUnordered = hasUnwritten && other.number > exchange.read
        for (tag, change) in other.changes {
            let kinds = (self.changes[tag] ?? Change()).kinds(laterIn: change, after: least)
            if !kinds.isEmpty { changed[tag] = kinds }
            if kinds.contains(where: { change[keyPath: $0] <= exchange.read }) { isUnordered = true }
            self.changes[tag, default: Change()].formUnion(change)
        }
        let forgotten = self.forgotten.kinds(laterIn: other.forgotten, after: least)
        self.forgotten.formUnion(other.forgotten)
        self.number = max(self.number, other.number)
        if isUnordered {
            self.number += 1
            // A new change of another process may have any number.
            let (number, written) = (self.number, exchange.written)
            for tag in self.changes.keys {
                self.changes[tag]?.renumber(changed[tag] ?? [], after: least, others: written, as: number)
            }
            self.forgotten.renumber(forgotten, after: least, others: written, as: number)
        } else if !hasUnwritten {
            exchange.written = max(exchange.written, self.number)
        }
        (exchange.read, exchange.hasRead) = (max(exchange.read, other.number), true)
        self.forget()
        return !forgotten.isEmpty || !changed.isEmpty
    }

    /// Forgets the older half of the changes, but no change after `number`, if the number of changes exceeds
    /// ``usualCount``.
    package mutating func forget(through number: UInt64) {
        guard self.changes.count > Self.usualCount else { return }
        let middle = self.changes.values.map(\.last).sorted()[self.changes.count / 2]
        for (tag, change) in self.changes where change.last <= min(number, middle) {
            self.forgotten.formUnion(change)
            self.changes[tag] = nil
        }
    }

    package var forDisk: TagChanges {
        var changes = self
        changes.forget(beyond: Self.maximumOnDisk)
        while changes.byteCount > Self.maximumBytes { changes.forget(beyond: changes.changes.count - 1) }
        return changes
    }

    private var byteCount: Int {
        self.changes.keys.reduce(0) { if case .tag(let text) = $1 { $0 + text.utf8.count } else { $0 } }
    }

    /// Keeps only the newest `limit / 2` changes if the number of changes exceeds `limit`.
    private mutating func forget(beyond limit: Int = Self.maximumCount) {
        guard self.changes.count > limit else { return }
        let old = self.changes.sorted { $0.value.last < $1.value.last }.prefix(self.changes.count - limit / 2)
        for (tag, change) in old {
            self.forgotten.formUnion(change)
            self.changes[tag] = nil
        }
    }
}

extension TagChanges: Codable {
    private struct Line: Codable {
        let tag: String
        let refresh: UInt64?
        let clear: UInt64?

        init(_ tag: MuxShared.Scope, _ change: Change) {
            self.tag = if case .tag(let text) = tag { text } else { "" }
            self.refresh = change.refresh == 0 ? nil : change.refresh
            self.clear = change.clear == 0 ? nil : change.clear
        }

        var change: Change { Change(refresh: self.refresh ?? 0, clear: self.clear ?? 0) }
    }

    private enum CodingKeys: CodingKey { case number, tags, forgotten }

    package init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        self.number = try container.decode(UInt64.self, forKey: .number)
        // Lines instead of an object: tags that differ only in Unicode normalization would be one key.
        for line in try container.decode([Line].self, forKey: .tags) { self.changes[.tag(line.tag)] = line.change }
        self.forgotten = try container.decode(Line.self, forKey: .forgotten).change
        let last = self.changes.values.reduce(self.forgotten.last) { max($0, $1.last) }
        guard last <= self.number, self.number < Self.greatestNumber else {
            let text = "The number is out of range."
            throw DecodingError.dataCorruptedError(forKey: .number, in: container, debugDescription: text)
        }
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(self.number, forKey: .number)
        try container.encode(self.changes.map { Line($0.key, $0.value) }, forKey: .tags)
        try container.encode(Line(.everything, self.forgotten), forKey: .forgotten)
    }

    /// The limit of numbers from disk: an addition must not overflow.
    private static let greatestNumber = UInt64.max / 2
}
