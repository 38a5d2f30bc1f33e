import Foundation
import MuxKit
import MuxOutbox
import MuxTestSupport
import MuxTesting

/// An app with two values, an outbox and a screen, which is killed, signed out, and offline at times.
///
/// The value of a key is the list of its applied changes, so a change that is shown twice, or is missing, is
/// visible.
final class OutboxScenario: Sendable {
    private struct Violation: Error, CustomStringConvertible { var description: String }

    private struct Change: Codable, Sendable {
        var number: Int
        var key: Int
    }

    private struct NetworkFailure: RetryableError, ConnectivityError, UnsentError {
        var isUnsentRequest: Bool?
        var retryAdvice: RetryAdvice { .transient }
    }

    private struct Refused: RetryableError {
        var retryAdvice: RetryAdvice { RetryAdvice(isTransient: false, status: 409) }
    }

    /// The server, and the expectations of the test.
    private struct State: Sendable {
        var values = [[Int](), [Int]()]
        var repliesByKey: [String: Bool] = [:]
        var isOnline = true
        var isAtRest = false
        /// The session of the signed-in user, and the sessions in which the changes were added.
        var session = 0
        var sessions: [Int: Int] = [:]
        /// The changes whose `add` has returned, in the order of the calls.
        var added: [Int] = []
        /// The keys of the changes.
        var keys: [Int: Int] = [:]
        var refused: Set<Int> = []
        /// The changes that the app discarded, or a sign-out dropped.
        var removed: Set<Int> = []
        var last = 0
        var violation: String?
        var steps = 0
        var applied = 0
    }

    /// A process.
    private final class App: Sendable {
        let repository: MuxRepository
        let map: MultiplexerMap<Int, [Int]>
        let outbox: MuxOutbox<Change>
        let isDead: Locked<Bool>

        init(_ scenario: OutboxScenario) {
            let (schedule, state) = (scenario.schedule, scenario.state)
            let isDead = Locked(false)
            let fileSystem = RecordingFileSystem { _, _ in isDead.withLock { $0 } ? .refuse(EIO) : nil }
            self.isDead = isDead
            self.repository = MuxRepository(store: scenario.store, clock: schedule.clock)
            self.map = MultiplexerMap(
                policy: MuxPolicy(timeToLive: .seconds(1_000), errorBackoff: .zero, fetchTimeout: .longest),
                repository: self.repository
            ) { key in
                let early = state.withLock { $0.values[key] }
                let isEarly = schedule.draw(0..<2) == 0
                try await schedule.clock.sleep(for: .milliseconds(schedule.draw(0..<400)))
                guard state.withLock({ $0.isOnline }) else { throw NetworkFailure() }
                return isEarly ? early : state.withLock { $0.values[key] }
            }
            // swift-format-ignore: OnlyOneTrailingClosureArgument
            self.outbox = MuxOutbox<Change>(
                "Changes",
                RepositoryChoice(given: self.repository, ofDependency: nil),
                directory: scenario.scratch.folder,
                policy: MuxOutboxPolicy(retry: .fixed(.seconds(5), maxAttempts: .max, jitter: .none)),
                wakingOn: [],
                fileSystem: fileSystem,
                lease: scenario.lease,
                order: { "\($0.key)" }
            ) { change, begin, _ in
                // The token of the user who is signed in now.
                let token = state.withLock { $0.session }
                for _ in 0..<schedule.draw(0..<3) { await schedule.pause() }
                let attempt = try await begin()
                try await scenario.receive(change, attempt.idempotencyKey, token)
            }
            .overlay(self.map, key: { $0.key }) { change, value in value.append(change.number) }
        }
    }

    private let schedule: SeededExecutor
    private let scratch = Scratch(isInspected: false)
    private let store = MemoryStore()
    private let lease: MemoryLease
    private let state = Locked(State())

    /// The number of actions, and of applied changes.
    var counts: (steps: Int, applied: Int) { self.state.withLock { ($0.steps, $0.applied) } }

    init(_ schedule: SeededExecutor) {
        self.schedule = schedule
        self.lease = MemoryLease(schedule.clock)
    }

    // MARK: - The server

    private func receive(_ change: Change, _ key: String, _ token: Int) async throws {
        let time = Duration.milliseconds(self.schedule.draw(0..<300))
        try? await self.schedule.clock.sleep(for: time)
        let (isOnline, isAtRest) = self.state.withLock { ($0.isOnline, $0.isAtRest) }
        guard isOnline else { throw NetworkFailure(isUnsentRequest: true) }
        guard isAtRest || self.schedule.draw(0..<8) > 0 else { throw NetworkFailure() }
        let isConflict = !isAtRest && self.schedule.draw(0..<10) == 0
        let isConfirmed = self.state.withLock { state -> Bool in
            if let reply = state.repliesByKey[key] { return reply }
            state.repliesByKey[key] = !isConflict
            guard !isConflict else {
                state.refused.insert(change.number)
                return false
            }
            if let session = state.sessions[change.number], session != token {
                state.violation = "change \(change.number) of session \(session) was sent in session \(token)"
            }
            if state.values[change.key].contains(change.number) {
                state.violation = "change \(change.number) was applied twice"
            }
            state.values[change.key].append(change.number)
            state.applied += 1
            return true
        }
        try? await self.schedule.clock.sleep(for: .milliseconds(self.schedule.draw(0..<300)))
        guard isAtRest || self.schedule.draw(0..<8) > 0 else { throw NetworkFailure() }
        if !isConfirmed { throw Refused() }
    }

    // MARK: - The app

    func play() async throws {
        var app = App(self)
        for _ in 0..<self.schedule.draw(2..<12) {
            app = try await self.act(app)
            for _ in 0..<self.schedule.draw(0..<4) { await self.schedule.pause() }
            try self.check(app)
        }
        try await self.end(app)
    }

