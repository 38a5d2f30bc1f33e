import Foundation
public import MuxKit
import MuxTesting

/// Checks the rules of `MuxStore` on a custom store.
///
/// ```swift
/// @Test func `my store is a store`() async throws {
///     try await MuxStoreConformance.run { MyStore() }
/// }
/// ```
public enum MuxStoreConformance: RuleSuite, Sendable {
    /// Checks each rule on a separate store.
    ///
    /// - Parameters:
    ///   - limit: The maximum real time of each rule; exceeding the limit breaks the rule.
    ///   - makeStore: Makes an empty store in its first session, independent of earlier stores.
    /// - Throws: ``ConformanceFailure`` for the first broken rule (an error during the check also breaks the
    ///   rule); an error from `makeStore`; `CancellationError` if the task is cancelled.
    public static func run(
        within limit: Duration = .seconds(60),
        _ makeStore: @Sendable @concurrent () async throws -> any MuxStore
    ) async throws {
        for (name, rule) in self.rules {
            let store = try await makeStore()
            try await self.runCheck(of: name, within: limit) { try await rule(store) }
        }
    }

    private typealias Rule = @Sendable @concurrent (any MuxStore) async throws -> Void

    private static let rules: [(name: String, rule: Rule)] = [
        ("An empty store has no entry", Self.empty),
        ("A saved entry is loaded unchanged", Self.whole),
        ("A load has no effect on the store", Self.loads),
        ("Many entries are loaded in the order of the names", Self.loadsMany),
        ("A storable entry is not refused", Self.checks),
        ("A later save replaces an earlier save", Self.replaces),
        ("Names that differ in any byte name different entries", Self.names),
        ("A removal removes only the named entries", Self.removes),
        ("The removal of a domain keeps other domains", Self.removesDomain),
        ("The removal of all entries keeps the session", Self.removesEverything),
        ("A relaxed call has the same effect", Self.relaxed),
        ("The session number never falls", Self.sessionRises),
        ("Entries of an earlier session do not exist", Self.sessionEnds),
        ("An ended session remains ended", Self.sessionStaysEnded),
        ("A call that concerns no stored entry has no effect", Self.nothing),
        ("Concurrent calls do not interfere", Self.manyCalls),
    ]

    private static func expect(_ store: any MuxStore, holds entry: MuxStoredEntry) async throws {
        let found = try await store.load(entry.name)
        try self.expect(found == entry, "saved \(entry), loaded \(found.map { "\($0)" } ?? "nothing")")
    }

    private static func expect(_ store: any MuxStore, holdsNo name: MuxStoreKey) async throws {
        let found = try await store.load(name)
        try self.expect(found == nil, "\(name) is in the store")
    }

    private static func entry(
        _ domain: String,
        _ key: String?,
        _ number: Int = 1,
        epoch: UInt64 = 0
    ) -> MuxStoredEntry {
        MuxStoredEntry(
            name: MuxStoreKey(domain: domain, key: key),
            schemaVersion: number,
            sessionEpoch: epoch,
            fetchedAt: Date(timeIntervalSinceReferenceDate: 800_000_000.123_456_7 + Double(number)),
            timeToLive: .seconds(1800),
            validator: "\"v\(number)\"",
            staleWhileRevalidate: number % 2 == 0 ? nil : .seconds(number),
            staleIfError: number % 3 == 0 ? nil : .seconds(60),
            payload: Data("{\"number\":\(number)}".utf8)
        )
    }
}

extension MuxStoreConformance {
    private static func empty(_ store: any MuxStore) async throws {
        try await self.expect(store, holdsNo: MuxStoreKey(domain: "a"))
        try await self.expect(store, holdsNo: MuxStoreKey(domain: "a", key: "b"))
        let epoch = try await store.sessionEpoch()
        try self.expect(epoch == 0, "the number of the first session is \(epoch) instead of 0")
        try await store.save([], durability: .full)
        try await store.remove([], durability: .full)
        try await store.remove([MuxStoreKey(domain: "a")], durability: .relaxed)
        try await store.removeAll(domain: "a", durability: .full)
        try await store.removeEverything()
        try await self.expect(store, holdsNo: MuxStoreKey(domain: "a"))
    }

