import Foundation
import MuxKit
import Synchronization

/// A machine's calls of the origin, and the check that their number does not exceed the number without a
/// shared store.
///
/// **Causes.** A machine calls for a key once at first. A further call needs a cause since the start of the
/// last call that makes the machine forget the value: a clear by this machine, a reported clear by another
/// machine, changes that the machine may have missed, a refused put, or a failed call or request. A machine
/// without a shared store calls after each clear that it hears of in some other way. The documentation
/// permits "may have missed" in addition: a value that is absent from the store after an outage is fetched
/// once more.
///
/// A request that began before the last cause may also call. Without a shared store, the call of such a
/// request began before the cause, and its value is not kept. With a shared store, the request may have
/// waited for the store, and calls after a later request. If the value of such a request is not kept, because
/// the cause came just before the call, the next request calls.
///
/// A cause is noted before and after it takes effect, because calls may begin in between.
final class OriginCalls: Sendable {
    private struct KeyState {
        var hasCalled = false
        var isForgotten = true
        var causes = 0
        /// Whether the next request costs a call of a machine without a shared store.
        var isForgottenAlone = true
        /// The waiting requests: the time of their start, and the number of causes at that time.
        var requests: [Int: (began: ContinuousClock.Instant, causes: Int)] = [:]
    }

    private struct State {
        var keys: [Int: KeyState] = [:]
        var counts = Counts()
        var waiting: [Int: CheckedContinuation<Place, any Error>] = [:]
        var lastNumber = 0
    }

    /// The counts of a machine.
    struct Counts: Sendable {
        var calls = 0
        /// The number of calls for the same requests and clears without a shared store.
        var alone = 0
        /// Calls of the store that failed, or were so slow that the repository may have abandoned them; see
        /// ``WatchedStore/disturbances``.
        var disturbances = 0
    }

    private let connection: LineConnection
    private let state = Mutex(State())

    init(_ connection: LineConnection) { self.connection = connection }

    var counts: Counts { self.state.withLock { $0.counts } }

    // MARK: - Calls

    func fetch(_ key: Int) async throws -> Place {
        let (number, isTooMuch) = self.state.withLock { state in
            let now = ContinuousClock.now
            state.lastNumber += 1
            state.counts.calls += 1
            var known = state.keys[key] ?? KeyState()
            // A request that has timed out may not have been reported yet.
            let mayCall = known.requests.values.contains {
                now - $0.began >= Times.fetchTimeout || $0.causes < known.causes
            }
            let isTooMuch = known.hasCalled && !known.isForgotten && !mayCall && !Keys.brief.contains(key)
            (known.hasCalled, known.isForgotten) = (true, false)
            state.keys[key] = known
            return (state.lastNumber, isTooMuch)
        }
        if isTooMuch { self.connection.send("violation key \(key) is called for again though nothing has happened") }
        do {
            let place = try await withTaskCancellationHandler {
                try await withCheckedThrowingContinuation { continuation in
                    self.state.withLock { $0.waiting[number] = continuation }
                    self.connection.send("fetch \(number) \(key)")
                    if Task.isCancelled { self.answered(number, .failure(CancellationError())) }
                }
            } onCancel: {
                self.answered(number, .failure(CancellationError()))
            }
            // A value that arrives too late is dropped.
            if Task.isCancelled { self.forgets([key]) }
            return place
        } catch {
            self.forgets([key])
            throw error
        }
    }

    func answered(_ number: Int, _ result: Result<Place, any Error>) {
        self.state.withLock { $0.waiting.removeValue(forKey: number) }?.resume(with: result)
    }

    // MARK: - Causes

    /// A request begins; returns the number for ``requestEnded(_:_:_:)``.
    func requestBegins(_ key: Int) -> Int {
        self.state.withLock { state in
            state.lastNumber += 1
            var known = state.keys[key] ?? KeyState()
            if known.isForgottenAlone { state.counts.alone += 1 }
            known.isForgottenAlone = false
            known.requests[state.lastNumber] = (.now, known.causes)
            state.keys[key] = known
            return state.lastNumber
        }
    }

    /// The result of a request.
    enum Answer {
        case value
        /// A value that a fence has kept out of memory.
        case fencedValue
        case failure
    }

    func requestEnded(_ number: Int, _ key: Int, _ answer: Answer) {
        self.state.withLock { state in
            let request = state.keys[key]?.requests.removeValue(forKey: number)
            let isForgotten =
                switch answer {
                case .value: false
                case .fencedValue: request?.causes != state.keys[key]?.causes
                case .failure: true
                }
            if isForgotten { state.keys[key]?.isForgotten = true }
        }
    }

    /// Something makes the machine forget keys.
    ///
    /// - Parameters:
    ///   - keys: The forgotten keys.
    ///   - alsoAlone: Whether a machine without a shared store would also forget the keys.
    func forgets(_ keys: some Sequence<Int>, alsoAlone: Bool = false) {
        self.state.withLock { state in
            for key in keys {
                state.keys[key, default: KeyState()].isForgotten = true
                state.keys[key, default: KeyState()].causes += 1
                if alsoAlone { state.keys[key, default: KeyState()].isForgottenAlone = true }
            }
        }
    }

    // MARK: - Events

    func happened(_ event: WatchedStore.Event) {
        switch event {
        case .told(let change, let isDone):
            switch change {
            case .invalidated(let scope):
                self.forgets(Keys.of(scope), alsoAlone: !isDone)
                if !isDone { self.connection.send("note told \(scope)") }
            case .unknown, .emptied:
                self.forgets(Keys.all)
                if !isDone { self.connection.send("note told \(change)") }
            case .stored, .released: break
            }
        case .put(let name, let payload, let start, let isStored):
            let place = try? JSONDecoder().decode(Place.self, from: payload)
            let key = name.key.key.flatMap { Int($0) } ?? -1
            if isStored == false { self.forgets([key]) }
            let result = isStored.map { $0 ? "stored" : "refused" } ?? "unknown"
            self.connection.send("put \(key) \(place?.version ?? -1) \(place?.call ?? -1) \(start) \(result)")
        case .disturbed(let text):
            self.connection.send("note disturbed: \(text.filter { !$0.isNewline })")
        }
    }
}
