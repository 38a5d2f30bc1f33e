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

    let store: any TokenStore

    /// Returns the tokens of session `epoch` or later; `nil` if there are none, or none that make sense.
    ///
    /// - Throws: ``RunnerError/tokensUnreadable(underlying:)``.
    func load(session epoch: UInt64) async throws -> Record? {
        let data: Data?
        do {
            data = try await self.store.load()
        } catch {
            throw RunnerError.tokensUnreadable(underlying: error)
        }
        guard let data, let record = try? JSONDecoder().decode(Record.self, from: data), record.session >= epoch else {
            return nil
        }
        return record
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
