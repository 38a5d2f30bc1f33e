import Foundation

/// The tokens of a session as a ``TokenStore`` keeps them.
struct StoredTokens<AccessToken: Codable & Sendable, RefreshToken: Codable & Sendable>: Sendable {
    /// One session's tokens, or that a session is over.
    struct Record: Codable, Sendable {
        /// The repository's session epoch; a record of an earlier one does not exist.
        var session: UInt64
        /// Missing if the sessions before ``session`` are over, and none has begun since.
        var refresh: RefreshToken?
        var access: AccessToken?
        /// When the access token ends, by the time of day.
        var accessExpiry: Date?
        /// Whether the server is known to exchange refresh tokens.
        var rotates: Bool?
        /// Grows with each record, so that processes can tell which is newer.
        var serial: UInt64?
        /// The exchange of ``refresh`` that was about to be sent; missing once its outcome is known.
        var attempt: Attempt?
    }

    /// An exchange of a refresh token that was about to be sent.
    struct Attempt: Codable, Sendable {
        /// The runner that was about to send it.
        var owner: String
        var time: Date
    }

    /// What a store has.
    enum Found: Sendable {
        /// Nothing.
        case nothing
        /// Something that nobody can have written on purpose.
        case nonsense
        /// Tokens of a session that has ended, or the note that all sessions before this one have.
        case ended(before: UInt64)
        /// Tokens that may be used.
        case record(Record)
    }

    let store: any TokenStore

    /// Nobody has signed out, or stored tokens, so many times; greater numbers would leave none to go on with.
    private static var limit: UInt64 { 1 << 62 }

    /// Reads what the store has, given that sessions before `epoch` have ended.
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
    /// Says what it is, and nothing of the tokens.
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
