import Dispatch
public import MuxKit

/// The calls of a multiplexer, or of one key of a map, for an ``ObservedValue``.
struct ObservedSource<Value: Sendable>: Sendable {
    let states: MuxStates<Value>
    let repository: MuxRepository
    let cachedEntry: @Sendable () -> MuxEntry<Value>?
    /// Requests the value, and permits a stale value.
    let request: @Sendable () async -> Void
    let reload: @Sendable () async throws -> Void

    var time: TimeSource { self.repository.time }

    /// Releases a state on a queue of the system.
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
    /// - Parameter loadingDelay: The duration of a fetch after which ``ObservedValue/isLoading`` becomes
    ///   `true`; zero for at once.
    /// - Returns: A new object; it retains the multiplexer.
    @MainActor
    public func observed(loadingDelay: Duration = .milliseconds(150)) -> ObservedValue<Value> {
        ObservedValue(
            ObservedSource(
                states: self.states,
                repository: self.repository,
                cachedEntry: { self.cachedEntry },
                request: { _ = try? await self.request(.staleWhileRevalidate) },
                reload: { try await self.reload() }
            ),
            loadingDelay: loadingDelay
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
    /// - Returns: A new object; it retains the map.
    @MainActor
    public func observed(key: Key, loadingDelay: Duration = .milliseconds(150)) -> ObservedValue<Value> {
        ObservedValue(
            ObservedSource(
                states: self.states(key: key),
                repository: self.repository,
                cachedEntry: { self.cachedEntry(key: key) },
                request: { _ = try? await self.request(key: key, .staleWhileRevalidate) },
                reload: { try await self.reload(key: key) }
            ),
            loadingDelay: loadingDelay
        )
    }
}
