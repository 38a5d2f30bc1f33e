import MuxKit
import Testing

/// What a vault knows, without a vault.
@Suite(.timeLimit(.minutes(5)), .takesTurns, .endsAtRest)
struct OAuthMemoTests {
    @Test func `D06 the number of a session that was looked up before a sign-out is not that of the next one`() {
        var memo = OAuthMemo()
        let generation = memo.generation
        memo.ends(before: 1)
        memo.ended()

        memo.found(epoch: 0, in: generation)
        #expect(memo.repositoryEpoch == nil)
        memo.found(epoch: 1, in: memo.generation)
        #expect(memo.repositoryEpoch == 1)
        memo.found(epoch: 2, in: memo.generation)
        #expect(memo.repositoryEpoch == 1, "it stays the one that the session began with")
    }

    @Test func `D06 what a session has left does not count in the next one, and numbers go on`() {
        var memo = OAuthMemo()
        memo.refusedEpoch = 3
        memo.storedSession = 0
        memo.owesRemoval = true
        _ = memo.met(7, isInterrupted: false)
        memo.ends(before: 1)
        #expect(memo.isEnding && memo.mayRestore)

        memo.ended()

        #expect(!memo.isEnding && !memo.mayRestore && !memo.owesRemoval && memo.refusedEpoch == nil)
        #expect(memo.serial == 7 && memo.storedSession == 0 && memo.endedBefore == 1)
        #expect(memo.generation == 1 && memo.line == 1)
    }

    @Test func `B11 an interrupted exchange is told once`() {
        var memo = OAuthMemo()
        let told = [(1, true), (1, true), (2, false), (3, true)].map { memo.met($0, isInterrupted: $1) }
        #expect(told == [true, false, false, true])
        memo.ended()
        let isToldAgain = memo.met(3, isInterrupted: true)
        #expect(!isToldAgain)
        #expect(memo.serial == 3)
    }
}
