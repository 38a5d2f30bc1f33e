public import MuxKit
import MuxTesting

/// Checks the rules of `MuxLease` on a custom lease.
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
public enum MuxLeaseConformance: RuleSuite, Sendable {
    /// Checks each rule on a separate lease.
    ///
    /// - Parameters:
    ///   - limit: The maximum real time of each rule; exceeding the limit breaks the rule.
    ///   - advance: Moves the lease's time forward; a rule advances the time by at most 80 seconds in total.
    ///   - makeLease: Makes a lease without a previous holder, and returns two connections to the lease, as
    ///     from two processes.
    /// - Throws: ``ConformanceFailure`` for the first broken rule (an unexpected error during the check also
    ///   breaks the rule); an error from `makeLease`; `CancellationError` if the task is cancelled.
    public static func run(
        within limit: Duration = .seconds(60),
        advancing advance: @escaping @Sendable @concurrent (Duration) async -> Void,
        of makeLease: @Sendable @concurrent () async throws -> (any MuxLease, any MuxLease)
    ) async throws {
        for (name, rule) in self.rules {
            let (alice, bob) = try await makeLease()
            let parties = Parties(alice: alice, bob: bob, advance: advance)
            try await self.runCheck(of: name, within: limit) { try await rule(parties) }
        }
    }

    private struct Parties: Sendable {
        let alice: any MuxLease
        let bob: any MuxLease
        let advance: @Sendable @concurrent (Duration) async -> Void
    }

    private typealias Rule = @Sendable @concurrent (Parties) async throws -> Void

    private static let rules: [(name: String, rule: Rule)] = [
        ("A free lease goes to any caller", Self.free),
        ("A held lease goes to no other caller", Self.held),
        ("Owners with different names are different", Self.owners),
        ("A lease is free after its return, and the generation rises", Self.givenBack),
        ("The holder extends the lease by another request, in the same generation", Self.extended),
        ("An expired lease is free", Self.expired),
        ("A request for a held lease does not extend the lease", Self.asking),
        ("The return of an ended term has no effect", Self.late),
        ("A former holder does not have the lease", Self.lost),
        ("Exactly one of many concurrent callers gets the lease", Self.many),
        ("A wait ends with the return of the lease", Self.waiting),
        ("The return of the lease ends all waits", Self.allWaiting),
        ("A wait for an ended term ends at once", Self.overAlready),
        ("A wait ends with the cancellation of the task", Self.cancelled),
    ]
}

extension MuxLeaseConformance {
    private static func free(_ parties: Parties) async throws {
        let term = try await parties.alice.take(as: "alice", for: .seconds(60))
        try self.expect(term.owner == "alice", "\(term.owner) has the lease")
        try self.expect(
            term.remaining > .seconds(30) && term.remaining <= .seconds(60),
            "the remaining time is \(term.remaining)"
        )
    }

    private static func held(_ parties: Parties) async throws {
        let own = try await parties.alice.take(as: "alice", for: .seconds(60))
        await parties.advance(.seconds(20))
        let other = try await parties.bob.take(as: "bob", for: .seconds(600))
        try self.expect(other.owner == "alice", "\(other.owner) has the lease")
        try self.expect(other.generation == own.generation, "the generation is \(other.generation)")
        try self.expect(
            other.remaining > .seconds(20) && other.remaining <= .seconds(40),
            "the remaining time is \(other.remaining)"
        )
    }

    private static func owners(_ parties: Parties) async throws {
        _ = try await parties.alice.take(as: "Alice", for: .seconds(60))
        for name in ["alice", "ALICE", "Alice ", " Alice", "Alic", "Alicee", "Alice\n", ""] {
            let term = try await parties.bob.take(as: name, for: .seconds(60))
            try self.expect(term.owner == "Alice", "\"\(term.owner)\" and \"Alice\" have the lease")
        }
    }

    private static func extended(_ parties: Parties) async throws {
        let first = try await parties.alice.take(as: "alice", for: .seconds(60))
        await parties.advance(.seconds(40))
        let second = try await parties.alice.take(as: "alice", for: .seconds(60))
        try self.expect(second.owner == "alice", "\(second.owner) has the lease")
        try self.expect(second.generation == first.generation, "the generation is \(second.generation)")
        try self.expect(
            second.remaining > .seconds(30) && second.remaining <= .seconds(60),
            "the remaining time is \(second.remaining)"
        )
        await parties.advance(.seconds(40))
        let other = try await parties.bob.take(as: "bob", for: .seconds(60))
        try self.expect(other.owner == "alice", "\(other.owner) has the lease")
        try await parties.alice.giveBack(first)
        let next = try await parties.bob.take(as: "bob", for: .seconds(60))
        try self.expect(next.owner == "bob", "the return of the first term had no effect")
    }

    private static func asking(_ parties: Parties) async throws {
        _ = try await parties.alice.take(as: "alice", for: .seconds(60))
        for _ in 0..<2 {
            await parties.advance(.seconds(20))
            let other = try await parties.bob.take(as: "bob", for: .seconds(600))
            try self.expect(other.owner == "alice", "\(other.owner) has the lease")
        }
        await parties.advance(.seconds(20))
        let next = try await parties.bob.take(as: "carol", for: .seconds(60))
        try self.expect(next.owner == "carol", "\(next.owner) still has the lease")
    }

