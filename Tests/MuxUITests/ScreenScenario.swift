import MuxTesting
import MuxUI

@testable import MuxKit

extension Multiplexer {
    /// The number of iterators of `values` and `states`: zero at rest.
    nonisolated var watcherCount: Int { self.core.watchers.count }

    /// The number of keys with consumers of states: zero at rest.
    nonisolated var followedCount: Int { self.core.engine.withState { $0.followed.count } }
}

extension MultiplexerMap {
    /// The number of iterators of `values` and `states`: zero at rest.
    nonisolated var watcherCount: Int { self.core.watchers.count }

    /// The number of keys with consumers of states: zero at rest.
    nonisolated var followedCount: Int { self.core.engine.withState { $0.followed.count } }
}

/// Screens that show the values of a map while the values are fetched, changed, refreshed and removed.
@MainActor
final class ScreenScenario {
    private struct Violation: Error, CustomStringConvertible { var description: String }
    private struct FetchFailed: Error {}

    /// A value of the server.
    private struct Value: Codable, Sendable {
        var key: Int
        /// The number of fetches before the fetch of the value, which counts.
        var version: Int
        /// The number of clears of the key that had begun before the fetch.
        var clears: Int
        /// The accepted changes, and the changes that only the screen shows.
        var changes: Set<Int>
    }

    /// The server, and the operations on a key.
    private struct Key: Sendable {
        var accepted: Set<Int> = []
        var lastChange = 0
        var running: Set<Int> = []
        /// Changes whose session ended: their end does not affect the next session.
        var abandoned: Set<Int> = []
        /// The number of operations that make earlier fetches outdated, and how many of them are running.
        var fences = 0
        var runningFences = 0
        var clears = 0
        /// The greatest number of a clear that has returned.
        var returnedClear = 0
    }

    private struct State: Sendable {
        var keys = [Key(), Key()]
        var version = 0
        /// The number of running ends of the session.
        var sessionEnds = 0
        var isAtRest = false
        var checks = 0
    }

    private let schedule: SeededExecutor
    private let repository: MuxRepository
    private let map: MultiplexerMap<Int, Value>
    private let lifetime: Duration
    private let activity = AppActivity()
    private let state: Locked<State>

    /// The number of comparisons of a screen with its key.
    var checkCount: Int { self.state.withLock { $0.checks } }

    init(_ schedule: SeededExecutor) {
        let state = Locked(State())
        let lifetime = Duration.seconds([0, 5, 1_000][schedule.draw(0..<3)])
        self.schedule = schedule
        self.state = state
        self.lifetime = lifetime
        self.repository = MuxRepository(store: MemoryStore(), clock: schedule.clock)
        self.map = MultiplexerMap(
            cacheKey: "Values",
            policy: MuxPolicy(timeToLive: lifetime, errorBackoff: .zero, fetchTimeout: .longest),
            repository: self.repository
        ) { key in
            var value = state.withLock { state in
                state.version += 1
                return Value(key: key, version: state.version, clears: state.keys[key].clears, changes: [])
            }
            let isEarly = schedule.draw(0..<2) == 0
            if isEarly { value.changes = state.withLock { $0.keys[key].accepted } }
            try await schedule.clock.sleep(for: .milliseconds(schedule.draw(0..<500)))
            if !isEarly { value.changes = state.withLock { $0.keys[key].accepted } }
            guard state.withLock({ $0.isAtRest }) || schedule.draw(0..<6) > 0 else { throw FetchFailed() }
            return value
        }
    }

    func play() async throws {
        let permanent = [self.screen(0), self.screen(1)]
        try await withThrowingTaskGroup { group in
            for screen in permanent { group.addTask { await screen.follow() } }
            try await self.showAndOperate()
            self.state.withLock { $0.isAtRest = true }
            // Failed fetches are repeated.
            self.activity.reconnected()
            try await self.schedule.clock.sleep(for: .seconds(60))
            for (key, screen) in permanent.enumerated() { try await self.checkAtRest(screen, key) }
            group.cancelAll()
            try await group.waitForAll()
        }
        try await self.schedule.clock.sleep(for: .seconds(5))
        guard self.map.watcherCount == 0 else { throw Violation(description: "a watcher is left") }
    }

    private func showAndOperate() async throws {
        try await withThrowingTaskGroup { group in
            for _ in 0..<self.schedule.draw(1..<4) { group.addTask { try await self.showScreens() } }
            for _ in 0..<self.schedule.draw(1..<3) { group.addTask { try await self.operate() } }
            try await group.waitForAll()
        }
    }

    // MARK: - Screens

    /// Shows a screen, hides the screen, and shows the same or another screen.
    private func showScreens() async throws {
        var (screen, key) = (self.screen(0), 0)
        for _ in 0..<self.schedule.draw(1..<4) {
            if self.schedule.draw(0..<2) == 0 {
                key = self.schedule.draw(0..<2)
                screen = self.screen(key)
            }
            try await self.show(screen, key)
            guard !screen.isLoading else { throw Violation(description: "a hidden screen loads") }
            try await self.pause()
            try self.check(screen, key)
        }
    }

    private func screen(_ key: Int) -> ObservedValue<Value> {
        let delay = Duration.milliseconds(self.schedule.draw(0..<2) * 150)
        return self.map.observed(key: key, loadingDelay: delay, activity: self.activity)
    }

