import MuxKit
import MuxTesting

/// The backend of a scheduled test, which returns increasing numbers and records the readable values.
///
/// A fence takes effect at its return: a value fetched before the call may not be read after the return.
final class ScheduledBackend: Sendable {
    private struct Fetch: Sendable {
        let generation: Int
        let deadline: Duration
    }

    private struct Book: Sendable {
        /// Running fetches by number.
        var running: [Int: Fetch] = [:]
        /// Incremented at the call and at the return of a fence.
        var generation = 0
        var openFences = 0
        /// Values up to this value may not be read, unless marked as stale.
        var staleFloor = 0
        /// Values up to this value may not be read.
        var floor = 0
    }

    private struct State: Sendable {
        var last = 0
        var books: [Int: Book] = [:]
        var violation: String?
        var fetches = 0
    }

    private let state = Locked(State())
    private let schedule: SeededExecutor
    private let timeout: Duration

    init(_ schedule: SeededExecutor, timeout: Duration) {
        self.schedule = schedule
        self.timeout = timeout
    }

    var fetches: Int { self.state.withLock { $0.fetches } }

    /// Throws a violation that a fetch has recorded.
    func check() throws {
        if let violation = self.state.withLock({ $0.violation }) { throw Violation(violation) }
    }

    /// Returns a new value or throws an error, with or without a delay.
    func fetch(_ key: Int) async throws -> Int {
        let now = self.schedule.clock.now.offset
        let number = self.state.withLock { state in
            state.last += 1
            state.fetches += 1
            let number = state.last
            var book = state.books[key] ?? Book()
            let others = book.running.values.contains { $0.generation == book.generation && now < $0.deadline }
            if others, book.openFences == 0 { state.violation = "two fetches of key \(key) run at once" }
            book.running[number] = Fetch(generation: book.generation, deadline: now + self.timeout)
            state.books[key] = book
            return number
        }
        defer { self.state.withLock { $0.books[key]?.running[number] = nil } }
        for _ in 0..<self.schedule.draw(0..<3) {
            let pause = Duration.seconds(self.schedule.draw(0..<4))
            if pause > .zero { try await self.schedule.clock.sleep(for: pause) } else { await self.schedule.pause() }
        }
        switch self.schedule.draw(0..<6) {
        case 0: throw SilenceableError(FetchFailed(call: number))
        case 1: throw FetchFailed(call: number)
        default: return number
        }
    }

    /// Calls a fence for `keys` with a value higher than all previous values, and records the floors.
    func fence(
        _ keys: Range<Int>,
        keepsStale: Bool = false,
        _ fence: (Int) async -> Void
    ) async {
        let (before, value) = self.state.withLock { state in
            for key in keys {
                state.books[key, default: Book()].generation += 1
                state.books[key, default: Book()].openFences += 1
            }
            defer { state.last += 1 }
            return (state.last, state.last + 1)
        }
        await fence(value)
        self.state.withLock { state in
            for key in keys {
                var book = state.books[key] ?? Book()
                book.generation += 1
                book.openFences -= 1
                book.staleFloor = max(book.staleFloor, before)
                if !keepsStale { book.floor = max(book.floor, before) }
                state.books[key] = book
            }
        }
    }

    /// The floors of a request for `key` that begins now.
    func floors(_ key: Int) -> (any: Int, fresh: Int) {
        self.state.withLock { ($0.books[key]?.floor ?? 0, $0.books[key]?.staleFloor ?? 0) }
    }
}