    private static func whole(_ store: any MuxStore) async throws {
        var entries = [self.entry("plain", nil), self.entry("", ""), self.entry("", nil)]
        let times = [
            0, 0.1, 800_000_000.1, 810_000_000.123_456_7, -978_307_200.000_001, -63_114_076_800, 1e15,
        ]
        for (number, time) in times.enumerated() {
            var entry = self.entry("time", "\(number)")
            entry.fetchedAt = Date(timeIntervalSinceReferenceDate: time)
            entries.append(entry)
        }
        let lives = [
            .zero, .nanoseconds(1), .seconds(Int64.max), .seconds(1) / 3,
            Duration.seconds(86_400) * 365_000,
        ]
        for (number, life) in lives.enumerated() {
            var entry = self.entry("life", "\(number)")
            entry.timeToLive = life
            entries.append(entry)
            entry = self.entry("stale", "\(number)")
            entry.staleIfError = life
            entry.staleWhileRevalidate = number == 0 ? nil : lives[number - 1]
            entries.append(entry)
        }
        for (number, validator) in [nil, "", "W/\"é\u{0}\n\\\"", "日本"].enumerated() {
            var entry = self.entry("validator", "\(number)")
            entry.validator = validator
            entries.append(entry)
        }
        for (number, refresh) in [nil, 0, 1, UInt64.max].enumerated() {
            var entry = self.entry("refresh", "\(number)")
            entry.refreshNumber = refresh
            entries.append(entry)
        }
        for (number, tags) in [[], [""], ["a", "\u{e9}", "e\u{301}"], ["\"\n\\\u{0}", "日本", "a"]].enumerated() {
            var entry = self.entry("tags", "\(number)")
            entry.tags = tags
            entry.tagNumber = [nil, 0, 1, UInt64.max][number]
            entries.append(entry)
        }
        for (number, payload) in [
            "null", "\"\\n\u{2028}\u{7f}é👩‍🚀\"", "[[[]]]", "\"\(String(repeating: "x", count: 70_000))\"",
        ].enumerated() {
            var entry = self.entry("payload", "\(number)")
            entry.payload = Data(payload.utf8)
            entry.schemaVersion = number % 2 == 0 ? Int(Int32.max) : -number
            entries.append(entry)
        }
        try await store.save(entries, durability: .full)
        for entry in entries { try await self.expect(store, holds: entry) }
    }

    private static func loads(_ store: any MuxStore) async throws {
        let entries = [self.entry("a", nil), self.entry("a", "b", 2)]
        try await store.save(entries, durability: .full)
        for _ in 0..<3 {
            for entry in entries { try await self.expect(store, holds: entry) }
            try await self.expect(store, holdsNo: MuxStoreKey(domain: "b"))
        }
    }

    private static func loadsMany(_ store: any MuxStore) async throws {
        var entries = (1...40).map { self.entry("a", "\($0)", $0) }
        entries += [self.entry("a", nil, 41), self.entry("b", "1", 42)]
        try await store.save(entries, durability: .full)
        // The names are in another order than the saved entries, with one name twice.
        let asked = entries.reversed() + entries.prefix(1)
        var names = asked.map(\.name)
        var expected: [MuxStoredEntry?] = asked.map { $0 }
        for (index, key) in [(7, "0"), (names.count, "41")] {
            names.insert(MuxStoreKey(domain: "a", key: key), at: index)
            expected.insert(nil, at: index)
        }
        let found = try await store.load(names)
        try self.expect(found.count == names.count, "\(found.count) results for \(names.count) names")
        for (name, (found, expected)) in zip(names, zip(found, expected)) {
            try self.expect(found == expected, "for \(name), the result is \(found.map { "\($0)" } ?? "nothing")")
        }
        let none = try await store.load([MuxStoreKey]())
        try self.expect(none.isEmpty, "without names, the result is \(none)")
    }

    private static func checks(_ store: any MuxStore) async throws {
        let entries = [self.entry("a", nil), self.entry("a", "b", 2), self.entry("a", "")]
        for entry in entries {
            do {
                try store.check(entry)
            } catch {
                throw RuleBroken(detail: "\(entry.name) is refused: \(error)")
            }
            try await store.save([entry], durability: .full)
            try await self.expect(store, holds: entry)
        }
    }

    private static func relaxed(_ store: any MuxStore) async throws {
        let entries = [
            self.entry("a", nil), self.entry("a", "b"), self.entry("b", nil), self.entry("b", "c"),
        ]
        try await store.save(entries, durability: .relaxed)
        for entry in entries { try await self.expect(store, holds: entry) }
        try await store.save([self.entry("a", nil, 2)], durability: .relaxed)
        try await self.expect(store, holds: self.entry("a", nil, 2))
        try await store.remove([MuxStoreKey(domain: "a", key: "b")], durability: .relaxed)
        try await self.expect(store, holdsNo: MuxStoreKey(domain: "a", key: "b"))
        try await store.removeAll(domain: "b", durability: .relaxed)
        try await self.expect(store, holdsNo: MuxStoreKey(domain: "b"))
        try await self.expect(store, holdsNo: MuxStoreKey(domain: "b", key: "c"))
        try await self.expect(store, holds: self.entry("a", nil, 2))
    }

