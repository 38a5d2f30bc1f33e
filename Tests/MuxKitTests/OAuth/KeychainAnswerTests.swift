import MuxKit
import MuxTestSupport
import Testing

/// The interpretation of keychain statuses, without a keychain.
@Suite(.standard)
struct KeychainAnswerTests {
    private enum Call { case update, add }

    /// The keychain calls for a series of statuses, and the final status.
    private static func outcome(_ answers: [Int32]) -> (calls: [Call], status: Int32) {
        var calls: [Call] = []
        func status(of call: Call) -> Int32 {
            calls.append(call)
            return calls.count <= answers.count ? answers[calls.count - 1] : .max
        }
        let status = KeychainAnswer.replace {
            status(of: .update)
        } add: {
            status(of: .add)
        }
        return (calls, status)
    }

    @Test func `CO-32 an item is updated, or added, or updated after a race`() {
        let (success, absent, duplicate) =
            (KeychainAnswer.success, KeychainAnswer.itemNotFound, KeychainAnswer.duplicateItem)
        let cases: [([Int32], [Call])] = [
            ([success], [.update]),
            ([absent, success], [.update, .add]),
            ([absent, duplicate, success], [.update, .add, .update]),
            ([absent, duplicate, absent, success], [.update, .add, .update, .add]),
        ]
        for (answers, calls) in cases {
            let outcome = Self.outcome(answers)
            #expect(outcome.calls == calls && outcome.status == success, "\(answers)")
        }
    }

    @Test func `CO-32 a race that never ends is an error`() {
        let answers = (0..<100).map { $0 % 2 == 0 ? KeychainAnswer.itemNotFound : KeychainAnswer.duplicateItem }

        let outcome = Self.outcome(answers)

        #expect(outcome.calls.count < 10 && outcome.status == KeychainAnswer.duplicateItem)
        #expect(Self.outcome([KeychainAnswer.duplicateItem]) == ([.update], KeychainAnswer.duplicateItem))
    }

    @Test(arguments: [KeychainAnswer.interactionNotAllowed, KeychainAnswer.missingEntitlement, -50, 1, .min])
    func `CO-32 any other status is an error that contains the status number`(status: Int32) {
        #expect(Self.outcome([status]) == ([.update], status))
        #expect(Self.outcome([KeychainAnswer.itemNotFound, status]) == ([.update, .add], status))
        #expect(KeychainAnswer.words(for: status).contains("\(status)"))
    }

    @Test func `CO-32 the error of a missing entitlement names the remedies`() {
        let words = KeychainAnswer.words(for: -34_018)
        for part in ["-34018", "keychain access group", ".protectedFile(named:)"] { #expect(words.contains(part)) }
    }

    @Test func `CO-32 the standard store is the protected file on platforms with a durable folder`() {
        #if !os(tvOS)
        let store: any TokenStore = .standard(named: "session")
        #expect(store is ProtectedFileTokenStore)
        #endif
    }
}
