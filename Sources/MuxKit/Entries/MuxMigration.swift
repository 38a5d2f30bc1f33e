import Foundation

/// The migration of a stored value from one version of the format to the next version.
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
/// In this example, an entry of version 1 needs both steps. An entry is a miss if a step is missing or fails.
/// An entry of a version later than ``MuxPolicy/schemaVersion`` is a miss, too. After a read of such an
/// entry, saves do not overwrite the entry: a fetched or stored value stays in memory only.
public struct MuxMigration: Sendable {
    let version: Int
    let apply: @Sendable (Data) throws -> Data

    /// Makes the migration from `version` to the next version.
    ///
    /// - Parameters:
    ///   - version: The version of the old value.
    ///   - migrate: Converts an old value to a new value.
    public init<Old: Decodable & Sendable, New: Encodable & Sendable>(
        from version: Int,
        _ migrate: @escaping @Sendable (Old) throws -> New
    ) {
        self.version = version
        self.apply = { data in try JSONEncoder().encode(migrate(try JSONDecoder().decode(Old.self, from: data))) }
    }
}

extension MuxPolicy {
    /// Whether entries of a schema version are read.
    ///
    /// A later version of the program has written the other entries, which are not overwritten after a read.
    func canRead(_ version: Int) -> Bool { version <= self.schemaVersion }

    /// Whether entries of a schema version are migrated.
    func migrates(_ version: Int) -> Bool { version < self.schemaVersion }

    /// Migrates a payload from a schema version to the policy's version.
    ///
    /// - Returns: The payload in the format of the policy's version; `nil` if a step is missing.
    func migrate(_ payload: Data, from version: Int) throws -> Data? {
        var payload = payload
        for version in version..<max(version, self.schemaVersion) {
            guard let step = self.migrations.first(where: { $0.version == version }) else { return nil }
            payload = try step.apply(payload)
        }
        return payload
    }
}
