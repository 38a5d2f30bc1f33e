import Foundation
import MuxKit
import MuxValkey
import Synchronization

/// A store that reports the calls of its repository, with barriers for the order of messages.
///
/// **Barrier.** ``barrier(within:)`` makes the engine send a message to this machine, by ending a claim of a
/// name that has no other use, and waits until the repository receives the message. Messages arrive in the
/// order in which their changes took effect, and the repository requests the next message after it has
/// handled the last. After a barrier, every change that took effect in the engine before the barrier began
/// has therefore taken effect in this machine, independent of times.
///
/// **Disturbances.** After a failed or slow call, the repository does not use the store for a while. The call
/// is counted before the repository receives its result: if two reads of the count are equal, the repository
/// could use the store in between.
final class WatchedStore: MuxSharedStore {
    /// An event of the repository, which ``Machine`` reports and counts.
    enum Event: Sendable {
        /// The repository is about to receive a change, or has handled the change.
        case told(MuxShared.Change, isDone: Bool)
        /// A put has ended; `isStored` is `nil` if the result is unknown.
        case put(MuxShared.Name, Data, since: UInt64, isStored: Bool?)
        /// A call failed, or was so slow that the repository may have abandoned the call.
        case disturbed(String)
    }

    private struct State {
        var barriers: [String: CheckedContinuation<Bool, Never>] = [:]
        /// The clears of the repository without confirmation by the engine, with their numbers.
        var unconfirmed: [MuxShared.Scope: Int] = [:]
        var lastClear = 0
        /// The start times of the calls in progress.
        var calls: [Int: ContinuousClock.Instant] = [:]
        var lastCall = 0
        /// The calls that failed or were slow.
        var disturbances = 0
        /// The number of reports to the repository that it may have missed changes.
        var gaps = 0
    }

    private let store: MuxValkey
    private let budget: Duration
    private let tell: @Sendable (Event) -> Void
    private let state = Mutex(State())

    /// The domain of the names of barriers.
    private static let barrierDomain = "Barrier"

    init(_ store: MuxValkey, budget: Duration, tell: @escaping @Sendable (Event) -> Void) {
        self.store = store
        self.budget = budget
        self.tell = tell
    }

    /// Nanoseconds of the system's monotonic clock, which all processes share.
    static var now: UInt64 { DispatchTime.now().uptimeNanoseconds }

    // MARK: - Barriers

    /// Waits until this machine has received every change that took effect in the engine before the call.
    ///
    /// - Returns: Whether the machine received every change within the limit.
    func barrier(within limit: Duration) async -> Bool {
        let end = ContinuousClock.now + limit
        repeat {
            let nonce = UUID().uuidString
            let name = MuxShared.Name(MuxStoreKey(domain: Self.barrierDomain, key: nonce))
            if let claim = try? await self.store.claim(name, maximumAge: nil, digest: nil, for: .seconds(5)),
                case .granted(let ticket, _) = claim, await self.hears(nonce, ticket, before: end)
            {
                return true
            }
            try? await Task.sleep(for: .milliseconds(10))
        } while ContinuousClock.now < end
        return false
    }

    private func hears(_ nonce: String, _ ticket: MuxShared.Ticket, before end: ContinuousClock.Instant) async -> Bool {
        await withCheckedContinuation { continuation in
            self.state.withLock { $0.barriers[nonce] = continuation }
            Task {
                if (try? await self.store.giveUp(ticket)) == nil { self.barrierEnded(nonce, false) }
                try? await Task.sleep(until: end)
                self.barrierEnded(nonce, false)
            }
        }
    }

    private func barrierEnded(_ nonce: String, _ isPassed: Bool) {
        self.state.withLock { $0.barriers.removeValue(forKey: nonce) }?.resume(returning: isPassed)
    }

    private func told(_ change: MuxShared.Change) {
        switch change {
        case .released(let name) where name.domain == Self.barrierDomain: self.barrierEnded(name.key ?? "", true)
        case .unknown, .emptied:
            // The message of a barrier may be among the missed messages.
            let barriers = self.state.withLock { state in
                defer { state.barriers = [:] }
                state.gaps += 1
                return state.barriers.values
            }
            for barrier in barriers { barrier.resume(returning: false) }
            self.tell(.told(change, isDone: false))
        default: self.tell(.told(change, isDone: false))
        }
    }

