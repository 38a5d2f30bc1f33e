import Synchronization

/// The lower bound for one value: a lock, a copy, and the cheapest clock.
final class LockedValue<Value: Sendable>: Sendable {
    private let state: Mutex<(value: Value, until: Int64)>

    init(_ value: Value) { self.state = Mutex((value, .max)) }

    /// The value, if it is fresh.
    func fresh() -> Value? {
        let now = CoarseClock.now
        return self.state.withLock { now < $0.until ? $0.value : nil }
    }
}

/// The lower bound for many values: a lock around a dictionary, and the cheapest clock.
final class LockedDictionary<Key: Hashable & Sendable, Value: Sendable>: Sendable {
    private let entries = Mutex<[Key: (value: Value, until: Int64)]>([:])

    func set(_ value: Value, for key: Key) { self.entries.withLock { $0[key] = (value, .max) } }

    /// The value, if it is fresh.
    func fresh(_ key: Key) -> Value? {
        let now = CoarseClock.now
        return self.entries.withLock { entries in
            guard let entry = entries[key], now < entry.until else { return nil }
            return entry.value
        }
    }
}

/// The lower bound for a storm: continuations in an array behind a lock, resumed in order.
///
/// Cancellation is not supported.
final class BareParking: Sendable {
    private struct State {
        var parked: [CheckedContinuation<Profile, any Error>] = []
        var value: Profile?
        var hasBegun = false
    }

    private let state = Mutex(State())
    private let fetch: @Sendable () async -> Profile
    private let parked: @Sendable () -> Void
    private let resumed: @Sendable () -> Void

    init(
        parked: @escaping @Sendable () -> Void = {},
        resumed: @escaping @Sendable () -> Void = {},
        fetch: @escaping @Sendable () async -> Profile
    ) {
        self.parked = parked
        self.resumed = resumed
        self.fetch = fetch
    }

    func value() async throws -> Profile {
        if let value = self.state.withLock({ $0.value }) { return value }
        return try await withCheckedThrowingContinuation { continuation in
            let (value, isFirst) = self.state.withLock { state -> (Profile?, Bool) in
                if let value = state.value { return (value, false) }
                state.parked.append(continuation)
                defer { state.hasBegun = true }
                return (nil, !state.hasBegun)
            }
            if let value { continuation.resume(returning: value) }
            if isFirst { self.begin() }
            self.parked()
        }
    }

    private func begin() {
        Task {
            let value = await self.fetch()
            let parked = self.state.withLock { state in
                state.value = value
                defer { state.parked = [] }
                return state.parked
            }
            for continuation in parked { continuation.resume(returning: value) }
            self.resumed()
        }
    }
}
