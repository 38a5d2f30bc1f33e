import Foundation

/// Brings a value on disk from one version of its format to the next.
///
/// ```swift
/// let policy = MuxPolicy(
///     schemaVersion: 3,
///     migrations: [
///         MuxMigration(from: 1) { (old: ProfileV1) in ProfileV2(name: old.name, friends: []) },
///         MuxMigration(from: 2) { (old: ProfileV2) in Profile(old) },
///     ]
/// )
/// ```
///
/// An entry of version 1 goes through both; one for which a step is missing, or whose old value does not decode, is a miss. An
/// entry of a version later than ``MuxPolicy/schemaVersion`` is left alone: it is a miss, and what is fetched in its place
/// stays in memory. Only a value that is stored by hand before the entry was met is saved over it.
public struct MuxMigration: Sendable {
    let version: Int
    let apply: @Sendable (Data) throws -> Data

    /// Describes one step, to the version after `version`.
    ///
    /// - Parameters:
    ///   - version: The version that the step starts from.
    ///   - migrate: Makes the new value out of the old one. If it throws, the entry is a miss.
    public init<Old: Decodable & Sendable, New: Encodable & Sendable>(
        from version: Int,
        _ migrate: @escaping @Sendable (Old) throws -> New
    ) {
        self.version = version
        self.apply = { data in try JSONEncoder().encode(migrate(try JSONDecoder().decode(Old.self, from: data))) }
    }

    /// Applies the steps that lead from `version` to `target`.
    ///
    /// - Returns: The payload in the target's format; `nil` if a step is missing.
    static func migrate(_ payload: Data, from version: Int, to target: Int, by steps: [MuxMigration]) throws -> Data? {
        var payload = payload
        var version = version
        while version < target {
            guard let step = steps.first(where: { $0.version == version }) else { return nil }
            payload = try step.apply(payload)
            version += 1
        }
        return payload
    }
}
