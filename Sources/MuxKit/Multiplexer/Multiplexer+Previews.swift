// Multiplexers without a server, for previews and tests. Each multiplexer has a separate repository, which
// keeps values in memory only, so no call of the app's repository saves, clears or counts these values.

extension Multiplexer {
    /// A multiplexer that has `value`: for previews and tests.
    ///
    /// ```swift
    /// #Preview { ProfileView(profile: .constant(Profile(name: "Ada"))) }
    /// ```
    ///
    /// - Parameter value: The value, in memory at once, with an unlimited lifetime.
    /// - Returns: A multiplexer without access to disk or network.
    public static func constant(_ value: Value) -> Multiplexer {
        let multiplexer = Self.after(.zero, value)
        multiplexer.store(value)
        return multiplexer
    }

    /// A multiplexer whose fetches throw `error`: for previews and tests.
    ///
    /// - Parameter error: The error of every fetch.
    /// - Returns: A multiplexer without access to disk or network.
    public static func failing(_ error: any Error) -> Multiplexer { Self.preview { _ in throw error } }

    /// A multiplexer whose fetches never return a value: for previews and tests.
    ///
    /// - Returns: A multiplexer without access to disk or network.
    public static var never: Multiplexer {
        Self.preview { time in
            while true { try await time.sleep(for: .longest) }
        }
    }

    /// A multiplexer whose fetches take some time: for previews and tests.
    ///
    /// - Parameters:
    ///   - delay: The duration of a fetch.
    ///   - value: The value of every fetch, with an unlimited lifetime.
    /// - Returns: A multiplexer without access to disk or network.
    public static func after(_ delay: Duration, _ value: Value) -> Multiplexer {
        Self.preview { time in
            try await time.sleep(for: delay)
            return value
        }
    }

    private static func preview(
        _ fetch: @escaping @Sendable @concurrent (TimeSource) async throws -> Value
    ) -> Multiplexer {
        let repository = MuxRepository(store: MemoryStore())
        return Multiplexer(policy: .ofPreview, repository: repository) { [time = repository.time] in
            try await fetch(time)
        }
    }
}

extension MultiplexerMap {
    /// A map whose fetches return `value` at once, for every key: for previews and tests.
    ///
    /// - Parameter value: The value of every fetch, with an unlimited lifetime.
    /// - Returns: A map without access to disk or network.
    public static func constant(_ value: Value) -> MultiplexerMap { Self.after(.zero, value) }

    /// A map whose fetches throw `error`: for previews and tests.
    ///
    /// - Parameter error: The error of every fetch.
    /// - Returns: A map without access to disk or network.
    public static func failing(_ error: any Error) -> MultiplexerMap { Self.preview { _ in throw error } }

    /// A map whose fetches never return a value: for previews and tests.
    ///
    /// - Returns: A map without access to disk or network.
    public static var never: MultiplexerMap {
        Self.preview { time in
            while true { try await time.sleep(for: .longest) }
        }
    }

    /// A map whose fetches take some time: for previews and tests.
    ///
    /// - Parameters:
    ///   - delay: The duration of a fetch.
    ///   - value: The value of every fetch, with an unlimited lifetime.
    /// - Returns: A map without access to disk or network.
    public static func after(_ delay: Duration, _ value: Value) -> MultiplexerMap {
        Self.preview { time in
            try await time.sleep(for: delay)
            return value
        }
    }

    private static func preview(
        _ fetch: @escaping @Sendable @concurrent (TimeSource) async throws -> Value
    ) -> MultiplexerMap {
        let repository = MuxRepository(store: MemoryStore())
        return MultiplexerMap(policy: .ofPreview, repository: repository) { [time = repository.time] _ in
            try await fetch(time)
        }
    }
}

extension MuxPolicy {
    fileprivate static var ofPreview: MuxPolicy {
        MuxPolicy(timeToLive: .longest, errorBackoff: .zero, fetchTimeout: .longest)
    }
}
