import Foundation
public import MuxKit
import MuxTesting

/// Checks the rules of `MuxSharedStore` on a custom store.
///
/// ```swift
/// @Test func `my shared store is one`() async throws {
///     let clock = VirtualClock()
///     try await MuxSharedStoreConformance.run(advancing: { clock.advance(by: $0) }, of: {
///         let store = MemorySharedStore(clock: clock)
///         return (store.connection(), store.connection())
///     })
/// }
/// ```
public enum MuxSharedStoreConformance: RuleSuite, Sendable {
    /// Checks each rule on a separate store.
    ///
    /// - Parameters:
    ///   - limit: The maximum real time of each rule; exceeding the limit breaks the rule.
    ///   - unit: The step of time, used a few times in each rule. If the store's time cannot be set, as with
    ///     a database engine, `advance` waits in real time: use a step much longer than the store's calls.
    ///   - advance: Moves the store's time forward.
    ///   - makeStore: Makes an empty store, and returns two connections to the store, as from two machines.
    /// - Throws: ``ConformanceFailure`` for the first broken rule (a throwing call breaks the rule); an error
    ///   from `makeStore`; `CancellationError` if the task is cancelled.
    public static func run(
        within limit: Duration = .seconds(60),
        unit: Duration = .seconds(10),
        advancing advance: @escaping @Sendable @concurrent (Duration) async -> Void,
        of makeStore: @Sendable @concurrent () async throws -> (any MuxSharedStore, any MuxSharedStore)
    ) async throws {
        for (name, rule) in self.rules {
            let (alice, bob) = try await makeStore()
            let fleet = Fleet(alice: alice, bob: bob, unit: unit, advance: advance)
            if let detail = try await self.flaw(within: limit, { try await rule(fleet) }) {
                throw ConformanceFailure(rule: name, detail: detail)
            }
        }
    }

    /// The names of all rules, in order.
    package static var ruleNames: [String] { self.rules.map(\.name) }

    private struct Fleet: Sendable {
        let alice: any MuxSharedStore
        let bob: any MuxSharedStore
        let unit: Duration
        let advance: @Sendable @concurrent (Duration) async -> Void

        let name = MuxShared.Name(MuxStoreKey(domain: "Places", key: "1"), tags: ["Rome", "viewer 7"])

        func entry(_ text: String = "one", age: Duration = .zero) -> MuxShared.Entry {
            MuxShared.Entry(
                payload: Data(text.utf8),
                digest: "digest of \(text)",
                timeToLive: self.unit * 10,
                age: age,
                schemaVersion: 3,
                validator: "\"\(text)\"",
                staleWhileRevalidate: self.unit * 2,
                staleIfError: self.unit * 3
            )
        }

        func claim(
            _ store: any MuxSharedStore,
            _ name: MuxShared.Name? = nil,
            maximumAge: Duration? = nil,
            digest: String? = nil,
            for units: Int = 5
        ) async throws -> MuxShared.Claim {
            try await store.claim(
                name ?? self.name,
                maximumAge: maximumAge,
                digest: digest,
                for: self.unit * units
            )
        }

        /// The ticket of a claim; throws if the claim is not granted.
        func ticket(
            _ store: any MuxSharedStore,
            _ name: MuxShared.Name? = nil,
            maximumAge: Duration? = nil,
            for units: Int = 5
        ) async throws -> MuxShared.Ticket {
            let claim = try await self.claim(store, name, maximumAge: maximumAge, for: units)
            guard case .granted(let ticket, _) = claim else { throw RuleBroken(detail: "it is not granted: \(claim)") }
            return ticket
        }

        /// Claims a ticket and puts the entry, like a fetch of one machine.
        func store(_ entry: MuxShared.Entry, _ name: MuxShared.Name? = nil) async throws {
            let isStored = try await self.alice.put(entry, with: try await self.ticket(self.alice, name))
            try MuxSharedStoreConformance.expect(isStored, "the put of its first holder is refused")
        }

