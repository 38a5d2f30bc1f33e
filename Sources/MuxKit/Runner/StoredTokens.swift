import Foundation

/// The tokens of a session as a ``TokenStore`` keeps them.
struct StoredTokens<AccessToken: Codable & Sendable, RefreshToken: Codable & Sendable>: Sendable {
    /// One session's tokens.
    struct Record: Codable, Sendable {
        /// The repository's session epoch; a record of an earlier one does not exist.
        let session: UInt64
        let refresh: RefreshToken
        let access: AccessToken?
    }

    /// What a store has.
    enum Found: Sendable {
        /// Nothing, or nothing that makes sense.
        case nothing
        /// Tokens of a session that has ended.
        case ended
        /// Tokens that may be used.
        case record(Record)
    }

    let store: any TokenStore

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
        guard let data, let record = try? JSONDecoder().decode(Record.self, from: data) else { return .nothing }
        return record.session >= epoch ? .record(record) : .ended
    }

    /// Whether two refresh tokens are the same to a server.
    func areSame(_ a: RefreshToken, _ b: RefreshToken) -> Bool {
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

extension JSONEncoder {
    /// Encodes equal values to equal bytes.
    fileprivate static var stable: JSONEncoder {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys]
        return encoder
    }
}
