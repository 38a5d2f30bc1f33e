import MuxKit

/// A model of one key over time, without flights, which compares the slot with the expected entry.
struct SlotBoard: Hashable, Sendable {
    /// Bugs that distort the slot's inputs and outputs, without a copy of the slot's code.
    enum Bug: String, CaseIterable, Sendable {
        case none = "no bug"
        case staleRestamped = "stale value re-stamped"
        case failureOutlives = "negative entry outliving its time"
        case refreshForgottenOnDisk = "a refresh does not count for what is on disk"
        case clearedComesBack = "a cleared entry comes back from disk"
        case dirtyDropped = "memory pressure drops what the disk does not have"
        case lateSaveMarksClean = "a save of an older value marks the newer one as saved"
    }

    enum Event: String, Sendable, CaseIterable, CustomStringConvertible {
        case fetched = "a fetch brings a value"
        case failed = "a fetch fails"
        case failedRemembered = "a fetch fails and is remembered"
        case refreshed = "refresh"
        case cleared = "clear"
        case removedOnDisk = "the disk has removed it"
        case saveBegins = "a save begins"
        case saveEnds = "the save ends"
        case loaded = "the disk is read"
        case memoryDropped = "memory is short"
        case time = "a second passes"

        var description: String { self.rawValue }
    }

    private struct Fact: Hashable, Sendable {
        let value: UInt64
        let fetchedAt: Int
        var timeToLive = SlotBoard.timeToLive
        var isRefreshed = false

        /// The entry on disk, where a refreshed value has no time to live.
        var onDisk: Fact {
            Fact(value: self.value, fetchedAt: self.fetchedAt, timeToLive: self.isRefreshed ? 0 : self.timeToLive)
        }
    }

    fileprivate static let timeToLive = 2
    private static let staleIfError = 3
    private static let backoff = 2
    private static let memory = 3
    private static let limits = Freshness.Limits(staleIfError: .seconds(Self.staleIfError))

    private let bug: Bug
    private var slot = Slot<UInt64>()
    private var now = 0
    private var last: UInt64 = 0
    /// The value in memory, the value on disk, and the value of a running save.
    private var fact: Fact?
    private var disk: Fact?
    private var saving: (entry: Slot<UInt64>.Entry, fact: Fact)?
    private var isMarked = false
    private var owesRemoval = false
    private var heldUntil = 0
    private var failureUntil = 0

    init(_ bug: Bug) { self.bug = bug }

    private func moment(_ second: Int) -> Moment { Moment(nanoseconds: Int64(second) * 1_000_000_000) }

    /// The possible events.
    var events: [Event] {
        Event.allCases.filter { event in
            switch event {
            case .saveBegins: self.saving == nil && self.slot.entry?.isDirty == true && !self.owesRemoval
            case .saveEnds: self.saving != nil
            case .removedOnDisk: self.owesRemoval && self.saving == nil
            case .loaded: self.disk != nil && self.slot.entry == nil
            default: true
            }
        }
    }

    private func entry(_ fact: Fact, isDirty: Bool) -> Slot<UInt64>.Entry {
        Slot<UInt64>.Entry(
            value: fact.value,
            fetchedAt: self.moment(fact.fetchedAt),
            timeToLive: .seconds(fact.timeToLive),
            revision: fact.value,
            isDirty: isDirty,
            isPersistent: true
        )
    }

    /// Applies `event` and returns a violation, or `nil`.
    mutating func apply(_ event: Event) -> String? {
        switch event {
        case .fetched:
            self.last += 1
            let fact = Fact(value: self.last, fetchedAt: self.now)
            _ = self.slot.commit(self.entry(fact, isDirty: true))
            self.fact = fact
            self.isMarked = false
            self.heldUntil = 0
            self.failureUntil = 0
        case .failed, .failedRemembered:
            let remembered = event == .failed ? self.now : self.now + Self.memory
            if self.bug == .staleRestamped, let entry = self.slot.entry {
                _ = self.slot.commit(
                    self.entry(Fact(value: entry.value, fetchedAt: self.now), isDirty: entry.isDirty)
                )
            }
            self.slot.recordFailure(
                Violation("offline"),
                heldUntil: self.moment(self.now + Self.backoff),
                rememberedUntil: self.moment(remembered),
                at: self.moment(self.now)
            )
            self.heldUntil = self.fact == nil ? 0 : self.now + Self.backoff
            self.failureUntil = event == .failed ? 0 : remembered
        case .refreshed:
            self.slot.markRefreshed()
            self.isMarked = true
            self.fact?.isRefreshed = true
            self.heldUntil = 0
            self.failureUntil = 0
        case .cleared:
            _ = self.slot.clear(alsoOnDisk: true)
            self.fact = nil
            self.isMarked = false
            self.owesRemoval = true
            self.heldUntil = 0
            self.failureUntil = 0
        case .removedOnDisk:
            self.slot.recordRemovalOnDisk()
            self.owesRemoval = false
            self.disk = nil
        case .saveBegins:
            if let entry = self.slot.entry, let fact { self.saving = (entry, fact.onDisk) }
        case .saveEnds:
            if let saving {
                var saved = saving.entry
                if self.bug == .lateSaveMarksClean, let entry = self.slot.entry { saved = entry }
                // A clear during the save removes the entry from disk after the save.
                if !self.owesRemoval { self.slot.recordSave(of: saved, asRefreshed: saving.fact.timeToLive == 0) }
                self.disk = saving.fact
            }
            self.saving = nil
        case .loaded: self.load()
        case .memoryDropped:
            let isDirty = self.slot.entry?.isDirty ?? false
            if self.bug == .dirtyDropped, let entry = self.slot.entry {
                self.slot.recordSave(of: entry, asRefreshed: self.slot.isRefreshed)
            }
            let dropped = self.slot.dropSavedEntry(keepingMark: true)
            if dropped != nil {
                guard !isDirty else { return "a value is lost that the disk does not have" }
                self.fact = nil
                self.heldUntil = 0
                self.failureUntil = 0
            }
        case .time:
            self.now += 1
        }
        return self.rest()
    }