        func isThere(_ name: MuxShared.Name) async throws -> Bool {
            let found = try await self.bob.load([name])
            try MuxSharedStoreConformance.expect(found.count == 1, "\(found.count) answers for one name")
            return found[0] != nil
        }
    }

    private typealias Rule = @Sendable @concurrent (Fleet) async throws -> Void

    private static let rules: [(name: String, rule: Rule)] = [
        ("An empty store has nothing and grants a claim", Self.empty),
        ("While a claim stands others wait", Self.waiting),
        ("What was put is what others get", Self.whole),
        ("Many are loaded in the order of their names", Self.loadsMany),
        ("Names that differ in any byte name different entries", Self.names),
        ("An age counts from the fetch and grows with the store's time", Self.ages),
        ("An entry that is too old comes with the claim", Self.stale),
        ("A claim ends by itself, and what is put late is refused", Self.expired),
        ("A claim that was given up is free at once", Self.givenUp),
        ("Giving up what is over changes nothing", Self.late),
        ("A ticket is good for one put", Self.once),
        ("What was invalidated is gone, in every scope", Self.invalidated),
        ("An invalidation voids the claims it concerns", Self.voids),
        ("An invalidation leaves what it does not concern", Self.others),
        ("An entry that was put with other tags is a miss", Self.otherTags),
        ("A payload that the caller has is not sent", Self.digests),
        ("An entry can be renewed without its payload", Self.renewed),
        ("Changes are told in their order", Self.changes),
        ("What a machine invalidates is not told to it", Self.own),
        ("Of many who claim at once one is granted", Self.many),
    ]
}

extension MuxSharedStoreConformance {
    private static func empty(_ fleet: Fleet) async throws {
        let isThere = try await fleet.isThere(fleet.name)
        try self.expect(!isThere, "there is an entry")
        let claim = try await fleet.claim(fleet.alice)
        guard case .granted(let ticket, nil) = claim else { throw RuleBroken(detail: "\(claim)") }
        try self.expect(ticket.name == fleet.name, "the ticket is for \(ticket.name)")
        try self.expect(try await fleet.alice.load([]).isEmpty, "something was loaded for no name")
    }

    private static func waiting(_ fleet: Fleet) async throws {
        _ = try await fleet.ticket(fleet.alice)
        await fleet.advance(fleet.unit * 2)
        for store in [fleet.alice, fleet.bob] {
            let claim = try await fleet.claim(store, for: 50)
            guard case .taken(let time, nil) = claim else { throw RuleBroken(detail: "\(claim)") }
            try self.expect(time > fleet.unit && time <= fleet.unit * 3, "it stands for \(time) more")
        }
    }

    private static func whole(_ fleet: Fleet) async throws {
        try await fleet.store(fleet.entry())
        let claim = try await fleet.claim(fleet.bob)
        guard case .entry(var entry) = claim else { throw RuleBroken(detail: "\(claim)") }
        try self.expect(entry.age >= .zero && entry.age < fleet.unit, "its age is \(entry.age)")
        entry.age = .zero
        try self.expect(entry == fleet.entry(), "it is \(entry)")
        var loaded = try await fleet.bob.load([fleet.name])
        loaded[0]?.age = .zero
        try self.expect(loaded == [fleet.entry()], "loaded \(loaded)")
    }

    private static func loadsMany(_ fleet: Fleet) async throws {
        let names = (0..<5).map { MuxShared.Name(MuxStoreKey(domain: "Many", key: "\($0)")) }
        for index in [3, 1] { try await fleet.store(fleet.entry("\(index)"), names[index]) }
        let asked = [4, 3, 0, 1, 3].map { names[$0] }
        let found = try await fleet.bob.load(asked).map { $0?.digest.suffix(1) }
        try self.expect(found == [nil, "3", nil, "1", "3"], "loaded \(found)")
    }

