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
    ///   - unit: The length of one step of time; a rule advances the time by up to 11 steps. If `advance`
    ///     waits in real time, use a step much longer than the store's calls, and a `limit` above 11 steps.
    ///   - advance: Moves the store's time forward; waits in real time if the store's time cannot be set, as
    ///     with a database engine.
    ///   - makeStore: Makes an empty store, and returns two connections to the store, as from two machines.
    /// - Throws: ``ConformanceFailure`` for the first broken rule (an error during the check also breaks the
    ///   rule); an error from `makeStore`; `CancellationError` if the task is cancelled.
    public static func run(
        within limit: Duration = .seconds(180),
        unit: Duration = .seconds(10),
        advancing advance: @escaping @Sendable @concurrent (Duration) async -> Void,
        of makeStore: @Sendable @concurrent () async throws -> (any MuxSharedStore, any MuxSharedStore)
    ) async throws {
        for (name, rule) in self.rules {
            let (alice, bob) = try await makeStore()
            let fleet = Fleet(alice: alice, bob: bob, unit: unit, advance: advance)
            try await self.runCheck(of: name, within: limit) { try await rule(fleet) }
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
            guard case .granted(let ticket, _) = claim else {
                throw RuleBroken(detail: "the claim is not granted: \(claim)")
            }
            return ticket
        }

        /// Claims a ticket and puts the entry, as a machine with a fetched value does.
        func store(_ entry: MuxShared.Entry, _ name: MuxShared.Name? = nil) async throws {
            let isStored = try await self.alice.put(entry, with: try await self.ticket(self.alice, name))
            try MuxSharedStoreConformance.expect(isStored, "a put with a valid claim is refused")
        }

        func hasEntry(_ name: MuxShared.Name) async throws -> Bool {
            let found = try await self.bob.load([name])
            try MuxSharedStoreConformance.expect(found.count == 1, "\(found.count) results for one name")
            return found[0] != nil
        }
    }

    private typealias Rule = @Sendable @concurrent (Fleet) async throws -> Void

    private static let rules: [(name: String, rule: Rule)] = [
        ("An empty store has no entry and grants a claim", Self.empty),
        ("Other callers wait during a claim", Self.waiting),
        ("Other callers get the stored entry unchanged", Self.whole),
        ("Many entries are loaded in the order of the names", Self.loadsMany),
        ("Names that differ in any byte name different entries", Self.names),
        ("An age counts from the fetch, by the clock of the store", Self.ages),
        ("A claim contains an entry that is too old", Self.stale),
        ("A claim expires, and a later put is refused", Self.expired),
        ("A released claim is free at once", Self.givenUp),
        ("The release of an ended claim has no effect", Self.late),
        ("A ticket permits a single put", Self.once),
        ("An invalidation removes the entries of each kind of scope", Self.invalidated),
        ("An invalidation ends the claims of the scope", Self.voids),
        ("An invalidation has no effect outside the scope", Self.others),
        ("An entry with other tags is a miss", Self.otherTags),
        ("A payload with the caller's digest is not sent", Self.digests),
        ("An entry can be renewed without its payload", Self.renewed),
        ("Changes are reported in order", Self.changes),
        ("A machine gets no report of its own invalidations", Self.own),
        ("Exactly one of many concurrent claims is granted", Self.many),
    ]
}

extension MuxSharedStoreConformance {
    private static func empty(_ fleet: Fleet) async throws {
        let isThere = try await fleet.hasEntry(fleet.name)
        try self.expect(!isThere, "the store has an entry")
        let claim = try await fleet.claim(fleet.alice)
        guard case .granted(let ticket, nil) = claim else { throw RuleBroken(detail: "\(claim)") }
        try self.expect(ticket.name == fleet.name, "the ticket is for \(ticket.name)")
        try self.expect(try await fleet.alice.load([]).isEmpty, "an entry was loaded without a name")
    }

    private static func waiting(_ fleet: Fleet) async throws {
        _ = try await fleet.ticket(fleet.alice)
        await fleet.advance(fleet.unit * 2)
        for store in [fleet.alice, fleet.bob] {
            let claim = try await fleet.claim(store, for: 50)
            guard case .taken(let time, nil) = claim else { throw RuleBroken(detail: "\(claim)") }
            try self.expect(time > fleet.unit && time <= fleet.unit * 3, "the remaining time of the claim is \(time)")
        }
    }

