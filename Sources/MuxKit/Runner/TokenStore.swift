public import Foundation

/// Where a runner keeps the tokens of a session between launches.
///
/// The library calls `save` and `delete` of one store one after another, in order. A store that calls its runner meanwhile gets a good
/// access token; a call that would have to wait for the store throws ``RunnerError/wouldDeadlock``.
public protocol TokenStore: Sendable {
    /// Returns what was saved last; `nil` if there is nothing.
    ///
    /// - Throws: If there may be something that cannot be read now, as on a locked device. That is never taken for "nothing".
    func load() async throws -> Data?

    /// Keeps `data` in place of what was there; returns when it is durable.
    ///
    /// - Throws: If that failed; what was there before is then still there.
    func save(_ data: Data) async throws

    /// Removes what was saved; returns when that is durable.
    ///
    /// - Throws: If that failed.
    func delete() async throws

    /// Keeps processes that share the store from renewing tokens at the same time; `nil` if nobody shares it.
    var lease: (any MuxLease)? { get }
}

extension TokenStore {
    /// Nobody shares the store.
    public var lease: (any MuxLease)? { nil }
}

/// Keeps tokens in memory: gone with the process.
public final class InMemoryTokenStore: TokenStore {
    private let data = Locked<Data?>(nil)

    /// Makes an empty store.
    public init() {}

    /// What was saved last; `nil` if there is nothing.
    package var peek: Data? { self.data.withLock { $0 } }

    /// Returns what was saved last.
    ///
    /// - Returns: The data; `nil` if there is nothing.
    public func load() async -> Data? { self.peek }

    /// Keeps `data`.
    public func save(_ data: Data) async { self.data.withLock { $0 = data } }

    /// Forgets what was saved.
    public func delete() async { self.data.withLock { $0 = nil } }
}

extension TokenStore where Self == InMemoryTokenStore {
    /// A new store in memory: a runner with it touches no disk.
    public static var inMemory: InMemoryTokenStore { InMemoryTokenStore() }
}