    private static func givenBack(_ parties: Parties) async throws {
        let first = try await parties.alice.take(as: "alice", for: .seconds(60))
        try await parties.alice.giveBack(first)
        let second = try await parties.bob.take(as: "bob", for: .seconds(60))
        try self.expect(second.owner == "bob", "\(second.owner) has the lease")
        try self.expect(second.generation > first.generation, "the generation is \(second.generation)")
        try await parties.bob.giveBack(second)
        let third = try await parties.bob.take(as: "bob", for: .seconds(60))
        try self.expect(third.generation > second.generation, "the generation is \(third.generation)")
    }

    private static func late(_ parties: Parties) async throws {
        let first = try await parties.alice.take(as: "alice", for: .seconds(60))
        await parties.advance(.seconds(61))
        _ = try await parties.bob.take(as: "bob", for: .seconds(60))
        try await parties.alice.giveBack(first)
        let present = try await parties.alice.take(as: "carol", for: .seconds(60))
        try self.expect(present.owner == "bob", "\(present.owner) has the lease")
        // An earlier term with the name of the current holder has no effect, either.
        let old = MuxLeaseTerm(owner: "bob", generation: first.generation, remaining: .seconds(60))
        try await parties.bob.giveBack(old)
        let still = try await parties.alice.take(as: "carol", for: .seconds(60))
        try self.expect(still.owner == "bob", "\(still.owner) has the lease")
    }

    private static func expired(_ parties: Parties) async throws {
        let first = try await parties.alice.take(as: "alice", for: .seconds(60))
        await parties.advance(.seconds(60))
        let second = try await parties.bob.take(as: "bob", for: .seconds(60))
        try self.expect(second.owner == "bob", "\(second.owner) has the lease")
        try self.expect(second.generation > first.generation, "the generation is \(second.generation)")
    }

    private static func lost(_ parties: Parties) async throws {
        _ = try await parties.alice.take(as: "alice", for: .seconds(60))
        await parties.advance(.seconds(61))
        _ = try await parties.bob.take(as: "bob", for: .seconds(60))
        let present = try await parties.alice.take(as: "alice", for: .seconds(60))
        try self.expect(present.owner == "bob", "\(present.owner) has the lease")
    }

    private static func many(_ parties: Parties) async throws {
        let terms = try await withThrowingTaskGroup(of: (String, MuxLeaseTerm).self) { group in
            for number in 0..<40 {
                let lease = number.isMultiple(of: 2) ? parties.alice : parties.bob
                group.addTask { ("\(number)", try await lease.take(as: "\(number)", for: .seconds(60))) }
            }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        let winners = terms.filter { $0.0 == $0.1.owner }
        try self.expect(winners.count == 1, "\(winners.count) callers have the lease")
        try self.expect(Set(terms.map(\.1.owner)).count == 1, "callers got different holders")
    }

    private static func waiting(_ parties: Parties) async throws {
        for _ in 0..<3 {
            let term = try await parties.alice.take(as: "alice", for: .seconds(60))
            let seen = try await parties.bob.take(as: "bob", for: .seconds(60))
            try await self.wait(for: seen, through: [parties.bob]) { try await parties.alice.giveBack(term) }
        }
    }

    private static func allWaiting(_ parties: Parties) async throws {
        let term = try await parties.alice.take(as: "alice", for: .seconds(60))
        let seen = try await parties.bob.take(as: "bob", for: .seconds(60))
        let waiting = Array(repeating: [parties.bob, parties.alice], count: 3).flatMap(\.self)
        try await self.wait(for: seen, through: waiting) { try await parties.alice.giveBack(term) }
    }

    /// Waits with each of `leases`, calls `event` shortly after the start of the last wait, and returns when
    /// all waits have ended.
    private static func wait(
        for term: MuxLeaseTerm,
        through leases: [any MuxLease],
        _ event: () async throws -> Void
    ) async throws {
        let begun = Tally()
        try await withThrowingTaskGroup(of: Void.self) { group in
            for lease in leases {
                group.addTask {
                    begun.add()
                    try await lease.wait(for: term)
                }
            }
            await begun.reached(leases.count)
            try await self.waitBriefly()
            try await event()
            try await group.waitForAll()
        }
    }

    private static func overAlready(_ parties: Parties) async throws {
        let term = try await parties.alice.take(as: "alice", for: .seconds(60))
        try await parties.alice.giveBack(term)
        try await parties.bob.wait(for: term)
        _ = try await parties.alice.take(as: "carol", for: .seconds(60))
        try await parties.bob.wait(for: term)
    }

    private static func cancelled(_ parties: Parties) async throws {
        _ = try await parties.alice.take(as: "alice", for: .seconds(60))
        let seen = try await parties.bob.take(as: "bob", for: .seconds(60))
        for isWaiting in [true, false] {
            let begun = Tally()
            let result = try await withThrowingTaskGroup(of: (any Error)?.self) { group in
                group.addTask {
                    begun.add()
                    do {
                        try await parties.bob.wait(for: seen)
                        return nil
                    } catch {
                        return error
                    }
                }
                if isWaiting {
                    await begun.reached(1)
                    try await self.waitBriefly()
                }
                group.cancelAll()
                return try await group.next() ?? nil
            }
            guard let result else { continue }  // a wait may return early, without an error
            try self.expect(
                result is CancellationError,
                "the error is not CancellationError: \(result)"
            )
        }
    }
}