    private static func nothing(_ store: any MuxStore) async throws {
        let entries = [self.entry("a", nil), self.entry("a", "b"), self.entry("", "")]
        try await store.save(entries, durability: .full)
        for durability in [MuxDurability.full, .relaxed] {
            try await store.save([], durability: durability)
            try await store.remove([], durability: durability)
            try await store.remove(
                [MuxStoreKey(domain: "x"), MuxStoreKey(domain: "a", key: "x")],
                durability: durability
            )
            try await store.removeAll(domain: "x", durability: durability)
            for entry in entries { try await self.expect(store, holds: entry) }
        }
        try await store.raiseSessionEpoch(to: 0)
        for entry in entries { try await self.expect(store, holds: entry) }
    }

    private static func replaces(_ store: any MuxStore) async throws {
        try await self.expect(store, holdsNo: MuxStoreKey(domain: "a", key: "b"))
        for number in 1...3 {
            try await store.save(
                [self.entry("a", "b", number)],
                durability: .full
            )
            try await self.expect(store, holds: self.entry("a", "b", number))
        }
        try await store.save([self.entry("a", "c", 1), self.entry("a", "c", 2)], durability: .full)
        try await self.expect(store, holds: self.entry("a", "c", 2))
        // A later save replaces an entry with a later time or a higher schema version, too: a clock can be
        // set back, and an app can be downgraded.
        try await store.save([self.entry("a", "c", 1)], durability: .full)
        try await self.expect(store, holds: self.entry("a", "c", 1))
    }

    private static func names(_ store: any MuxStore) async throws {
        let texts = [
            "", "domain", " ", "a", "A", "é", "e\u{301}", "a/b", "../a", "..", ".", "a\u{0}", "a\u{0}b",
            "a\nb", "\"",
            "\\", "👩‍🚀",
            "Å", "\u{212b}", String(repeating: "n", count: 10_000), "null", "%2F", "\u{feff}", "\u{200d}",
        ]
        var entries: [MuxStoredEntry] = []
        for text in texts {
            entries.append(self.entry(text, nil, entries.count))
            entries.append(self.entry("domain", text, entries.count))
            entries.append(self.entry(text, "key", entries.count))
        }
        entries += [self.entry("ab", "c", 1000), self.entry("a", "bc", 1001)]
        for separator in ["/", ":", ".", "-", "_", "|", "#", "\u{0}", "\n"] {
            let pairs = [
                ("x", "y\(separator)z"), ("x\(separator)y", "z"), ("x\(separator)y\(separator)z", nil),
            ]
            for (domain, key) in pairs { entries.append(self.entry(domain, key, entries.count)) }
        }
        for end in ["a", "b"] {
            let long = String(repeating: "l", count: 1_000) + end
            entries += [
                self.entry(long, nil, entries.count), self.entry("long", long, entries.count + 1),
            ]
        }
        for entry in entries { try await store.save([entry], durability: .full) }
        for entry in entries { try await self.expect(store, holds: entry) }
    }

    private static func removes(_ store: any MuxStore) async throws {
        let others = [self.entry("a", ""), self.entry("b", "b"), self.entry("b", nil)]
        let keys = ["c", "d", "e"]
        try await store.save(
            [self.entry("a", nil), self.entry("a", "b")] + others + keys.map { self.entry("a", $0) },
            durability: .full
        )
        try await store.remove(
            [MuxStoreKey(domain: "a", key: "b"), MuxStoreKey(domain: "x")],
            durability: .full
        )
        try await self.expect(store, holdsNo: MuxStoreKey(domain: "a", key: "b"))
        for entry in others + keys.map({ self.entry("a", $0) }) {
            try await self.expect(store, holds: entry)
        }
        try await store.remove([MuxStoreKey(domain: "a")], durability: .full)
        try await self.expect(store, holdsNo: MuxStoreKey(domain: "a"))
        let names = keys.map { MuxStoreKey(domain: "a", key: $0) }
        try await store.remove([MuxStoreKey(domain: "x")] + names, durability: .full)
        for name in names { try await self.expect(store, holdsNo: name) }
        for entry in others { try await self.expect(store, holds: entry) }
        try await store.save([self.entry("a", "b", 2)], durability: .full)
        try await self.expect(store, holds: self.entry("a", "b", 2))
    }

