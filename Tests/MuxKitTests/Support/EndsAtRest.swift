import MuxKit
import Testing

/// Checks the invariants of all multiplexers, maps, runners and stores of a test.
///
/// Each is checked when it is released or when the test has ended: no caller waits, no idle key is kept, tables and state
/// machines are consistent. For a ``Scratch`` folder: the index equals the result of a rescan, and no temporary file is left.
struct EndsAtRest: TestTrait, SuiteTrait, TestScoping {
    /// Applies to each test of a suite.
    var isRecursive: Bool { true }

    /// The objects of a test.
    private final class Book: Inspector {
        private struct Thing: Sendable {
            weak let object: (any Inspectable)?
        }

        private struct State: Sendable {
            var things: [Thing] = []
            var kept: [any Inspectable] = []
            var faults: [String] = []
            /// The number of things at which those of released objects are removed.
            var purgeCount = 1_000
        }

        private let state = Locked(State())

        func note(_ object: any Inspectable) {
            self.state.withLock { state in
                state.things.append(Thing(object: object))
                if object is Scratch { state.kept.append(object) }
                guard state.things.count > state.purgeCount else { return }
                state.things.removeAll { $0.object == nil }
                state.purgeCount = max(1_000, state.things.count * 2)
            }
        }

        func note(faults: [String]) {
            if !faults.isEmpty { self.state.withLock { $0.faults += faults } }
        }

        func faults() async -> [String] {
            var faults: [String] = []
            for object in self.state.withLock({ $0.things.compactMap(\.object) }) { faults += await object.faults() }
            return self.state.withLock { $0.faults } + faults
        }
    }

    @concurrent func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing function: @Sendable @concurrent () async throws -> Void
    ) async throws {
        let book = Book()
        try await Inspection.$inspector.withValue(book) { try await function() }
        for fault in await book.faults() { Issue.record("not at rest: \(fault)", sourceLocation: test.sourceLocation) }
    }
}

extension Trait where Self == EndsAtRest {
    /// Checks the invariants of all objects of a test.
    static var endsAtRest: EndsAtRest { EndsAtRest() }
}
