import MuxKit

/// A model of the callers of a runner, which compares the machine's decisions with expected decisions.
///
/// The expected decisions are derived from facts about values: the origin, parent and session of a value, and
/// its refusals.
struct DependencyBoard: Hashable, Sendable {
    enum Event: Sendable, CustomStringConvertible {
        case call
        case succeeds(Int)
        case refuses(Int)
        case updateBrings
        case updateThrows
        case updateRefused
        case lateUpdateBrings
        case set
        case end(DependencyDecider.Machine.End)
        case parentChanges

        var description: String {
            switch self {
            case .call: "a call"
            case .succeeds(let caller): "the task of caller \(caller) succeeds"
            case .refuses(let caller): "the task of caller \(caller) refuses"
            case .updateBrings: "the update brings a value"
            case .updateThrows: "the update throws"
            case .updateRefused: "the update is refused"
            case .lateUpdateBrings: "a dismissed update brings a value"
            case .set: "a value is set"
            case .end(let end): "\(end)"
            case .parentChanges: "the parent changes"
            }
        }
    }

    /// A value with the epoch of its parent.
    private struct Fact: Sendable {
        let value: Int
        var parent: UInt64
    }

    private struct Caller: Sendable {
        var call: DependencyDecider.Machine.Call
        let session: Int
        var refused: Int?
        /// The updates since a task accepted a value, and the value whose refusal led to the last update.
        var updates = 0
        var counted = 0
        /// The value of the running task, `nil` while the caller waits.
        var uses: (value: Int, epoch: UInt64)?
    }

    private var decider: DependencyDecider
    private var fact: Fact?
    private var isRefused = false
    private var session = 0
    private var lastEnd = ""
    private var parent: UInt64 = 0
    private var lastValue = 0
    /// The newest value that a task accepted before a refusal of the value.
    private var accepted = 0
    /// The value whose refusal led to the last update.
    private var counted = 0
    private var callers: [Caller] = []
    /// The parent of the running update, and the parent of a dismissed update.
    private var update: UInt64?
    private var dismissed: UInt64?

    init(_ bug: DependencyDecider.Bug) { self.decider = DependencyDecider(bug) }

    // MARK: - Equality: counters are compared by meaning, not by value

    private var key: [Int] {
        let values = Set(
            [self.fact?.value, self.decider.held(0)?.value].compactMap(\.self)
                + self.callers.flatMap { [$0.refused, $0.uses?.value].compactMap(\.self) }
        ).sorted()
        let parents = Set([self.parent, self.fact?.parent, self.update, self.dismissed].compactMap(\.self)).sorted()
        func value(_ value: Int?) -> Int { value.flatMap { values.firstIndex(of: $0) } ?? -1 }
        func parent(_ parent: UInt64?) -> Int { parent.flatMap { parents.firstIndex(of: $0) } ?? -1 }
        var key = [
            value(self.fact?.value), parent(self.fact?.parent), self.isRefused ? 1 : 0, self.lastEnd.count,
            self.fact?.value == self.counted ? 1 : 0, self.fact?.value == self.accepted ? 1 : 0,
            parent(self.parent), parent(self.update), parent(self.dismissed),
            value(self.decider.held(0)?.value), parent(self.decider.held(0)?.parentEpoch),
        ]
        for caller in self.callers {
            key += [
                caller.session == self.session ? 1 : 0, value(caller.refused), caller.updates,
                caller.counted < self.accepted ? 1 : 0,
                value(caller.uses?.value), Int(caller.call.session == self.decider.call().session ? 1 : 0),
                caller.call.refusals,
                caller.call.badEpoch == nil ? 0 : caller.call.badEpoch == self.decider.epoch ? 1 : 2,
            ]
        }
        return key
    }

    static func == (a: DependencyBoard, b: DependencyBoard) -> Bool { a.key == b.key }

    func hash(into hasher: inout Hasher) { hasher.combine(self.key) }

    // MARK: - Possible events

    var events: [Event] {
        var events: [Event] = self.callers.count < 3 ? [.call] : []
        for (number, caller) in self.callers.enumerated() where caller.uses != nil {
            events += [.succeeds(number), .refuses(number)]
        }
        if self.update != nil { events += [.updateBrings, .updateThrows, .updateRefused] }
        if self.dismissed != nil { events.append(.lateUpdateBrings) }
        return events + [.set, .end(.reset), .end(.signOut), .parentChanges]
    }