    private static func whole(_ fleet: Fleet) async throws {
        try await fleet.store(fleet.entry())
        let claim = try await fleet.claim(fleet.bob)
        guard case .entry(var entry) = claim else { throw RuleBroken(detail: "\(claim)") }
        try self.expect(entry.age >= .zero && entry.age < fleet.unit, "the age is \(entry.age)")
        entry.age = .zero
        try self.expect(entry == fleet.entry(), "the entry is \(entry)")
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
            let isThere = try await fleet.hasEntry(MuxShared.Name(key))
            try self.expect(
                isThere == (number > 0),
                "after the removal of \(keys[0]), \(key) is \(isThere ? "still" : "not") in the store"
            )
        }
    }

    private static func ages(_ fleet: Fleet) async throws {
        try await fleet.store(fleet.entry(age: fleet.unit * 2))
        await fleet.advance(fleet.unit * 3)
        let age = try await fleet.bob.load([fleet.name])[0]?.age ?? .zero
        try self.expect(age >= fleet.unit * 5 && age < fleet.unit * 6, "the age is \(age)")
    }

    private static func stale(_ fleet: Fleet) async throws {
        try await fleet.store(fleet.entry())
        await fleet.advance(fleet.unit * 3)
        let good = try await fleet.claim(fleet.bob, maximumAge: fleet.unit * 5)
        guard case .entry = good else { throw RuleBroken(detail: "for an entry below the maximum age: \(good)") }
        let young = try await fleet.claim(fleet.bob, maximumAge: fleet.unit * 2)
        guard case .granted(let ticket, .some) = young else {
            throw RuleBroken(detail: "for an entry above the maximum age: \(young)")
        }
        let other = try await fleet.claim(fleet.alice, maximumAge: .zero)
        guard case .taken(_, .some) = other else {
            throw RuleBroken(detail: "during the fetch of another caller: \(other)")
        }
        try await fleet.bob.giveUp(ticket)
        await fleet.advance(fleet.unit * 8)
        let over = try await fleet.claim(fleet.bob, maximumAge: fleet.unit * 100)
        guard case .granted = over else { throw RuleBroken(detail: "after the time to live: \(over)") }
    }

    private static func expired(_ fleet: Fleet) async throws {
        let late = try await fleet.ticket(fleet.alice, for: 2)
        await fleet.advance(fleet.unit * 3)
        let isStored = try await fleet.alice.put(fleet.entry("late"), with: late)
        try self.expect(!isStored, "a put after the end of the claim is stored")
        let next = try await fleet.ticket(fleet.bob)
        let isStoredNext = try await fleet.alice.put(fleet.entry("late"), with: late)
        try self.expect(!isStoredNext, "a put during the next claim is stored")
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
        try self.expect(!isStored, "a put after the release is stored")
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
        let isThere = try await fleet.hasEntry(fleet.name)
        try self.expect(isThere, "the release has removed the entry")
    }

    private static func once(_ fleet: Fleet) async throws {
        let ticket = try await fleet.ticket(fleet.alice)
        let isStored = try await fleet.alice.put(fleet.entry("one"), with: ticket)
        let isStoredAgain = try await fleet.alice.put(fleet.entry("two"), with: ticket)
        try self.expect(
            isStored && !isStoredAgain,
            "the first put was stored: \(isStored); the second put was stored: \(isStoredAgain)"
        )
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
            let isThere = try await fleet.hasEntry(fleet.name)
            try self.expect(!isThere, "after the invalidation of \(scope), the entry is still in the store")
        }
        try await fleet.store(fleet.entry())
        try await fleet.bob.invalidate([])
        let isThere = try await fleet.hasEntry(fleet.name)
        try self.expect(isThere, "after an empty invalidation, the entry is missing")
    }

    private static func voids(_ fleet: Fleet) async throws {
        for scope in self.scopes {
            let early = try await fleet.ticket(fleet.alice)
            try await fleet.bob.invalidate([scope])
            let isStoredAtOnce = try await fleet.alice.put(fleet.entry("old"), with: early)
            try self.expect(!isStoredAtOnce, "a value from before the invalidation of \(scope) is stored")

            let ticket = try await fleet.ticket(fleet.alice)
            try await fleet.bob.invalidate([scope])
            let next = try await fleet.ticket(fleet.bob)
            let isStored = try await fleet.alice.put(fleet.entry("old"), with: ticket)
            try self.expect(!isStored, "a value from before the invalidation of \(scope) is stored")
            let isStoredNext = try await fleet.bob.put(fleet.entry("new"), with: next)
            try self.expect(isStoredNext, "a value from after the invalidation of \(scope) is refused")
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
        try self.expect(isStored, "a claim outside the scope has ended")
        for name in [other, distant] {
            let isThere = try await fleet.hasEntry(name)
            try self.expect(isThere, "\(name) is missing")
        }
        try await fleet.bob.invalidate([.domain("Places"), .tag("Places")])
        let isThere = try await fleet.hasEntry(distant)
        try self.expect(isThere, "an entry of another domain is missing")
    }

    private static func otherTags(_ fleet: Fleet) async throws {
        // The first claim has both tags, so a store may give both tags the same version. A store that
        // compares only the versions would find the entry with the other tag.
        _ = try await fleet.ticket(fleet.alice)
        let key = MuxStoreKey(domain: "Places", key: "2")
        try await fleet.store(fleet.entry(), MuxShared.Name(key, tags: [fleet.name.tags[0]]))
        let isThere = try await fleet.hasEntry(MuxShared.Name(key, tags: [fleet.name.tags[1]]))
        try self.expect(!isThere, "an entry with another tag is found")
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
        try self.expect((found?.age ?? .longest) < fleet.unit, "the age is unchanged")

        entry.digest = "digest of two"
        let next = try await fleet.ticket(fleet.alice, maximumAge: .zero)
        let isStoredNext = try await fleet.alice.put(entry, with: next)
        try self.expect(!isStoredNext, "a renewal with another digest is stored")
        // The refused renewal has ended the claim.
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
            // A store may report `unknown` at any time.
            if change != .unknown { told.append(change) }
            if told.count == expected.count { break }
        }
        try self.expect(told == expected, "the reports are \(told)")
    }

    private static func own(_ fleet: Fleet) async throws {
        let changes = fleet.alice.changes()
        try await fleet.alice.invalidate([.tag("Rome"), .everything])
        try await fleet.bob.invalidate([.tag("Paris")])
        for await change in changes {
            guard case .invalidated(let scope) = change else { continue }
            return try self.expect(scope == .tag("Paris"), "the report is \(change)")
        }
        throw RuleBroken(detail: "the reports ended")
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
            try self.expect(granted == 1, "\(granted) claims are granted")
        }
    }
}