    private static func removesDomain(_ store: any MuxStore) async throws {
        let others = [
            self.entry("e\u{301}", "k"), self.entry("", "k"), self.entry("éa", nil),
            self.entry("éa", "k"),
            self.entry("é/", nil), self.entry("É", "k"), self.entry("aé", "k"), self.entry("k", "é"),
        ]
        try await store.save(
            [self.entry("é", nil), self.entry("é", "k"), self.entry("é", "")] + others,
            durability: .full
        )
        try await store.removeAll(domain: "é", durability: .full)
        for key in [nil, "k", ""] {
            try await self.expect(store, holdsNo: MuxStoreKey(domain: "é", key: key))
        }
        for entry in others { try await self.expect(store, holds: entry) }
        try await store.save([self.entry("é", "k", 2)], durability: .full)
        try await self.expect(store, holds: self.entry("é", "k", 2))
        try await store.removeAll(domain: "", durability: .full)
        try await self.expect(store, holdsNo: MuxStoreKey(domain: "", key: "k"))
        try await self.expect(store, holds: self.entry("é", "k", 2))
    }

    private static func removesEverything(_ store: any MuxStore) async throws {
        try await store.raiseSessionEpoch(to: 3)
        try await store.save(
            [self.entry("a", nil, epoch: 3), self.entry("b", "k", epoch: 3)],
            durability: .full
        )
        try await store.removeEverything()
        try await self.expect(store, holdsNo: MuxStoreKey(domain: "a"))
        try await self.expect(store, holdsNo: MuxStoreKey(domain: "b", key: "k"))
        let epoch = try await store.sessionEpoch()
        try self.expect(epoch == 3, "the session became \(epoch)")
        try await store.save([self.entry("a", nil, 2, epoch: 3)], durability: .full)
        try await self.expect(store, holds: self.entry("a", nil, 2, epoch: 3))
    }

    private static func sessionRises(_ store: any MuxStore) async throws {
        for (asked, expected): (UInt64, UInt64) in [
            (1, 1), (0, 1), (1, 1), (7, 7), (2, 7), (.max, .max), (0, .max),
        ] {
            try await store.raiseSessionEpoch(to: asked)
            let epoch = try await store.sessionEpoch()
            try self.expect(
                epoch == expected,
                "raised to \(asked), the session is \(epoch) instead of \(expected)"
            )
        }
    }

    private static func sessionEnds(_ store: any MuxStore) async throws {
        try await store.save(
            [self.entry("a", nil), self.entry("a", "early", epoch: 2)],
            durability: .full
        )
        try await self.expect(store, holds: self.entry("a", "early", epoch: 2))
        try await store.raiseSessionEpoch(to: 2)
        try await self.expect(store, holdsNo: MuxStoreKey(domain: "a"))
        try await self.expect(store, holds: self.entry("a", "early", epoch: 2))
        try await store.save(
            [self.entry("a", "late", epoch: 1), self.entry("a", "new", epoch: 2)],
            durability: .full
        )
        try await self.expect(store, holdsNo: MuxStoreKey(domain: "a", key: "late"))
        try await self.expect(store, holds: self.entry("a", "new", epoch: 2))
        // A late entry of an ended session must not replace a current entry, either.
        try await store.save([self.entry("a", "new", 3, epoch: 1)], durability: .full)
        try await self.expect(store, holds: self.entry("a", "new", epoch: 2))
    }

    private static func sessionStaysEnded(_ store: any MuxStore) async throws {
        let names = [MuxStoreKey(domain: "a"), MuxStoreKey(domain: "a", key: "b")]
        try await store.save(names.map { self.entry($0.domain, $0.key) }, durability: .full)
        try await store.raiseSessionEpoch(to: 2)
        for step in 0..<4 {
            switch step {
            case 0: try await store.raiseSessionEpoch(to: 0)
            case 1: try await store.raiseSessionEpoch(to: 1)
            case 2: try await store.save([self.entry("c", nil, epoch: 2)], durability: .full)
            default: try await store.removeAll(domain: "c", durability: .full)
            }
            for name in names { try await self.expect(store, holdsNo: name) }
            let epoch = try await store.sessionEpoch()
            try self.expect(epoch == 2, "the session became \(epoch)")
        }
    }

    private static func manyCalls(_ store: any MuxStore) async throws {
        // The library saves serially, and loads at any time: a load concurrent with a save must be atomic.
        for number in 0..<50 {
            let (entry, former) = (self.entry("d", "\(number)", number), self.entry("d", "\(number - 1)", number - 1))
            async let present = store.load([entry.name, former.name])
            async let alone = store.load(entry.name)
            try await store.save([entry], durability: .relaxed)
            let (found, single) = try await (present, alone)
            try self.expect(found.count == 2, "two names were loaded as \(found.count) entries")
            for one in [found[0], single] {
                try self.expect(one == nil || one == entry, "the loaded \(entry.name) differs from the saved entry")
            }
            if number > 0 { try self.expect(found[1] == former, "\(former.name) is lost during a save") }
            try await self.expect(store, holds: entry)
        }
        for number in 0..<50 {
            try await self.expect(store, holds: self.entry("d", "\(number)", number))
        }
    }
}