    private static func names(_ fleet: Fleet) async throws {
        let keys = [
            MuxStoreKey(domain: "a", key: "b"), MuxStoreKey(domain: "A", key: "b"), MuxStoreKey(domain: "a", key: "B"),
            MuxStoreKey(domain: "a", key: nil), MuxStoreKey(domain: "a", key: ""), MuxStoreKey(domain: "a/b", key: nil),
            MuxStoreKey(domain: "a:b", key: nil), MuxStoreKey(domain: "a", key: "b "),
            MuxStoreKey(domain: "a{b}", key: "c"),
            MuxStoreKey(domain: "a", key: "\u{e9}"), MuxStoreKey(domain: "a", key: "e\u{301}"),
            MuxStoreKey(domain: "a", key: "b\0"), MuxStoreKey(domain: "a", key: "b\r\n"),
            MuxStoreKey(domain: "a", key: String(repeating: "k", count: 10_000)),
        ]
        for (number, key) in keys.enumerated() { try await fleet.store(fleet.entry("\(number)"), MuxShared.Name(key)) }
        for (number, key) in keys.enumerated() {
            let found = try await fleet.bob.load([MuxShared.Name(key)])
            try self.expect(found[0]?.digest == "digest of \(number)", "\(key) has \(found[0]?.digest ?? "nothing")")
        }
        try await fleet.bob.invalidate([.entry(keys[0])])
        for (number, key) in keys.enumerated() {
            let isThere = try await fleet.isThere(MuxShared.Name(key))
            try self.expect(
                isThere == (number > 0),
                "\(keys[0]) was removed, and \(key) is \(isThere ? "" : "not ")there"
            )
        }
    }

    private static func ages(_ fleet: Fleet) async throws {
        try await fleet.store(fleet.entry(age: fleet.unit * 2))
        await fleet.advance(fleet.unit * 3)
        let age = try await fleet.bob.load([fleet.name])[0]?.age ?? .zero
        try self.expect(age >= fleet.unit * 5 && age < fleet.unit * 6, "it is \(age) old")
    }

    private static func stale(_ fleet: Fleet) async throws {
        try await fleet.store(fleet.entry())
        await fleet.advance(fleet.unit * 3)
        let good = try await fleet.claim(fleet.bob, maximumAge: fleet.unit * 5)
        guard case .entry = good else { throw RuleBroken(detail: "young enough, and \(good)") }
        let young = try await fleet.claim(fleet.bob, maximumAge: fleet.unit * 2)
        guard case .granted(let ticket, .some) = young else { throw RuleBroken(detail: "too old, and \(young)") }
        let other = try await fleet.claim(fleet.alice, maximumAge: .zero)
        guard case .taken(_, .some) = other else { throw RuleBroken(detail: "another caller fetches, and \(other)") }
        try await fleet.bob.giveUp(ticket)
        await fleet.advance(fleet.unit * 8)
        let over = try await fleet.claim(fleet.bob, maximumAge: fleet.unit * 100)
        guard case .granted = over else { throw RuleBroken(detail: "past its time to live, and \(over)") }
    }

    private static func expired(_ fleet: Fleet) async throws {
        let late = try await fleet.ticket(fleet.alice, for: 2)
        await fleet.advance(fleet.unit * 3)
        let isStored = try await fleet.alice.put(fleet.entry("late"), with: late)
        try self.expect(!isStored, "a put after the claim's time is stored")
        let next = try await fleet.ticket(fleet.bob)
        let isStoredNext = try await fleet.alice.put(fleet.entry("late"), with: late)
        try self.expect(!isStoredNext, "a put with another's claim is stored")
        let isKept = try await fleet.bob.put(fleet.entry("next"), with: next)
        try self.expect(isKept, "the late put has ended the next claim")
        let digest = try await fleet.alice.load([fleet.name])[0]?.digest
        try self.expect(digest == "digest of next", "the store has \(digest ?? "nothing")")
    }

    private static func givenUp(_ fleet: Fleet) async throws {
        let first = try await fleet.ticket(fleet.alice)
        try await fleet.alice.giveUp(first)
        _ = try await fleet.ticket(fleet.bob)
        let isStored = try await fleet.alice.put(fleet.entry(), with: first)
        try self.expect(!isStored, "a put after giving up is stored")
    }

