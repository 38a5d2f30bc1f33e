import Dispatch
public import MuxKit

/// The calls of a multiplexer, or of one key of a map, for an ``ObservedValue``.
struct ObservedSource<Value: Sendable>: Sendable {
    let states: MuxStates<Value>
    let repository: MuxRepository
    enum Outcome: Sendable {
        /// A value; with the entry only if memory has evicted the entry and nothing was cleared.
        case value(MuxEntry<Value>?)
        /// A stale value, because the policy's pause after a failure prevents a fetch.
        case backingOff
        /// No fetch, because the key has had another outcome since the decision to request, or has no
        /// consumer of states any more.
        case alreadyAnswered
        case failure(any Error)
    }

    /// Requests the value.
    ///
    /// Without a value, the entry on disk is loaded first. The values are released outside the main actor.
    /// With `always`, the request fetches even if a fresh value is in memory.
    let request: @Sendable @concurrent (_ state: MuxState<Value>, _ always: Bool) async -> Outcome
    /// Makes the value stale and fetches; returns the error that the caller gets.
    ///
    /// Returns `nil` after a success, and if a stale value replaces the failure.
    let reload: @Sendable @concurrent () async -> (any Error)?

    init(
        _ states: MuxStates<Value>,
        _ repository: MuxRepository,
        request: @escaping @Sendable @concurrent (RequestOptions) async throws -> MuxEntry<Value>,
        reload: @escaping @Sendable @concurrent () async throws -> Void
    ) {
        self.states = states
        self.repository = repository
        self.request = { state, always in
            if state.entry == nil { await states.load?() }
            do {
                let entry = try await request(.renewal(since: state.counts, always: always))
                if entry.staleReason == .backingOff { return .backingOff }
                let current = states.current
                let isEvicted = current.entry == nil && current.counts.clears == state.counts.clears
                return .value(isEvicted ? entry : nil)
            } catch is AlreadyAnswered {
                return .alreadyAnswered
            } catch {
                return .failure(error)
            }
        }
        self.reload = {
            do { try await reload() } catch { return error }
            return nil
        }
    }

    var time: TimeSource { self.repository.time }

    /// The state now, without a consumer.
    func current() -> MuxState<Value> { self.states.current }

    /// Releases a state on a queue of the system.
    ///
    /// The queue takes the state out of the lock, so that the caller keeps no reference to the value.
    func release(_ state: Locked<MuxState<Value>?>) {
        DispatchQueue.global(qos: .utility).async { _ = state.withLock { $0.take() } }
    }
}

extension Multiplexer {
    /// The value for views; starts and registers nothing.
    ///
    /// ```swift
    /// @State private var profile = Backend.profile.observed()
    /// ```
    ///
    /// - Parameters:
    ///   - loadingDelay: The duration of a fetch after which ``ObservedValue/isLoading`` becomes `true`; zero
    ///     for at once.
    ///   - activity: Reports activations and reconnections; see `MuxPolicy.refetch`.
    /// - Returns: A new object, which retains the multiplexer.
    @MainActor
    public func observed(
        loadingDelay: Duration = .milliseconds(150),
        activity: AppActivity = .shared
    ) -> ObservedValue<Value> {
        ObservedValue(
            ObservedSource(self.states, self.repository) {
                try await self.requestEntry($0)
            } reload: {
                _ = try await self.reload()
            },
            loadingDelay: loadingDelay,
            activity: activity
        )
    }
}

extension MultiplexerMap {
    /// The value of `key` for views; starts and registers nothing.
    ///
    /// `@State` keeps the object of the first key: give a view whose key can change an identity, as in
    /// `UserView(id: id).id(id)`.
    ///
    /// - Parameters:
    ///   - key: Any key that is equal to itself.
    ///   - loadingDelay: The duration of a fetch after which ``ObservedValue/isLoading`` becomes `true`; zero
    ///     for at once.
    ///   - activity: Reports activations and reconnections; see `MuxPolicy.refetch`.
    /// - Returns: A new object, which retains the map.
    @MainActor
    public func observed(
        key: Key,
        loadingDelay: Duration = .milliseconds(150),
        activity: AppActivity = .shared
    ) -> ObservedValue<Value> {
        ObservedValue(
            ObservedSource(self.states(key: key), self.repository) {
                try await self.requestEntry(key: key, $0)
            } reload: {
                _ = try await self.reload(key: key)
            },
            loadingDelay: loadingDelay,
            activity: activity
        )
    }
}
