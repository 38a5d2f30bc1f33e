public import Synchronization

/// The condition for the use of an entry with tags: no change of its tags since its fetch.
///
/// An object, because few entries have tags, and because a hit stores the result of a check.
@usableFromInline
package final class EntryCondition: Sendable {
    let tags: [MuxShared.Scope]
    /// The number of the last change of any tag before the fetch of the entry.
    @usableFromInline let number: UInt64
    @usableFromInline let log: TagLog
    /// The number of the last change of any tag at the last check that found no change of these tags.
    @usableFromInline let checked: Atomic<UInt64>

    init(_ tags: [MuxShared.Scope], since number: UInt64, in log: TagLog) {
        self.tags = tags
        self.number = number
        self.log = log
        self.checked = Atomic(number)
    }

    /// The effect of the changes of the tags on the entry.
    @usableFromInline
    enum Effect: Sendable {
        case none
        /// The entry is stale.
        case refreshed
        /// The entry is removed.
        case cleared
    }

    /// Whether no tag has changed since the fetch.
    @inlinable
    var holds: Bool {
        self.checked.load(ordering: .relaxed) == self.log.number.load(ordering: .relaxed) || self.effect() == .none
    }

    @usableFromInline
    func effect() -> Effect {
        let (effect, number) = self.log.effect(on: self)
        if effect == .none { self.checked.store(number, ordering: .relaxed) }
        return effect
    }

    /// Whether a clear has removed the entry.
    @usableFromInline var removesEntry: Bool { !self.holds && self.effect() == .cleared }

    /// The condition after the entry was marked as refreshed: only later changes have an effect.
    func marked() -> EntryCondition { EntryCondition(self.tags, since: self.log.lastNumber, in: self.log) }

    /// The condition of an entry that replaces an entry, and keeps its tags.
    static func union(_ condition: EntryCondition?, _ former: EntryCondition?, since number: UInt64) -> EntryCondition?
    {
        guard let former else { return condition }
        let tags = condition?.tags ?? []
        return EntryCondition(tags + former.tags.filter { !tags.contains($0) }, since: number, in: former.log)
    }

    /// The tags as strings.
    @usableFromInline var texts: [String] {
        self.tags.map { if case .tag(let text) = $0 { text } else { "" } }
    }
}