    private static func late(_ fleet: Fleet) async throws {
        let first = try await fleet.ticket(fleet.alice, for: 2)
        await fleet.advance(fleet.unit * 3)
        let second = try await fleet.ticket(fleet.bob)
        try await fleet.alice.giveUp(first)
        let claim = try await fleet.claim(fleet.alice)
        guard case .taken = claim else { throw RuleBroken(detail: "the next claim has ended: \(claim)") }
        let isStored = try await fleet.bob.put(fleet.entry(), with: second)
        try self.expect(isStored, "the put of the next holder is refused")
        try await fleet.bob.giveUp(second)
        let isThere = try await fleet.isThere(fleet.name)
        try self.expect(isThere, "giving up has removed the entry")
    }

    private static func once(_ fleet: Fleet) async throws {
        let ticket = try await fleet.ticket(fleet.alice)
        let isStored = try await fleet.alice.put(fleet.entry("one"), with: ticket)
        let isStoredAgain = try await fleet.alice.put(fleet.entry("two"), with: ticket)
        try self.expect(isStored && !isStoredAgain, "first \(isStored), then \(isStoredAgain)")
    }

    private static var scopes: [MuxShared.Scope] {
        [
            .entry(MuxStoreKey(domain: "Places", key: "1")), .tag("Rome"), .tag("viewer 7"), .domain("Places"),
            .everything,
        ]
    }

    private static func invalidated(_ fleet: Fleet) async throws {
        for scope in self.scopes {
            try await fleet.store(fleet.entry())
            try await fleet.bob.invalidate([scope])
            let isThere = try await fleet.isThere(fleet.name)
            try self.expect(!isThere, "\(scope) is over, and the entry is there")
        }
        try await fleet.store(fleet.entry())
        try await fleet.bob.invalidate([])
        let isThere = try await fleet.isThere(fleet.name)
        try self.expect(isThere, "nothing was invalidated, and the entry is gone")
    }

    private static func voids(_ fleet: Fleet) async throws {
        for scope in self.scopes {
            let early = try await fleet.ticket(fleet.alice)
            try await fleet.bob.invalidate([scope])
            let isStoredAtOnce = try await fleet.alice.put(fleet.entry("old"), with: early)
            try self.expect(!isStoredAtOnce, "what was fetched before \(scope) was over is stored")

            let ticket = try await fleet.ticket(fleet.alice)
            try await fleet.bob.invalidate([scope])
            let next = try await fleet.ticket(fleet.bob)
            let isStored = try await fleet.alice.put(fleet.entry("old"), with: ticket)
            try self.expect(!isStored, "what was fetched before \(scope) was over is stored")
            let isStoredNext = try await fleet.bob.put(fleet.entry("new"), with: next)
            try self.expect(isStoredNext, "what was fetched after \(scope) was over is refused")
            try await fleet.bob.invalidate([.everything])
        }
    }

    private static func others(_ fleet: Fleet) async throws {
        let other = MuxShared.Name(MuxStoreKey(domain: "Places", key: "2"), tags: ["Roma"])
        let distant = MuxShared.Name(MuxStoreKey(domain: "Place", key: "1"))
        for name in [fleet.name, other, distant] { try await fleet.store(fleet.entry(), name) }
        let ticket = try await fleet.ticket(fleet.alice, other, maximumAge: .zero)
        try await fleet.bob.invalidate([.tag("Rome"), .entry(MuxStoreKey(domain: "Places", key: nil)), .domain("Pl")])
        let isStored = try await fleet.alice.put(fleet.entry("other"), with: ticket)
        try self.expect(isStored, "a claim of something else is void")
        for name in [other, distant] {
            let isThere = try await fleet.isThere(name)
            try self.expect(isThere, "\(name) is gone")
        }
        try await fleet.bob.invalidate([.domain("Places"), .tag("Places")])
        let isThere = try await fleet.isThere(distant)
        try self.expect(isThere, "another domain is gone")
    }

