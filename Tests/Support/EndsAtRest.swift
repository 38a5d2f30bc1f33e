package import MuxKit
import Testing

/// An object that is kept alive and inspected at the end of its test.
package protocol InspectedAtEnd: Inspectable {}

/// Counts the resources of all objects of a test at its end (Q-11, PT-02).
///
/// Multiplexers, maps, runners, caches, downloads, batches, repositories, transports and virtual clocks are
/// inspected on their release or at the end of the test: no caller, flight, timer, listener or idle key is
/// left; tables and state machines are consistent. A folder of a journal contains no temporary file, and the
/// folder's index equals the result of a rescan.
enum EndsAtRest {
    /// The objects of a test.
    private final class Book: Inspector {
        private struct Thing: Sendable {
            weak var object: (any Inspectable)?
        }

        private struct State: Sendable {
            var things: [Thing] = []
            var kept: [any Inspectable] = []
            var faults: [String] = []
            /// The number of things that triggers the removal of released objects.
            var purgeCount = 1_000
        }

        private let state = Locked(State())

        func note(_ object: any Inspectable) {
            self.state.withLock { state in
                state.things.append(Thing(object: object))
                if object is any InspectedAtEnd { state.kept.append(object) }
                guard state.things.count > state.purgeCount else { return }
                state.things.removeAll { $0.object == nil }
                state.purgeCount = max(1_000, state.things.count * 2)
            }
        }

        func note(faults: [String]) {
            if !faults.isEmpty { self.state.withLock { $0.faults += faults } }
        }

        /// Faults at rest: a task ends a moment after its callers have their results.
        func settledFaults() async -> [String] {
            let faults = await settled {
                var faults: [String] = []
                let objects = self.state.withLock { $0.things.compactMap(\.object) }
                for object in objects { faults += await object.faults() }
                return faults
            } when: {
                $0.isEmpty
            }
            return self.state.withLock { $0.faults } + faults
        }
    }

    /// Counts the resources of all objects of `body` at its end.
    static func check(_ location: SourceLocation, _ body: () async throws -> Void) async throws {
        let book = Book()
        try await Inspection.$inspector.withValue(book) { try await body() }
        for fault in await book.settledFaults() {
            Issue.record("not at rest: \(fault)", sourceLocation: location)
        }
    }
}
