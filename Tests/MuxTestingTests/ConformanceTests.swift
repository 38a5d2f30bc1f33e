import MuxConformance
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// The conformance suites find each fault of stores and leases with one fault.
@Suite(.timeLimit(.minutes(15)), .takesTurnsWaiting, .endsAtRest)
struct ConformanceTests {
    @Test func `CO-41 a store without a fault keeps every rule`() async throws {
        try await MuxStoreConformance.run { FaultyStore(nil) }
    }

    @Test func `CO-41 a lease without a fault keeps every rule`() async throws {
        let clock = VirtualClock()
        try await MuxLeaseConformance.run(
            advancing: { clock.advance(by: $0) },
            of: { FaultyLease.pair(nil, clock) }
        )
    }

    private static func rule(against fault: FaultyStore.Fault) -> String {
        switch fault {
        case .throwsOnMiss, .hangsOnMiss: "An empty store holds nothing"
        case .roundsDates, .losesLifetimeFraction, .cutsPayload, .dropsExpired, .writesBehind, .savesFirstOnly,
            .evictsAtTen:
            "What was saved is loaded whole"
        case .loadTakesAway: "Loading changes nothing"
        case .skipsMisses, .sortsNames, .dropsRepeatedNames: "Many are loaded in the order of their names"
        case .checkRefusesAll, .checkRefusesWithoutKey: "What can be kept is not refused"
        case .ignoresRelaxedSave, .ignoresRelaxedRemoval, .ignoresRelaxedDomainRemoval:
            "A relaxed call takes effect too"
        case .keepsLaterDate, .remembersMisses, .remembersLoads, .keepsFirst: "A later save replaces an earlier one"
        case .foldsCase, .normalisesUnicode, .joinsNamesWithSlash, .joinsNamesWithNothing, .mixesNoKeyWithEmpty,
            .cutsLongNames:
            "Names that differ in any byte name different entries"
        case .removesFirstOnly, .removesDomainOfName, .removesKeyEverywhere: "A removed entry is gone, and no other"
        case .removesDomainByPrefix: "Removing a domain leaves the others"
        case .removingNothingRemovesAll, .savingNothingRemovesAll: "Calls without entries change nothing"
        case .everythingStays, .removingEverythingStartsOver: "Removing everything keeps the session"
        case .sessionFalls: "The session number never falls"
        case .stampsSession, .hidesNextSession, .keepsEndedSession, .acceptsEndedSession, .lateSaveErases:
            "Entries of an earlier session do not exist"
        case .revivesSession: "A session that has ended stays ended"
        case .mixesCalls: "Many calls at once do not mix"
        }
    }

    @Test(arguments: FaultyStore.Fault.allCases)
    func `CO-41 a store that is nearly right breaks the rule that forbids it`(fault: FaultyStore.Fault) async throws {
        let error = await #expect(throws: ConformanceFailure.self) {
            try await MuxStoreConformance.run(within: .seconds(20)) { FaultyStore(fault) }
        }

        #expect(error?.rule == Self.rule(against: fault), "\(error?.detail ?? "")")
    }

    private static func rule(against fault: FaultyLease.Fault) -> String {
        switch fault {
        case .remainingInMilliseconds: "A free lease goes to any caller"
        case .doorsOfTheirOwn, .givesToAnybody, .remainingIsWhatWasAsked, .throwsWhenHeld, .hangsWhenHeld:
            "A held lease goes to no other caller"
        case .foldsOwners, .trimsOwners: "Owners are told apart letter by letter"
        case .extensionIsIgnored, .extensionAddsUp, .extensionIsNewTerm:
            "Its holder has more time by asking again, in the same generation"
        case .askingProlongs: "Asking for a lease that is held gives its holder no more time"
        case .givesNothingBack, .generationStays:
            "A lease that was given back is free at once, and its generation rises"
        case .lateReturnFreesOther, .returnOfSameOwnerFrees, .lateReturnThrows:
            "Giving back what is over changes nothing"
        case .neverExpires, .expiresOneLate, .generationStartsOver: "A lease whose time is up is free"
        case .loserTakesItBack: "Who lost the lease does not have it"
        case .mixesCalls: "Of many who ask at once one gets it"
        case .neverWakes: "Waiting ends when the lease is given back"
        case .wakesOne: "All who wait are told"
        case .hangsWhenOver: "Waiting ends at once for a term that is over"
        case .ignoresCancellation, .wrongErrorWhenCancelled: "Waiting ends when the task is cancelled"
        }
    }

    @Test(arguments: FaultyLease.Fault.allCases)
    func `CO-41 a lease that is nearly right breaks the rule that forbids it`(fault: FaultyLease.Fault) async throws {
        let clock = VirtualClock()
        let error = await #expect(throws: ConformanceFailure.self) {
            try await MuxLeaseConformance.run(
                within: .seconds(20),
                advancing: { clock.advance(by: $0) },
                of: { FaultyLease.pair(fault, clock) }
            )
        }

        #expect(error?.rule == Self.rule(against: fault), "\(error?.detail ?? "")")
    }

    @Test func `CO-41 what throws or hangs is told by the name of the rule`() async throws {
        for fault in [FaultyStore.Fault.throwsOnMiss, .hangsOnMiss] {
            let error = await #expect(throws: ConformanceFailure.self) {
                try await MuxStoreConformance.run(within: .seconds(20)) { FaultyStore(fault) }
            }
            let detail = error?.detail ?? ""
            #expect(detail.contains(fault == .hangsOnMiss ? "did not end within" : "Refused"), "\(detail)")
        }
    }
}