    private static func otherTags(_ fleet: Fleet) async throws {
        // First a claim with both tags: a store may record both tags in the same step.
        _ = try await fleet.ticket(fleet.alice)
        let key = MuxStoreKey(domain: "Places", key: "2")
        try await fleet.store(fleet.entry(), MuxShared.Name(key, tags: [fleet.name.tags[0]]))
        let isThere = try await fleet.isThere(MuxShared.Name(key, tags: [fleet.name.tags[1]]))
        try self.expect(!isThere, "it was put with another tag, and is there")
    }

    private static func digests(_ fleet: Fleet) async throws {
        try await fleet.store(fleet.entry())
        let known = try await fleet.claim(fleet.bob, digest: "digest of one")
        guard case .entry(let entry) = known else { throw RuleBroken(detail: "\(known)") }
        try self.expect(entry.payload == nil && entry.digest == "digest of one", "a known payload is sent: \(entry)")
        let other = try await fleet.claim(fleet.bob, digest: "digest of two")
        guard case .entry(let whole) = other else { throw RuleBroken(detail: "\(other)") }
        try self.expect(
            whole.payload == Data("one".utf8),
            "the payload is \(whole.payload.map { "\($0)" } ?? "missing")"
        )
    }

    private static func renewed(_ fleet: Fleet) async throws {
        try await fleet.store(fleet.entry())
        await fleet.advance(fleet.unit * 4)
        var entry = fleet.entry()
        entry.payload = nil
        let ticket = try await fleet.ticket(fleet.alice, maximumAge: .zero)
        let isStored = try await fleet.alice.put(entry, with: ticket)
        try self.expect(isStored, "a renewal is refused")
        let found = try await fleet.bob.load([fleet.name])[0]
        try self.expect(found?.payload == Data("one".utf8), "the payload is lost")
        try self.expect((found?.age ?? .longest) < fleet.unit, "it is as old as before")

        entry.digest = "digest of two"
        let next = try await fleet.ticket(fleet.alice, maximumAge: .zero)
        let isStoredNext = try await fleet.alice.put(entry, with: next)
        try self.expect(!isStoredNext, "another payload is renewed than the store has")
        _ = try await fleet.ticket(fleet.bob, maximumAge: .zero)
    }

    private static func changes(_ fleet: Fleet) async throws {
        let changes = fleet.bob.changes()
        let ticket = try await fleet.ticket(fleet.alice)
        try await fleet.alice.giveUp(ticket)
        try await fleet.store(fleet.entry())
        try await fleet.alice.invalidate([.tag("Rome")])
        try await fleet.store(fleet.entry("two"))
        let key = fleet.name.key
        let expected: [MuxShared.Change] = [.released(key), .stored(key), .invalidated(.tag("Rome")), .stored(key)]
        var told: [MuxShared.Change] = []
        for await change in changes {
            if change != .unknown { told.append(change) }
            if told.count == expected.count { break }
        }
        try self.expect(told == expected, "told \(told)")
    }

    private static func own(_ fleet: Fleet) async throws {
        let changes = fleet.alice.changes()
        try await fleet.alice.invalidate([.tag("Rome"), .everything])
        try await fleet.bob.invalidate([.tag("Paris")])
        for await change in changes {
            guard case .invalidated(let scope) = change else { continue }
            try self.expect(scope == .tag("Paris"), "told \(change)")
            break
        }
    }

    private static func many(_ fleet: Fleet) async throws {
        for number in 0..<20 {
            let name = MuxShared.Name(MuxStoreKey(domain: "Many", key: "\(number)"))
            let granted = try await withThrowingTaskGroup(of: Bool.self) { group in
                for caller in 0..<8 {
                    group.addTask {
                        let claim = try await fleet.claim(caller % 2 == 0 ? fleet.alice : fleet.bob, name)
                        if case .granted = claim { return true }
                        return false
                    }
                }
                return try await group.reduce(into: 0) { $0 += $1 ? 1 : 0 }
            }
            try self.expect(granted == 1, "\(granted) are granted")
        }
    }
}