    private mutating func load() {
        guard let disk, self.slot.entry == nil else { return }
        if self.bug == .clearedComesBack { self.slot.recordRemovalOnDisk() }
        if self.bug == .refreshForgottenOnDisk, self.slot.isRefreshed {
            self.slot = Slot()
        }
        self.slot.adoptLoaded(self.entry(disk, isDirty: false), fromBeforeRefresh: false)
        guard !self.owesRemoval else { return }
        self.fact = disk
        self.fact?.isRefreshed = self.isMarked
    }

    /// The expected freshness of the entry, derived from the events.
    private func expected(at second: Int) -> Freshness? {
        guard let fact else { return nil }
        let age = second - fact.fetchedAt
        if !fact.isRefreshed, age < fact.timeToLive { return .fresh(renews: false) }
        guard age < fact.timeToLive + Self.staleIfError else { return .unusable }
        return second < self.heldUntil ? .servable(renews: false) : .fallback
    }

    private func rest() -> String? {
        guard self.slot.entry?.value == self.fact?.value else {
            return "it holds \(self.slot.entry?.value ?? 0) instead of \(self.fact?.value ?? 0)"
        }
        if let fact, let disk, fact.isRefreshed, self.slot.entry?.isDirty == false, disk.value == fact.value {
            guard disk.timeToLive == 0 else {
                return "the disk takes for fresh what was refreshed, and nobody will tell it"
            }
        }
        if let fact, self.slot.entry?.isDirty == false, disk?.value != fact.value {
            return "the disk does not have \(fact.value), and nobody will tell it"
        }
        for second in self.now..<self.now + 4 {
            let freshness = self.slot.freshness(at: self.moment(second), Self.limits)
            guard freshness == self.expected(at: second) else {
                let expected = self.expected(at: second).map { "\($0)" } ?? "nothing"
                return "\(freshness.map { "\($0)" } ?? "nothing") instead of \(expected) after \(second - self.now) s"
            }
            let asked = self.bug == .failureOutlives ? second - 1 : second
            let fails = self.slot.failure(at: self.moment(max(asked, self.now - 1))) != nil
            guard fails == (second < self.failureUntil) else {
                return "a failure \(fails ? "counts that should not" : "is forgotten") after \(second - self.now) s"
            }
        }
        return nil
    }

    // MARK: - Equality: times are relative to the present

    private var key: [Int] {
        func fact(_ fact: Fact?) -> [Int] {
            guard let fact else { return [-1] }
            return [min(self.now - fact.fetchedAt, 6), fact.timeToLive, fact.isRefreshed ? 1 : 0]
        }
        let entry = self.slot.entry
        return fact(self.fact) + fact(self.disk) + fact(self.saving?.fact) + [
            self.saving == nil ? 0 : self.saving?.fact.value == self.fact?.value ? 1 : 2,
            self.disk == nil ? 0 : self.disk?.value == self.fact?.value ? 1 : 2,
            self.isMarked ? 1 : 0, self.owesRemoval ? 1 : 0, self.slot.isRefreshed ? 1 : 0,
            self.slot.isRemovalPending ? 1 : 0, entry == nil ? 0 : entry?.isDirty == true ? 1 : 2,
            max(self.heldUntil - self.now, 0), max(self.failureUntil - self.now, 0),
        ]
    }

    static func == (a: SlotBoard, b: SlotBoard) -> Bool { a.key == b.key }

    func hash(into hasher: inout Hasher) { hasher.combine(self.key) }
}
