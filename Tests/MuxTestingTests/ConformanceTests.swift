import MuxConformance
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// The conformance suites find each fault of stores and leases with one fault.
@Suite(.standard(.waiting))
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
        case .throwsOnMiss, .hangsOnMiss: "An empty store has no entry"
        case .roundsDates, .losesLifetimeFraction, .cutsPayload, .dropsExpired, .writesBehind, .savesFirstOnly,
            .evictsAtTen:
            "A saved entry is loaded unchanged"
        case .loadTakesAway: "A load has no effect on the store"
        case .skipsMisses, .sortsNames, .dropsRepeatedNames: "Many entries are loaded in the order of the names"
        case .checkRefusesAll, .checkRefusesWithoutKey: "A storable entry is not refused"
        case .ignoresRelaxedSave, .ignoresRelaxedRemoval, .ignoresRelaxedDomainRemoval:
            "A relaxed call has the same effect"
        case .keepsLaterDate, .remembersMisses, .remembersLoads, .keepsFirst: "A later save replaces an earlier save"
        case .foldsCase, .normalisesUnicode, .joinsNamesWithSlash, .joinsNamesWithNothing, .mixesNoKeyWithEmpty,
            .cutsLongNames:
            "Names that differ in any byte name different entries"
        case .removesFirstOnly, .removesDomainOfName, .removesKeyEverywhere: "A removal removes only the named entries"
        case .removesDomainByPrefix: "The removal of a domain keeps other domains"
        case .removingNothingRemovesAll, .savingNothingRemovesAll: "A call that concerns no stored entry has no effect"
        case .everythingStays, .removingEverythingStartsOver: "The removal of all entries keeps the session"
        case .sessionFalls: "The session number never falls"
        case .stampsSession, .hidesNextSession, .keepsEndedSession, .acceptsEndedSession, .lateSaveErases:
            "Entries of an earlier session do not exist"
        case .revivesSession: "An ended session remains ended"
        case .mixesCalls: "Concurrent calls do not interfere"
        }
    }

    @Test(arguments: FaultyStore.Fault.allCases)
    func `CO-41 a store with one fault breaks the rule that forbids the fault`(fault: FaultyStore.Fault) async throws {
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
        case .foldsOwners, .trimsOwners: "Owners with different names are different"
        case .extensionIsIgnored, .extensionAddsUp, .extensionIsNewTerm:
            "The holder extends the lease by another request, in the same generation"
        case .askingProlongs: "A request for a held lease does not extend the lease"
        case .givesNothingBack, .generationStays:
            "A lease is free after its return, and the generation rises"
        case .lateReturnFreesOther, .returnOfSameOwnerFrees, .lateReturnThrows:
            "The return of an ended term has no effect"
        case .neverExpires, .expiresOneLate, .generationStartsOver: "An expired lease is free"
        case .loserTakesItBack: "A former holder does not have the lease"
        case .mixesCalls: "Exactly one of many concurrent callers gets the lease"
        case .neverWakes: "A wait ends with the return of the lease"
        case .wakesOne: "The return of the lease ends all waits"
        case .hangsWhenOver: "A wait for an ended term ends at once"
        case .ignoresCancellation, .wrongErrorWhenCancelled: "A wait ends with the cancellation of the task"
        }
    }

    @Test(arguments: FaultyLease.Fault.allCases)
    func `CO-41 a lease with one fault breaks the rule that forbids the fault`(fault: FaultyLease.Fault) async throws {
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

    @Test func `CO-41 a call that throws or hangs is reported with the name of the rule`() async throws {
        for fault in [FaultyStore.Fault.throwsOnMiss, .hangsOnMiss] {
            let error = await #expect(throws: ConformanceFailure.self) {
                try await MuxStoreConformance.run(within: .seconds(20)) { FaultyStore(fault) }
            }
            let detail = error?.detail ?? ""
            #expect(detail.contains(fault == .hangsOnMiss ? "did not end within" : "Refused"), "\(detail)")
        }
    }
}