    // MARK: - Clears

    /// The repository is about to receive a request for a clear.
    func willClear(_ scope: MuxShared.Scope) {
        self.state.withLock { state in
            state.lastClear += 1
            state.unconfirmed[scope] = state.lastClear
        }
    }

    /// The clears without confirmation by the engine.
    var unconfirmed: [MuxShared.Scope] { self.state.withLock { Array($0.unconfirmed.keys) } }

    // MARK: - MuxSharedStore

    func changes() -> AsyncStream<MuxShared.Change> {
        let changes = self.store.changes()
        let last = Shared<MuxShared.Change?>(nil)
        return AsyncStream {
            // The repository requests the next change.
            if let change = last.value { self.tell(.told(change, isDone: true)) }
            // All iterators of a stream share its buffer.
            var iterator = changes.makeAsyncIterator()
            guard let change = await iterator.next() else { return nil }
            last.value = change
            self.told(change)
            return change
        }
    }

    private func watched<R>(_ what: String, _ call: () async throws -> R) async throws -> R {
        let start = ContinuousClock.now
        let number = self.state.withLock { state in
            state.lastCall += 1
            state.calls[state.lastCall] = start
            return state.lastCall
        }
        do {
            let result = try await call()
            let taken = ContinuousClock.now - start
            self.callEnded(number, taken > self.slow ? "\(what) took \(taken)" : nil)
            return result
        } catch {
            self.callEnded(number, "\(what): \(error)")
            throw error
        }
    }

    private func callEnded(_ number: Int, _ disturbance: String?) {
        self.state.withLock { state in
            state.calls[number] = nil
            if disturbance != nil { state.disturbances += 1 }
        }
        if let disturbance { self.tell(.disturbed(disturbance)) }
    }

    /// The duration of a slow call: well below the budget, because the repository measures slightly more.
    private var slow: Duration { self.budget / 2 }

    /// The number of failed or slow calls, without and with the slow calls in progress.
    var disturbances: (ended: Int, all: Int) {
        let now = ContinuousClock.now
        return self.state.withLock { state in
            (state.disturbances, state.disturbances + state.calls.values.count { now - $0 > self.slow })
        }
    }

    /// The number of reports to the repository that it may have missed changes.
    var gaps: Int { self.state.withLock { $0.gaps } }

    func load(_ names: [MuxShared.Name]) async throws -> [MuxShared.Entry?] {
        try await self.watched("load") { try await self.store.load(names) }
    }

    func claim(
        _ name: MuxShared.Name,
        maximumAge: Duration?,
        digest: String?,
        for duration: Duration
    ) async throws -> MuxShared.Claim {
        try await self.watched("claim") {
            try await self.store.claim(name, maximumAge: maximumAge, digest: digest, for: duration)
        }
    }

    func put(_ entry: MuxShared.Entry, with ticket: MuxShared.Ticket) async throws -> Bool {
        let start = Self.now
        let payload = entry.payload ?? Data()
        do {
            let isStored = try await self.watched("put") { try await self.store.put(entry, with: ticket) }
            self.tell(.put(ticket.name, payload, since: start, isStored: isStored))
            return isStored
        } catch {
            self.tell(.put(ticket.name, payload, since: start, isStored: nil))
            throw error
        }
    }

    func giveUp(_ ticket: MuxShared.Ticket) async throws {
        try await self.watched("giveUp") { try await self.store.giveUp(ticket) }
    }

    func invalidate(_ scopes: [MuxShared.Scope]) async throws {
        let numbers = self.state.withLock { $0.unconfirmed }
        try await self.watched("invalidate") { try await self.store.invalidate(scopes) }
        self.state.withLock { state in
            for scope in scopes where state.unconfirmed[scope] == numbers[scope] { state.unconfirmed[scope] = nil }
        }
    }
}