    /// Applies `event` and returns a violation, or `nil`.
    mutating func apply(_ event: Event) -> String? {
        self.happens(event) ?? self.decider.brokenInvariants.first
    }

    private mutating func happens(_ event: Event) -> String? {
        let before = self.decider.epoch
        switch event {
        case .call:
            self.callers.append(Caller(call: self.decider.call(), session: self.session))
            return self.ask(self.callers.count - 1)
        case .succeeds(let number):
            if let uses = self.callers[number].uses {
                self.decider.accepted(uses.epoch)
                if uses.value == self.fact?.value, uses.value != self.counted { self.accepted = uses.value }
            }
            self.callers.remove(at: number)
        case .refuses(let number):
            self.callers[number].refused = self.callers[number].uses?.value
            self.callers[number].call.badEpoch = self.callers[number].uses?.epoch
            self.callers[number].uses = nil
            return self.ask(number)
        case .updateBrings:
            guard let parent = self.update else { return nil }
            self.update = nil
            return self.change(parent: parent, before)
        case .updateThrows:
            self.update = nil
            self.callers.removeAll { $0.uses == nil }
        case .updateRefused:
            self.update = nil
            self.callers.removeAll { $0.uses == nil }
            self.decider.refused()
            self.fact = nil
            self.isRefused = true
        case .lateUpdateBrings:
            guard let parent = self.dismissed else { return nil }
            self.dismissed = nil
            self.lastValue += 1
            self.decider.cameLate(self.lastValue, parent: parent)
            if let fact, fact.parent < parent { self.fact?.parent = parent }
            if self.decider.held(self.parent)?.value == self.lastValue { return "a dismissed update's value counts" }
        case .set:
            self.dismissed = self.update ?? self.dismissed
            self.update = nil
            return self.change(parent: self.parent, before)
        case .end(let end):
            self.dismissed = self.update ?? self.dismissed
            self.update = nil
            self.callers.removeAll { $0.uses == nil }
            self.decider.ended(end)
            self.fact = nil
            self.isRefused = false
            self.session += 1
            self.lastEnd = end == .reset ? "reset" : "signed out"
            guard self.decider.epoch > before else { return "the epoch goes from \(before) to \(self.decider.epoch)" }
        case .parentChanges:
            self.parent += 1
        }
        return self.rest(before)
    }

    private mutating func change(parent: UInt64, _ before: UInt64) -> String? {
        self.lastValue += 1
        let epoch = self.decider.changed(to: self.lastValue, parent: parent)
        self.fact = Fact(value: self.lastValue, parent: parent)
        self.isRefused = false
        for number in self.callers.indices where self.callers[number].uses == nil {
            self.callers[number].uses = (self.lastValue, epoch)
        }
        guard epoch > before else { return "the epoch goes from \(before) to \(epoch)" }
        return self.rest(before)
    }

    private func rest(_ before: UInt64) -> String? {
        guard self.decider.epoch >= before else { return "the epoch goes back from \(before) to \(self.decider.epoch)" }
        let usable = self.fact.flatMap { $0.parent >= self.parent ? $0.value : nil }
        let held = self.decider.held(self.parent)?.value
        return held == usable ? nil : "it holds \(held.map(String.init) ?? "nothing") instead of \(usable ?? 0)"
    }

    /// Requests the dependency for a caller.
    private mutating func ask(_ number: Int) -> String? {
        let (answer, epoch) = self.decider.answer(to: &self.callers[number].call, parent: self.parent)
        let expected = self.expected(number)
        guard answer == expected else { return "\(answer) instead of \(expected)" }
        switch answer {
        case .use(let value): self.callers[number].uses = (value, epoch ?? 0)
        case .fail: self.callers.remove(at: number)
        case .update: if self.update == nil { self.update = self.parent }
        }
        return nil
    }

    private mutating func expected(_ number: Int) -> DependencyDecider.Answer {
        let caller = self.callers[number]
        if caller.session != self.session { return .fail(self.lastEnd) }
        let usable = self.fact.flatMap { $0.parent >= self.parent ? $0.value : nil }
        if let usable, usable != caller.refused { return .use(usable) }
        if self.isRefused { return .fail("refused") }
        guard let usable else { return .update }
        if self.accepted > caller.counted { self.callers[number].updates = 0 }
        if self.callers[number].updates == 1 { return .fail("too many updates") }
        self.callers[number].updates += 1
        self.callers[number].counted = usable
        self.counted = usable
        return .update
    }
}
