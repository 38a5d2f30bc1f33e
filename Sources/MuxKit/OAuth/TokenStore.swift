public import Foundation

/// Keeps the tokens of a session between launches.
///
/// A runner calls `save` and `remove` of the store one at a time, in order; calls of `load` may overlap with
/// other calls. During a call of `save` or `remove`, the store may call the runner: the runner uses a good
/// access token, and a call that must wait for the store throws ``RunnerError/wouldDeadlock``.
public protocol TokenStore: Sendable {
    /// Returns the data of the last save; `nil` without saved data.
    ///
    /// - Throws: An error if tokens may exist but cannot be read now, such as on a locked device.
    func load() async throws -> Data?

    /// Replaces the saved data with `data`; returns when the data is durable.
    ///
    /// - Throws: An error if the save failed; the store then has the previous data or `data`.
    func save(_ data: Data) async throws

    /// Removes the saved data; returns when the removal is durable.
    ///
    /// - Throws: An error if the removal failed.
    func remove() async throws

    /// Prevents simultaneous renewals by processes that share the store.
    ///
    /// `nil` if no other process uses the store.
    var lease: (any MuxLease)? { get }

    /// Calls `onChange` after changes of the store, by any process, until the task is cancelled.
    ///
    /// Changes in quick succession may share a call; additional calls of `onChange` are allowed. If the store
    /// cannot be watched, the function returns at once, as the default implementation does.
    func watch(_ onChange: @escaping @Sendable () -> Void) async
}

extension TokenStore {
    /// `nil`: no other process uses the store.
    public var lease: (any MuxLease)? { nil }

    /// Returns at once: the store cannot be watched.
    public func watch(_ onChange: @escaping @Sendable () -> Void) async {}
}

/// Keeps tokens in memory until the end of the process.
public final class InMemoryTokenStore: TokenStore {
    private let data = Locked<Data?>(nil)

    /// Makes an empty store.
    public init() {}

    /// The saved data, without suspension.
    package var peek: Data? { self.data.withLock { $0 } }

    /// Returns the data of the last save.
    ///
    /// - Returns: The data; `nil` without saved data.
    public func load() async -> Data? { self.peek }

    /// Keeps `data`.
    public func save(_ data: Data) async { self.data.withLock { $0 = data } }

    /// Removes the saved data.
    public func remove() async { self.data.withLock { $0 = nil } }
}

extension TokenStore where Self == InMemoryTokenStore {
    /// A new store in memory; a runner with this store and without a lease writes to the disk only for a
    /// sign-out.
    public static var inMemory: InMemoryTokenStore { InMemoryTokenStore() }
}

/// Encodes the tokens of a session for a ``TokenStore``, and decodes the content of the store.
struct StoredTokens<AccessToken: Codable & Sendable, RefreshToken: Codable & Sendable>: Sendable {
    /// The tokens of a session, or a mark: earlier sessions have ended, or the tokens are refused.
    struct Record: Codable, Sendable {
        /// The repository's session epoch; a record of an earlier epoch belongs to an ended session.
        var session: UInt64
        /// `nil` in a mark that the sessions before ``session`` have ended, or that the tokens are refused.
        var refresh: RefreshToken?
        var access: AccessToken?
        /// The end of the access token, in wall-clock time.
        var accessExpiry: Date?
        /// Whether the server is known to rotate refresh tokens.
        var rotates: Bool?
        /// The serial number, which increases with each record of a session: the greater number is newer.
        var serial: UInt64?
        /// The last attempt to exchange ``refresh``; the next save removes the attempt.
        var attempt: Attempt?
        /// Whether the record is the mark that the server has refused the refresh token of the previous
        /// record.
        var isRefused: Bool?
    }

    /// The record that a runner was about to send the refresh token.
    struct Attempt: Codable, Sendable {
        /// The name of the runner.
        var owner: String
        var time: Date
    }

