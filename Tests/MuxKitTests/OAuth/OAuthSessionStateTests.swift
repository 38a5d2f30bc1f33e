import MuxKit
import MuxTestSupport
import Testing

/// The session state of a token manager, without a token manager.
@Suite(.standard)
struct OAuthMemoTests {
    @Test func `D06 a session number that was looked up before a sign-out is not used for the next session`() {
        var sessionState = OAuthSessionState()
        let sessionID = sessionState.sessionID
        sessionState.beginSignOut(before: 1)
        sessionState.endSession()

        sessionState.recordRepositoryEpoch(0, readIn: sessionID)
        #expect(sessionState.repositoryEpoch == nil)
        sessionState.recordRepositoryEpoch(1, readIn: sessionState.sessionID)
        #expect(sessionState.repositoryEpoch == 1)
        sessionState.recordRepositoryEpoch(2, readIn: sessionState.sessionID)
        #expect(sessionState.repositoryEpoch == 1, "it stays the one that the session began with")
    }

    @Test func `D06 the state of an ended session does not count in the next, and numbers continue`() {
        var sessionState = OAuthSessionState()
        sessionState.refusedEpoch = 3
        sessionState.storedSession = 0
        sessionState.owesRemoval = true
        _ = sessionState.noteSerial(7, isInterrupted: false)
        sessionState.beginSignOut(before: 1)
        #expect(sessionState.isEnding && sessionState.mayRestore)

        sessionState.endSession()

        #expect(
            !sessionState.isEnding && !sessionState.mayRestore && !sessionState.owesRemoval
                && sessionState.refusedEpoch == nil
        )
        #expect(sessionState.serial == 7 && sessionState.storedSession == 0 && sessionState.endedBefore == 1)
        #expect(sessionState.sessionID == 1 && sessionState.tokenFamily == 1)
    }

    @Test func `B11 an interrupted exchange is reported once`() {
        var sessionState = OAuthSessionState()
        let told = [(1, true), (1, true), (2, false), (3, true)].map { sessionState.noteSerial($0, isInterrupted: $1) }
        #expect(told == [true, false, false, true])
        sessionState.endSession()
        let isToldAgain = sessionState.noteSerial(3, isInterrupted: true)
        #expect(!isToldAgain)
        #expect(sessionState.serial == 3)
    }
}
