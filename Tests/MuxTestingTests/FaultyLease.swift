import Foundation
import MuxKit
import MuxTesting

/// A lease in memory with one fault.
struct FaultyLease: MuxLease {
    enum Fault: String, CaseIterable, Sendable {
        case doorsOfTheirOwn, givesToAnybody, foldsOwners, trimsOwners
        case remainingIsWhatWasAsked, remainingInMilliseconds, throwsWhenHeld, hangsWhenHeld
        case extensionIsIgnored, extensionAddsUp, extensionIsNewTerm, askingProlongs
        case givesNothingBack, generationStays, generationStartsOver
        case lateReturnFreesOther, returnOfSameOwnerFrees, lateReturnThrows
        case neverExpires, expiresOneLate, loserTakesItBack, mixesCalls
        case neverWakes, wakesOne, hangsWhenOver, ignoresCancellation, wrongErrorWhenCancelled
    }

    fileprivate struct Refused: Error {}

    private let book: Book
    private let fault: Fault?

    /// One lease as two processes see it.
    static func pair(_ fault: Fault?, _ clock: VirtualClock) -> (FaultyLease, FaultyLease) {
        let books = [Book(fault, clock), Book(fault, clock)]
        return (
            FaultyLease(book: books[0], fault: fault),
            FaultyLease(book: fault == .doorsOfTheirOwn ? books[1] : books[0], fault: fault)
        )
    }

    func take(as owner: String, for duration: Duration) async throws -> MuxLeaseTerm {
        var name = owner
        if self.fault == .foldsOwners { name = owner.lowercased() }
        if self.fault == .trimsOwners { name = owner.trimmingCharacters(in: .whitespaces) }
        var term = try await self.book.take(as: name, for: duration)
        if term.owner == name { term.owner = owner }
        return term
    }

    func giveBack(_ term: MuxLeaseTerm) async throws { try await self.book.giveBack(term) }

    func wait(for term: MuxLeaseTerm) async throws {
        guard let gate = await self.book.gate(of: term) else { return }
        do {
            try await gate.pass(ignoringCancellation: self.fault == .ignoresCancellation)
        } catch {
            throw self.fault == .wrongErrorWhenCancelled ? Refused() as any Error : error
        }
    }

    private actor Book {
        private let fault: Fault?
        private let clock: VirtualClock
        private var owner: String?
        private var generation: UInt64 = 0
        private var deadline = Duration.zero
        private var gate = Gate<Void>()

        init(_ fault: Fault?, _ clock: VirtualClock) {
            self.fault = fault
            self.clock = clock
        }

        private var isOver: Bool {
            let now = self.clock.now.offset
            switch self.fault {
            case .neverExpires: return self.owner == nil
            case .expiresOneLate: return self.owner == nil || now > self.deadline
            default: return self.owner == nil || now >= self.deadline
            }
        }

        func take(as owner: String, for duration: Duration) async throws -> MuxLeaseTerm {
            let now = self.clock.now.offset
            let isFree = self.isOver
            if self.fault == .mixesCalls { await Task.yield() }
            let expired = self.owner != nil && isFree
            let isTakenBack = self.fault == .loserTakesItBack && owner == "alice" && self.generation > 1
            if isFree || isTakenBack || (self.fault == .givesToAnybody && self.owner != owner) {
                if self.fault != .generationStays { self.generation += 1 }
                if self.fault == .generationStartsOver, expired { self.generation = 1 }
                self.owner = owner
                self.deadline = now + duration
                self.gate = Gate()
            } else if self.owner == owner {
                switch self.fault {
                case .extensionIsIgnored: break
                case .extensionAddsUp: self.deadline += duration
                case .extensionIsNewTerm:
                    self.generation += 1
                    self.deadline = now + duration
                default: self.deadline = now + duration
                }
            } else {
                if self.fault == .throwsWhenHeld { throw Refused() }
                if self.fault == .hangsWhenHeld { try await self.gate.pass(ignoringCancellation: true) }
            }
            var remaining = self.deadline - now
            // Extends the term after the reply, as some caches extend an entry on each read.
            if self.fault == .askingProlongs, self.owner != owner { self.deadline = now + duration }
            if self.fault == .remainingIsWhatWasAsked { remaining = duration }
            if self.fault == .remainingInMilliseconds { remaining = remaining / 1_000 }
            return MuxLeaseTerm(owner: self.owner ?? "", generation: self.generation, remaining: remaining)
        }

        func giveBack(_ term: MuxLeaseTerm) throws {
            let isMeant =
                switch self.fault {
                case .givesNothingBack: false
                case .lateReturnFreesOther: true
                case .returnOfSameOwnerFrees: self.owner == term.owner
                default: self.isHeld(term)
                }
            guard isMeant else {
                if self.fault == .lateReturnThrows { throw Refused() }
                return
            }
            self.owner = nil
            switch self.fault {
            case .neverWakes: break
            case .wakesOne: self.gate.open()
            default: self.gate.openForGood(returning: ())
            }
        }

        private func isHeld(_ term: MuxLeaseTerm) -> Bool {
            let names = [self.owner, self.fault == .foldsOwners ? self.owner?.lowercased() : self.owner]
            return names.contains(self.fault == .foldsOwners ? term.owner.lowercased() : term.owner)
                && self.generation == term.generation
        }

        func gate(of term: MuxLeaseTerm) -> Gate<Void>? {
            if self.fault == .hangsWhenOver { return self.isHeld(term) ? self.gate : Gate() }
            return self.isHeld(term) ? self.gate : nil
        }
    }
}
