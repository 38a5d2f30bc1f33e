import MuxKit
import MuxTesting

/// Where the fetches of a scheduled test get their values, which are numbers that only grow, and the book about what may be read.
///
/// A fence counts from its return on: what was fetched by the time that it was called may not be read after it has returned.
final class ScheduledBackend: Sendable {
    private struct Fetch: Sendable {
        let generation: Int
        let deadline: Duration
    }

    private struct Book: Sendable {
        /// The fetches that run, by number.
        var running: [Int: Fetch] = [:]
        /// Raised when a fence is called and when it has returned.
        var generation = 0
        var openFences = 0
        /// Values up to this one may not be read, unless marked as stale.
        var staleFloor = 0
        /// Values up to this one may not be read at all.
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

    /// What went wrong during a fetch, where nobody could be told.
    func check() throws {
        if let violation = self.state.withLock({ $0.violation }) { throw Violation(violation) }
    }

    /// A new value, after a while or not, or an error.
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

    /// Calls a fence for some keys, and notes what it promises; it is given a value higher than all before it.
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

    /// What may be read by a request for `key` that begins now.
    func floors(_ key: Int) -> (any: Int, fresh: Int) {
        self.state.withLock { ($0.books[key]?.floor ?? 0, $0.books[key]?.staleFloor ?? 0) }
    }
}
