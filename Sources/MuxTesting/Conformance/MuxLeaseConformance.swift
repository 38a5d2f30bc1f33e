public import Foundation
public import MuxKit

/// The rules that every `MuxLease` keeps, as a check to run on a lease of your own.
///
/// ```swift
/// @Test func `my lease is a lease`() async throws {
///     let clock = VirtualClock()
///     try await MuxLeaseConformance.run(advancing: { clock.advance(by: $0) }, of: {
///         let server = MyLeaseServer(clock: clock)
///         return (MyLease(server), MyLease(server))
///     })
/// }
/// ```
public enum MuxLeaseConformance: Sendable {
    /// Checks rule after rule, each on a lease of its own.
    ///
    /// - Parameters:
    ///   - limit: How long each rule may take, in real time: a call that never returns breaks the rule, too.
    ///   - advance: Moves the lease's time forward, in which durations are minutes.
    ///   - makeLease: Makes a lease that nobody ever took, and returns it as two parties see it.
    /// - Throws: ``MuxLeaseConformance.Failure`` for the first rule that is broken, also by a call that throws; what `makeLease` threw;
    ///   `CancellationError` if the task is cancelled.
    public static func run(
        within limit: Duration = .seconds(20),
        advancing advance: @escaping @Sendable @concurrent (Duration) async -> Void,
        of makeLease: @Sendable @concurrent () async throws -> (any MuxLease, any MuxLease)
    ) async throws {
        for (name, rule) in self.rules {
            let (alice, bob) = try await makeLease()
            let doors = Doors(alice: alice, bob: bob, advance: advance)
            if let detail = try await RuleCheck.flaw(within: limit, { try await rule(doors) }) {
                throw Failure(rule: name, detail: detail)
            }
        }
    }

    private struct Doors: Sendable {
        let alice: any MuxLease
        let bob: any MuxLease
        let advance: @Sendable @concurrent (Duration) async -> Void
    }

    private typealias Rule = @Sendable @concurrent (Doors) async throws -> Void

    private static let rules: [(name: String, rule: Rule)] = [
        ("A free lease goes to whoever asks", Self.free),
        ("A lease that is held goes to nobody else", Self.held),
        ("Owners are told apart letter by letter", Self.owners),
        ("A lease that was given back is free at once, and its generation rises", Self.givenBack),
        ("Its holder has more time by asking again, in the same generation", Self.extended),
        ("A lease whose time is up is free", Self.expired),
        ("Asking for a lease that is held gives its holder no more time", Self.asking),
        ("Giving back what is over changes nothing", Self.late),
        ("Who lost the lease does not have it", Self.lost),
        ("Of many who ask at once one gets it", Self.many),
        ("Waiting ends when the lease is given back", Self.waiting),
        ("All who wait are told", Self.allWaiting),
        ("Waiting ends at once for a term that is over", Self.overAlready),
        ("Waiting ends when the task is cancelled", Self.cancelled),
    ]

    private static func expect(_ condition: Bool, _ detail: @autoclosure () -> String) throws {
        try RuleCheck.expect(condition, detail())
    }
}

extension MuxLeaseConformance {
    private static func free(_ doors: Doors) async throws {
        let term = try await doors.alice.take(as: "alice", for: .seconds(60))
        try self.expect(term.owner == "alice", "\(term.owner) has it")
        try self.expect(
            term.remaining > .seconds(30) && term.remaining <= .seconds(60),
            "it lasts \(term.remaining)"
        )
    }

    private static func held(_ doors: Doors) async throws {
        let own = try await doors.alice.take(as: "alice", for: .seconds(60))
        await doors.advance(.seconds(20))
        let other = try await doors.bob.take(as: "bob", for: .seconds(600))
        try self.expect(other.owner == "alice", "\(other.owner) has it")
        try self.expect(other.generation == own.generation, "the generation is \(other.generation)")
        try self.expect(
            other.remaining > .seconds(20) && other.remaining <= .seconds(40),
            "it lasts \(other.remaining)"
        )
    }

