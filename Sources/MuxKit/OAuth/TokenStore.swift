public import Foundation

/// Keeps the tokens of a session between launches.
///
/// The library calls `save` and `delete` of one store one after another, in order. Within such a call, the store may call its
/// runner: a good access token is used, and a call that would have to wait for the store throws ``RunnerError/wouldDeadlock``.
public protocol TokenStore: Sendable {
    /// Returns what was saved last; `nil` if there is nothing.
    ///
    /// - Throws: If there may be tokens that cannot be read now, as on a locked device.
    func load() async throws -> Data?

    /// Keeps `data` in place of what was there; returns when it is durable.
    ///
    /// - Throws: If that failed; what was there before is then still there.
    func save(_ data: Data) async throws

    /// Removes what was saved; returns when that is durable.
    ///
    /// - Throws: If that failed.
    func delete() async throws

    /// Keeps processes that share the store from renewing tokens at the same time; `nil` if no other process uses it.
    var lease: (any MuxLease)? { get }

    /// Calls `onChange` after each change of the store, by any process, until the task is cancelled.
    ///
    /// It may call it more often than that. It returns at once, as by default, if the store cannot be watched.
    func watch(_ onChange: @escaping @Sendable () -> Void) async
}

extension TokenStore {
    /// No other process uses the store.
    public var lease: (any MuxLease)? { nil }

    /// The store cannot be watched.
    public func watch(_ onChange: @escaping @Sendable () -> Void) async {}
}

/// Keeps tokens in memory: gone with the process.
public final class InMemoryTokenStore: TokenStore {
    private let data = Locked<Data?>(nil)

    /// Makes an empty store.
    public init() {}

    /// The same as ``load()``, for tests.
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

/// Encodes the tokens of a session for a ``TokenStore``.
struct StoredTokens<AccessToken: Codable & Sendable, RefreshToken: Codable & Sendable>: Sendable {
    /// The tokens of a session, or the note that sessions are over.
    struct Record: Codable, Sendable {
        /// The repository's session epoch; a record of an earlier one does not exist.
        var session: UInt64
        /// Missing in the note that the sessions before ``session`` are over, and in the note that the tokens are refused.
        var refresh: RefreshToken?
        var access: AccessToken?
        /// When the access token ends, by the time of day.
        var accessExpiry: Date?
        /// Whether the server is known to rotate refresh tokens.
        var rotates: Bool?
        /// Grows with each record: the greater one is newer.
        var serial: UInt64?
        /// The exchange of ``refresh`` that was about to be sent; removed when its outcome is known.
        var attempt: Attempt?
        /// Whether the server has refused the refresh token of the record before, which this one replaces.
        var isRefused: Bool?
    }

    /// An exchange of a refresh token that was about to be sent.
    struct Attempt: Codable, Sendable {
        /// The name of the runner.
        var owner: String
        var time: Date
    }

    /// The content of a store.
    enum Found: Sendable {
        /// Nothing.
        case nothing
        /// Data that no runner has written.
        case nonsense
        /// Tokens of an ended session, or the note that the sessions before this one have ended.
        case ended(before: UInt64)
        /// Tokens that may be used.
        case record(Record)
        /// The note that the server has refused the tokens of this session.
        case refused(Record)
    }

    let store: any TokenStore

    /// Greater numbers are taken for damage: counting on from them might overflow.
    private static var limit: UInt64 { 1 << 62 }

    /// Reads the store, given that the sessions before `epoch` have ended.
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

    /// Whether two tokens are the same to a server.
    func areSame<Token: Encodable>(_ a: Token, _ b: Token) -> Bool {
        guard let a = try? JSONEncoder.stable.encode(a), let b = try? JSONEncoder.stable.encode(b) else { return false }
        return a == b
    }

    /// Stores `record`; returns when it is durable.
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
    /// Shows nothing of the tokens.
    var description: String { "Record(…)" }

    /// Shows nothing of the tokens.
    var customMirror: Mirror { Mirror(self, children: [:]) }
}

extension JSONEncoder {
    /// Encodes equal values to equal bytes.
    fileprivate static var stable: JSONEncoder {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys]
        return encoder
    }
}

/// What the statuses of the keychain mean, apart from `KeychainTokenStore` so that tests run on any platform.
package enum KeychainAnswer {
    package static let success: Int32 = 0
    package static let duplicateItem: Int32 = -25_299
    package static let itemNotFound: Int32 = -25_300
    package static let interactionNotAllowed: Int32 = -25_308
    package static let missingEntitlement: Int32 = -34_018

    /// Replaces an item that other processes may add or remove meanwhile.
    package struct Replacement: Sendable {
        /// What to do next.
        package enum Action: Sendable, Equatable {
            /// Update the item.
            case update
            /// Add an item, as there is none.
            case add
            /// Stop: the item is replaced.
            case done
            /// Fail with this status.
            case fail(Int32)
        }

        /// The first thing to do.
        package static let first = Action.update

        /// How many interferences of other processes are left before they are an error.
        private var races = 3

        package init() {}

        /// The keychain answered an update or an addition.
        package mutating func answered(_ status: Int32) -> Action {
            switch status {
            case KeychainAnswer.success: return .done
            case KeychainAnswer.itemNotFound where self.races > 0:
                self.races -= 1
                return .add
            // Another process added it between the update and the addition.
            case KeychainAnswer.duplicateItem where self.races > 0: return .update
            default: return .fail(status)
            }
        }
    }

    /// A description for a log, with the remedy if it is known.
    package static func words(for status: Int32) -> String {
        switch status {
        case Self.missingEntitlement:
            """
            The app may not use the keychain (status \(status)): it is not signed with an application identifier or a \
            keychain access group. Sign it with one, or keep the tokens in a protected file (.protectedFile(named:)).
            """
        case Self.interactionNotAllowed:
            "The keychain cannot be read before the device is unlocked for the first time (status \(status))."
        default: "The keychain answered with status \(status)."
        }
    }
}