    /// The content of a store.
    enum Found: Sendable {
        /// No data.
        case nothing
        /// Data that is not a valid record.
        case nonsense
        /// A record of an ended session, or the mark that the sessions before `before` have ended.
        case ended(before: UInt64)
        /// Tokens of the repository's session or of a later session.
        case record(Record)
        /// The mark that the server has refused the tokens of the repository's session or of a later session.
        case refused(Record)
    }

    let store: any TokenStore

    /// Numbers from this limit on count as damaged data, because an increment could overflow.
    private static var limit: UInt64 { 1 << 62 }

    /// Reads the store; records of sessions before `epoch` count as ended.
    ///
    /// - Throws: ``RunnerError/tokensUnreadable(underlying:)``.
    func load(session epoch: UInt64) async throws -> Found {
        let data: Data?
        do {
            data = try await self.store.load()
        } catch {
            throw RunnerError.tokensUnreadable(underlying: error)
        }
        guard let data else { return .nothing }
        guard let record = try? JSONDecoder().decode(Record.self, from: data),
            max(record.session, record.serial ?? 0) < Self.limit
        else { return .nonsense }
        if record.isRefused == true, record.session >= epoch { return .refused(record) }
        guard record.refresh != nil else { return .ended(before: record.session) }
        return record.session >= epoch ? .record(record) : .ended(before: epoch)
    }

    /// Whether two tokens are equal after encoding, and so identical for a server; `false` if a token is
    /// absent or cannot be encoded.
    func areSame<Token: Encodable>(_ a: Token?, _ b: Token?) -> Bool {
        guard let a, let b else { return false }
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys]  // equal values have equal bytes
        guard let a = try? encoder.encode(a), let b = try? encoder.encode(b) else { return false }
        return a == b
    }

    /// Stores `record`; returns when the record is durable.
    ///
    /// - Throws: ``RunnerError/tokensNotStored(underlying:)``.
    func save(_ record: Record) async throws {
        do {
            try await self.store.save(try JSONEncoder().encode(record))
        } catch {
            throw RunnerError.tokensNotStored(underlying: error)
        }
    }
}

extension StoredTokens.Record: CustomStringConvertible, CustomReflectable {
    /// Hides the tokens.
    var description: String { "Record(…)" }

    /// Hides the tokens.
    var customMirror: Mirror { Mirror(self, children: [:]) }
}

/// The meaning of keychain status codes, separate from `KeychainTokenStore` for tests on any platform.
package enum KeychainAnswer {
    package static let success: Int32 = 0
    package static let duplicateItem: Int32 = -25_299
    package static let itemNotFound: Int32 = -25_300
    package static let interactionNotAllowed: Int32 = -25_308
    package static let missingEntitlement: Int32 = -34_018

    /// Replaces an item, or adds a missing item; other processes may add or remove the item at the same time.
    ///
    /// - Parameters:
    ///   - update: Updates the item, and returns the keychain's status.
    ///   - add: Adds an item, and returns the keychain's status.
    /// - Returns: ``success``, or the status of the last call.
    package static func replace(update: () -> Int32, add: () -> Int32) -> Int32 {
        var status = update()
        // The status of the third addition is final, even if another process changed the item again.
        for addition in 1...3 where status == Self.itemNotFound {
            status = add()
            // Another process added the item between the update and the addition.
            if status == Self.duplicateItem, addition < 3 { status = update() }
        }
        return status
    }

    /// A description for a log, with the remedy if known.
    package static func words(for status: Int32) -> String {
        switch status {
        case Self.missingEntitlement:
            """
            The app has no access to the keychain (status \(status)): the signature has neither an application identifier nor \
            a keychain access group. Add an access group, or keep the tokens in a protected file (.protectedFile(named:)).
            """
        case Self.interactionNotAllowed:
            "The keychain is locked until the first unlock of the device (status \(status))."
        default: "The keychain returned status \(status)."
        }
    }
}