    private static func owners(_ doors: Doors) async throws {
        _ = try await doors.alice.take(as: "Alice", for: .seconds(60))
        for name in ["alice", "ALICE", "Alice ", " Alice", "Alic", "Alicee", "Alice\n", ""] {
            let term = try await doors.bob.take(as: name, for: .seconds(60))
            try self.expect(term.owner == "Alice", "\"\(term.owner)\" has it, and \"Alice\" does, too")
        }
    }

    private static func extended(_ doors: Doors) async throws {
        let first = try await doors.alice.take(as: "alice", for: .seconds(60))
        await doors.advance(.seconds(40))
        let second = try await doors.alice.take(as: "alice", for: .seconds(60))
        try self.expect(second.owner == "alice", "\(second.owner) has it")
        try self.expect(second.generation == first.generation, "the generation is \(second.generation)")
        try self.expect(
            second.remaining > .seconds(30) && second.remaining <= .seconds(60),
            "it lasts \(second.remaining)"
        )
        await doors.advance(.seconds(40))
        let other = try await doors.bob.take(as: "bob", for: .seconds(60))
        try self.expect(other.owner == "alice", "\(other.owner) has it")
        try await doors.alice.giveBack(first)
        let next = try await doors.bob.take(as: "bob", for: .seconds(60))
        try self.expect(next.owner == "bob", "the first term gives it back as well")
    }

    private static func asking(_ doors: Doors) async throws {
        _ = try await doors.alice.take(as: "alice", for: .seconds(60))
        for _ in 0..<2 {
            await doors.advance(.seconds(20))
            let other = try await doors.bob.take(as: "bob", for: .seconds(600))
            try self.expect(other.owner == "alice", "\(other.owner) has it")
        }
        await doors.advance(.seconds(20))
        let next = try await doors.bob.take(as: "carol", for: .seconds(60))
        try self.expect(next.owner == "carol", "\(next.owner) still has it")
    }

    private static func givenBack(_ doors: Doors) async throws {
        let first = try await doors.alice.take(as: "alice", for: .seconds(60))
        try await doors.alice.giveBack(first)
        let second = try await doors.bob.take(as: "bob", for: .seconds(60))
        try self.expect(second.owner == "bob", "\(second.owner) has it")
        try self.expect(second.generation > first.generation, "the generation is \(second.generation)")
        try await doors.bob.giveBack(second)
        let third = try await doors.bob.take(as: "bob", for: .seconds(60))
        try self.expect(third.generation > second.generation, "the generation is \(third.generation)")
    }

    private static func late(_ doors: Doors) async throws {
        let first = try await doors.alice.take(as: "alice", for: .seconds(60))
        await doors.advance(.seconds(61))
        _ = try await doors.bob.take(as: "bob", for: .seconds(60))
        try await doors.alice.giveBack(first)
        let present = try await doors.alice.take(as: "carol", for: .seconds(60))
        try self.expect(present.owner == "bob", "\(present.owner) has it")
        // Nor does a term of the same owner from before.
        let old = MuxLeaseTerm(owner: "bob", generation: first.generation, remaining: .seconds(60))
        try await doors.bob.giveBack(old)
        let still = try await doors.alice.take(as: "carol", for: .seconds(60))
        try self.expect(still.owner == "bob", "\(still.owner) has it")
    }

    private static func expired(_ doors: Doors) async throws {
        let first = try await doors.alice.take(as: "alice", for: .seconds(60))
        await doors.advance(.seconds(60))
        let second = try await doors.bob.take(as: "bob", for: .seconds(60))
        try self.expect(second.owner == "bob", "\(second.owner) has it")
        try self.expect(second.generation > first.generation, "the generation is \(second.generation)")
    }