    private func show(_ screen: ObservedValue<Value>, _ key: Int) async throws {
        try await withThrowingTaskGroup { group in
            group.addTask { await screen.follow() }
            var version = 0
            for _ in 0..<self.schedule.draw(1..<6) {
                try await self.pause()
                let shown = try self.check(screen, key)
                guard shown >= version || shown == 0 else { throw Violation(description: "\(shown) after \(version)") }
                version = max(version, shown)
                if self.schedule.draw(0..<4) == 0 { try await self.reload(screen, key) }
            }
            group.cancelAll()
            try await group.waitForAll()
        }
    }

    /// Reloads a screen; on return, the screen shows the outcome.
    private func reload(_ screen: ObservedValue<Value>, _ key: Int) async throws {
        let (version, fences, isAlone) = self.state.withLock { state in
            state.keys[key].fences += 1
            state.keys[key].runningFences += 1
            return (state.version, state.keys[key].fences, state.keys[key].runningFences == 1)
        }
        await screen.reload()
        let shown = try self.check(screen, key)
        // Another fence makes the fetch outdated, and during a change the screen shows an earlier value.
        let isUndisturbed = self.state.withLock { state in
            state.keys[key].runningFences -= 1
            return isAlone && state.keys[key].fences == fences
        }
        guard isUndisturbed else { return }
        guard screen.problem != nil || shown > version else {
            throw Violation(description: "a reload shows \(shown) of before \(version)")
        }
    }

    /// Compares a screen with its key.
    ///
    /// - Returns: The version of the shown value; 0 without a value.
    @discardableResult
    private func check(_ screen: ObservedValue<Value>, _ key: Int) throws -> Int {
        let clear = self.state.withLock { state in
            state.checks += 1
            return state.keys[key].returnedClear
        }
        guard let value = screen.value else { return 0 }
        guard value.key == key, screen.entry?.value.version == value.version, case .value = screen.phase else {
            throw Violation(description: "the screen of \(key) shows \(value)")
        }
        guard value.clears >= clear else {
            throw Violation(description: "after clear \(clear), the screen shows \(value)")
        }
        return value.version
    }

    /// A screen of a value that does not change any more shows the server's value.
    private func checkAtRest(_ screen: ObservedValue<Value>, _ key: Int) async throws {
        // After a clear, a screen sends no request.
        if screen.value == nil, self.state.withLock({ $0.keys[key].clears > 0 }) { await screen.reload() }
        try self.check(screen, key)
        let (accepted, abandoned) = self.state.withLock { ($0.keys[key].accepted, $0.keys[key].abandoned) }
        guard let value = screen.value, screen.problem == nil, value.changes.isSubset(of: accepted),
            accepted.subtracting(abandoned).isSubset(of: value.changes)
        else { throw Violation(description: "at rest: \(screen.phase), the server has \(accepted)") }
        guard self.lifetime > .seconds(60) else { return }
        // A screen keeps the value after `clearMemory`.
        let isCurrent = value.version == self.map.cachedValue(key: key)?.version ?? value.version
        guard isCurrent, !screen.isStale, !screen.isLoading else {
            throw Violation(description: "at rest: stale \(screen.isStale), loading \(screen.isLoading)")
        }
    }

    private func pause() async throws {
        try await self.schedule.clock.sleep(for: .milliseconds(self.schedule.draw(0..<1_000)))
    }

    // MARK: - Operations

    private func operate() async throws {
        for _ in 0..<self.schedule.draw(1..<10) {
            let key = self.schedule.draw(0..<2)
            switch self.schedule.draw(0..<9) {
            case 0:
                self.state.withLock { $0.keys[key].fences += 1 }
                self.map.refresh(key: key)
            case 1: await self.clear([key]) { await self.map.clear(key: key) }
            case 2:
                self.state.withLock { state in
                    state.sessionEnds += 1
                    for key in 0..<2 { state.keys[key].abandoned.formUnion(state.keys[key].running) }
                }
                await self.clear([0, 1]) { await self.repository.clearAll() }
                self.state.withLock { $0.sessionEnds -= 1 }
            case 3: self.map.clearMemory()
            case 4: _ = await self.repository.saveAll()
            case 5: _ = try? await self.map.request(key: key)
            case 6: self.activity.reconnected()
            default: try await self.change(key)
            }
            try await self.pause()
        }
    }

    private func clear(_ keys: [Int], _ clear: () async -> Void) async {
        let numbers = self.state.withLock { state in
            for key in keys {
                state.keys[key].clears += 1
                state.keys[key].fences += 1
                state.keys[key].runningFences += 1
            }
            return state.keys.map(\.clears)
        }
        await clear()
        self.state.withLock { state in
            for key in keys {
                state.keys[key].returnedClear = max(state.keys[key].returnedClear, numbers[key])
                state.keys[key].runningFences -= 1
            }
        }
    }

    /// Changes a value, and commits or undoes the change.
    private func change(_ key: Int) async throws {
        let id = self.state.withLock { state in
            state.keys[key].lastChange += 1
            let id = state.keys[key].lastChange
            state.keys[key].running.insert(id)
            if state.sessionEnds > 0 { state.keys[key].abandoned.insert(id) }
            state.keys[key].fences += 1
            state.keys[key].runningFences += 1
            return id
        }
        let change = self.map.change(key: key) { $0.changes.insert(id) }
        try await self.pause()
        if self.schedule.draw(0..<2) == 0 {
            self.state.withLock { _ = $0.keys[key].accepted.insert(id) }
            try await self.pause()
            change.commit()
        } else {
            change.undo()
        }
        self.state.withLock { state in
            state.keys[key].running.remove(id)
            state.keys[key].fences += 1
            state.keys[key].runningFences -= 1
        }
    }
}
