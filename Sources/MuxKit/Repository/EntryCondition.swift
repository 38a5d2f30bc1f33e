public import Synchronization

/// The condition for the use of an entry with tags: no change of its tags since its fetch.
///
/// An object, because few entries have tags, and because a hit stores the result of a check.
@usableFromInline
package final class EntryCondition: Sendable {
    let tags: Set<MuxShared.Scope>
    /// The number of the last change of any tag before the fetch of the entry, or the number that
    /// ``marked(at:)`` has set.
    ///
    /// Only changes with greater numbers have an effect on the entry.
    @usableFromInline let number: UInt64
    @usableFromInline let log: TagLog
    /// The number of the last change of any tag at the last successful check.
    @usableFromInline let checked: Atomic<UInt64>

    package init(_ tags: Set<MuxShared.Scope>, since number: UInt64, in log: TagLog) {
        self.tags = tags
        self.number = number
        self.log = log
        self.checked = Atomic(number)
    }

    /// The effect of changes of the tags on the entry.
    @usableFromInline
    package enum Effect: Sendable {
        case none
        /// The entry is stale.
        case refreshed
        /// The entry is removed.
        case cleared
    }

    /// Whether no tag of any entry has changed since the last successful check.
    @inlinable
    @inline(__always)
    var wasChecked: Bool {
        self.checked.load(ordering: .relaxed) == self.log.number.load(ordering: .relaxed)
    }

    /// Whether no change of a tag of the entry came after ``number``.
    @inlinable var holds: Bool { self.wasChecked || self.effect().effect == .none }

    /// The effect of all changes after ``number``, and the number of the last change of any tag.
    @usableFromInline
    package func effect() -> (effect: Effect, number: UInt64) {
        let (effect, number) = self.log.effect(on: self)
        if effect == .none { self.checked.store(number, ordering: .relaxed) }
        return (effect, number)
    }

    /// Whether a clear has removed the entry.
    @usableFromInline var removesEntry: Bool { !self.wasChecked && self.effect().effect == .cleared }

    /// The condition of the entry after the effect of all changes up to `number`.
    func marked(at number: UInt64) -> EntryCondition { EntryCondition(self.tags, since: number, in: self.log) }

    /// The condition of an entry that replaces an entry with the condition `former`; has the tags of both.
    @usableFromInline
    static func union(_ condition: EntryCondition?, _ former: EntryCondition?, since number: UInt64) -> EntryCondition?
    {
        guard let former else { return condition }
        return EntryCondition(former.tags.union(condition?.tags ?? []), since: number, in: former.log)
    }

    @usableFromInline var texts: [String] {
        self.tags.map { if case .tag(let text) = $0 { text } else { "" } }
    }
}