    private static func lost(_ doors: Doors) async throws {
        _ = try await doors.alice.take(as: "alice", for: .seconds(60))
        await doors.advance(.seconds(61))
        _ = try await doors.bob.take(as: "bob", for: .seconds(60))
        let present = try await doors.alice.take(as: "alice", for: .seconds(60))
        try self.expect(present.owner == "bob", "\(present.owner) has it")
    }

    private static func many(_ doors: Doors) async throws {
        let terms = try await withThrowingTaskGroup(of: (String, MuxLeaseTerm).self) { group in
            for number in 0..<40 {
                let door = number.isMultiple(of: 2) ? doors.alice : doors.bob
                group.addTask { ("\(number)", try await door.take(as: "\(number)", for: .seconds(60))) }
            }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        let winners = terms.filter { $0.0 == $0.1.owner }
        try self.expect(winners.count == 1, "\(winners.count) have it")
        try self.expect(Set(terms.map(\.1.owner)).count == 1, "they do not agree on who has it")
    }

    private static func waiting(_ doors: Doors) async throws {
        for _ in 0..<3 {
            let term = try await doors.alice.take(as: "alice", for: .seconds(60))
            let seen = try await doors.bob.take(as: "bob", for: .seconds(60))
            try await self.wait(for: seen, through: [doors.bob]) { try await doors.alice.giveBack(term) }
        }
    }

    private static func allWaiting(_ doors: Doors) async throws {
        let term = try await doors.alice.take(as: "alice", for: .seconds(60))
        let seen = try await doors.bob.take(as: "bob", for: .seconds(60))
        let waiting = Array(repeating: [doors.bob, doors.alice], count: 3).flatMap(\.self)
        try await self.wait(for: seen, through: waiting) { try await doors.alice.giveBack(term) }
    }

    /// Waits through each of `doors`, does something as soon as all of them wait, and returns when none waits any more.
    private static func wait(
        for term: MuxLeaseTerm,
        through doors: [any MuxLease],
        _ event: () async throws -> Void
    ) async throws {
        let begun = Tally()
        try await withThrowingTaskGroup(of: Void.self) { group in
            for door in doors {
                group.addTask {
                    begun.add()
                    try await door.wait(for: term)
                }
            }
            await begun.reached(doors.count)
            try await RuleCheck.settle()
            try await event()
            try await group.waitForAll()
        }
    }

    private static func overAlready(_ doors: Doors) async throws {
        let term = try await doors.alice.take(as: "alice", for: .seconds(60))
        try await doors.alice.giveBack(term)
        try await doors.bob.wait(for: term)
        _ = try await doors.alice.take(as: "carol", for: .seconds(60))
        try await doors.bob.wait(for: term)
    }

    private static func cancelled(_ doors: Doors) async throws {
        _ = try await doors.alice.take(as: "alice", for: .seconds(60))
        let seen = try await doors.bob.take(as: "bob", for: .seconds(60))
        for isWaiting in [true, false] {
            let begun = Tally()
            let result = try await withThrowingTaskGroup(of: (any Error)?.self) { group in
                group.addTask {
                    begun.add()
                    do {
                        try await doors.bob.wait(for: seen)
                        return nil
                    } catch {
                        return error
                    }
                }
                if isWaiting {
                    await begun.reached(1)
                    try await RuleCheck.settle()
                }
                group.cancelAll()
                return try await group.next() ?? nil
            }
            guard let result else { continue }
            try self.expect(
                result is CancellationError,
                "it ends with another error than CancellationError: \(result)"
            )
        }
    }
}

extension MuxLeaseConformance {
    /// A lease broke one of the rules of `MuxLease`.
    public struct Failure: Error, LocalizedError, Sendable, Hashable {
        /// The rule, as a sentence.
        public var rule: String

        /// What the lease did instead.
        public var detail: String

        /// Says which rule was broken, and how.
        public init(rule: String, detail: String) {
            self.rule = rule
            self.detail = detail
        }

        /// The rule and what happened instead.
        public var errorDescription: String? { "\(self.rule): \(self.detail)" }
    }
}
