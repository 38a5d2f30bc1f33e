import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// The trait of the suites of this package.
@Suite(.standard)
struct StandardTraitTests {
    private struct Failure: Error {}

    @Test func `HS-08 a test that hangs is reported and cancelled at its limit`() async throws {
        let gate = Gate<Void>()
        let isCancelled = Locked(false)
        try await withKnownIssue {
            try await StandardTrait.limit(to: .milliseconds(1), #_sourceLocation) {
                do {
                    try await gate.pass()
                } catch {
                    isCancelled.withLock { $0 = error is CancellationError }
                }
            }
        } matching: { issue in
            "\(issue)".contains("did not end within")
        }
        #expect(isCancelled.withLock { $0 })
    }

    @Test func `HS-08 a test within its limit ends with its own error`() async {
        await #expect(throws: Failure.self) {
            try await StandardTrait.limit(to: .seconds(3_600), #_sourceLocation) { throw Failure() }
        }
    }
}