    private func act(_ app: App) async throws -> App {
        self.state.withLock { $0.steps += 1 }
        switch self.schedule.draw(0..<16) {
        case 0..<5: try await self.add(app)
        case 5..<8: _ = try? await app.map.request(key: self.schedule.draw(0..<2))
        case 8: self.state.withLock { $0.isOnline.toggle() }
        case 9: return try await self.killed(app)
        case 10: await self.signOut(app)
        case 11: app.map.refresh(key: self.schedule.draw(0..<2))
        case 12:
            // The app shows a failed change, and the user discards the change.
            for change in await app.outbox.pending where change.hasFailed { try await self.discard(change, app) }
        case 13: app.outbox.retryNow()
        default: try await self.schedule.clock.sleep(for: .milliseconds(self.schedule.draw(0..<4_000)))
        }
        return app
    }

    private func add(_ app: App) async throws {
        let key = self.schedule.draw(0..<2)
        let number = self.state.withLock { state in
            state.last += 1
            state.sessions[state.last] = state.session
            return state.last
        }
        try await app.outbox.add(Change(number: number, key: key))
        self.state.withLock { state in
            state.added.append(number)
            state.keys[number] = key
        }
    }

    private func discard(_ change: MuxOutbox<Change>.PendingChange, _ app: App) async throws {
        try await app.outbox.discard(change.id)
        self.state.withLock { state in
            if let number = change.change?.number { state.removed.insert(number) }
        }
    }

    private func killed(_ app: App) async throws -> App {
        app.isDead.withLock { $0 = true }
        let next = App(self)
        next.outbox.start()
        return next
    }

    private func signOut(_ app: App) async {
        self.state.withLock { state in
            state.removed.formUnion(state.added)
        }
        await app.repository.signOut()
        self.state.withLock { $0.session += 1 }
    }

    // MARK: - Checks

    private func fail(_ text: String) throws { throw Violation(description: text) }

    /// The values of the screen have no change twice, and miss no change.
    private func check(_ app: App) throws {
        let state = self.state.withLock { $0 }
        if let violation = state.violation { try self.fail(violation) }
        for key in 0..<2 {
            guard let shown = app.map.cachedEntry(key: key)?.value else { continue }
            if Set(shown).count != shown.count { try self.fail("key \(key) shows a change twice: \(shown)") }
            let missing = state.added.filter { number in
                state.keys[number] == key && !shown.contains(number)
                    && !state.refused.contains(number) && !state.removed.contains(number)
            }
            if !missing.isEmpty { try self.fail("key \(key) hides \(missing): \(shown)") }
        }
    }

    private func end(_ app: App) async throws {
        self.state.withLock { state in
            state.isAtRest = true
            state.isOnline = true
        }
        app.outbox.retryNow()
        // Longer than the lease of a killed process.
        try await self.schedule.clock.sleep(for: .seconds(200))
        let pending = await app.outbox.pending
        if let change = pending.first(where: { !$0.hasFailed }) { try self.fail("a change is not sent: \(change)") }
        for key in 0..<2 {
            let shown = try await app.map.request(key: key)
            let (values, removed) = self.state.withLock { ($0.values[key], $0.removed) }
            // A request of an ended session may arrive after the requests and fetches of the next session.
            let (order, shownOrder) = (
                values.filter { !removed.contains($0) }, shown.filter { !removed.contains($0) }
            )
            if shownOrder != order || !Set(shown).isSubset(of: values) {
                try self.fail("key \(key) shows \(shown) instead of \(values)")
            }
            if order != order.sorted() { try self.fail("key \(key) has a wrong order: \(values)") }
        }
        try self.check(app)
        let state = self.state.withLock { $0 }
        let applied = Set(state.values.flatMap { $0 })
        let known = applied.union(state.refused).union(state.removed)
        let lost = state.added.filter { !known.contains($0) }
        if !lost.isEmpty { try self.fail("lost: \(lost)") }
        let failed = Set(pending.compactMap { $0.change?.number })
        let expected = state.refused.subtracting(state.removed)
        if failed != expected { try self.fail("listed: \(failed), refused: \(expected)") }
        _ = await app.repository.signOut()
        let files = FileManager.default.enumerator(atPath: self.scratch.folder.path)?.allObjects as? [String] ?? []
        for file in files {
            let text = try? String(contentsOf: self.scratch.folder.appending(path: file), encoding: .utf8)
            if text?.contains("\"number\"") ?? false { try self.fail("a change is left on disk") }
        }
    }
}

/// A lease in memory.
final class MemoryLease: MuxLease {
    private struct State: Sendable {
        var owner: String?
        var generation: UInt64 = 0
        var end = Moment.distantPast
    }

    private let time: TimeSource
    private let state = Locked(State())

    init(_ clock: some Clock<Duration>) { self.time = TimeSource(clock) }

    func take(as owner: String, for duration: Duration) async throws -> MuxLeaseTerm {
        let now = self.time.now
        return self.state.withLock { state in
            if state.owner == nil || state.owner == owner || state.end <= now {
                if state.owner != owner { state.generation += 1 }
                state.owner = owner
                state.end = now.advanced(by: duration)
            }
            let remaining = max(.zero, state.end.duration(since: now))
            return MuxLeaseTerm(owner: state.owner ?? owner, generation: state.generation, remaining: remaining)
        }
    }

    func giveBack(_ term: MuxLeaseTerm) async throws {
        self.state.withLock { state in
            if state.owner == term.owner, state.generation == term.generation { state.owner = nil }
        }
    }

    func wait(for term: MuxLeaseTerm) async throws { try await self.time.sleep(for: term.remaining) }
}
