public import Foundation

/// Encrypts what another store keeps.
///
/// What a value says, and what the server calls its version, is given to the other store only as `seal` returns it; names
/// and times stay as they are, because the store has to find and date entries without a key. Seal the name as well if
/// it is a secret: give the multiplexer a `cacheKey`, and the map keys, that say nothing.
///
/// ```swift
/// let store = SealedStore(
///     JournalStore(directory: folder),
///     seal: { try AES.GCM.seal($0, using: key).combined ?? Data() },
///     open: { try AES.GCM.open(AES.GCM.SealedBox(combined: $0), using: key) }
/// )
/// ```
///
/// **Concurrent calls.** Those of the other store; the closures are called on several threads at once, never on the pool
/// that all tasks share.
///
/// **Cancellation.** That of the other store; a closure that was called runs to its end.
///
/// **On disk.** As the other store; a sealed value is one JSON text of base64, so that it stays one line.
///
/// **After a failure.** An entry that does not open, because the key is another or it was tampered with, is a miss that
/// is counted in ``MuxStoreStatistics/unopened``; it stays until something is saved in its place.
public struct SealedStore: MuxStore {
    private let base: any MuxStore
    private let sealData: @Sendable (Data) throws -> Data
    private let openData: @Sendable (Data) throws -> Data
    private let unopened = Locked(0)

    /// Seals what `base` keeps.
    ///
    /// - Parameters:
    ///   - base: Keeps the sealed entries; used by this store alone.
    ///   - seal: Encrypts, with a key of its own; an entry for which it throws is not saved, and the others are.
    ///   - open: Decrypts what `seal` returned, and throws if that was tampered with or sealed with another key.
    public init(
        _ base: some MuxStore,
        seal: @escaping @Sendable (Data) throws -> Data,
        open: @escaping @Sendable (Data) throws -> Data
    ) {
        self.base = base
        self.sealData = seal
        self.openData = open
    }

    /// The number of the present session; 0 before the first sign-out.
    ///
    /// - Throws: What the other store throws.
    public func sessionEpoch() async throws -> UInt64 { try await self.base.sessionEpoch() }

    /// The number of the present session, if the other store can read it at once.
    public func peekSessionEpoch() -> UInt64? { self.base.peekSessionEpoch() }

    /// Waits for sign-outs of other processes, if the other store can tell of them.
    public var sessionWatch: (@Sendable (_ epoch: UInt64) async throws -> UInt64)? { self.base.sessionWatch }

    /// Moves on to session `epoch`, durably; entries of earlier ones cease to exist.
    ///
    /// - Throws: What the other store throws.
    public func raiseSessionEpoch(to epoch: UInt64) async throws {
        try await self.base.raiseSessionEpoch(to: epoch)
    }

    /// Returns the entry of that name, opened, or `nil` if there is none or it does not open.
    ///
    /// - Throws: What the other store throws; that an entry does not open is not an error.
    public func load(_ name: MuxStoreKey) async throws -> MuxStoredEntry? {
        guard let sealed = try await self.base.load(name) else { return nil }
        let opened = await BlockingWork.run { try? self.opened(sealed) }
        if opened == nil { self.unopened.withLock { $0 += 1 } }
        return opened
    }

    /// Seals and keeps `entries`, each in place of the one of the same name.
    ///
    /// - Throws: ``MuxStoreError/PartialSave`` for those that cannot be sealed, or that the other store does not keep, while the
    ///   others are; any other error of the other store if none was kept.
    public func save(_ entries: [MuxStoredEntry], durability: MuxDurability) async throws {
        let results = await BlockingWork.map(entries) { entry in Result { try self.sealed(entry) } }
        var sealed: [MuxStoredEntry] = []
        var failures: [MuxStoreError.PartialSave.Failure] = []
        for (entry, result) in zip(entries, results) {
            switch result {
            case .success(let entry): sealed.append(entry)
            case .failure(let error): failures.append(.init(name: entry.name, error: error))
            }
        }
        do {
            try await self.base.save(sealed, durability: durability)
        } catch let partial as MuxStoreError.PartialSave {
            failures += partial.failures
        }
        if !failures.isEmpty { throw MuxStoreError.PartialSave(failures) }
    }

    /// Forgets the entries of those names; returns when that is as safe as `durability` says.
    ///
    /// - Throws: What the other store throws.
    public func remove(_ names: [MuxStoreKey], durability: MuxDurability) async throws {
        try await self.base.remove(names, durability: durability)
    }

    /// Forgets every entry of `domain`; returns when that is as safe as `durability` says.
    ///
    /// - Throws: What the other store throws.
    public func removeAll(domain: String, durability: MuxDurability) async throws {
        try await self.base.removeAll(domain: domain, durability: durability)
    }

    /// Forgets every entry of every domain; the session epoch stays.
    ///
    /// - Throws: What the other store throws.
    public func removeEverything() async throws { try await self.base.removeEverything() }

    /// What the other store counted, and the entries that did not open.
    public func statistics() async -> MuxStoreStatistics {
        var statistics = await self.base.statistics()
        statistics.unopened += self.unopened.withLock { $0 }
        return statistics
    }

    /// Seals name, validator and value together, so that no part of one entry can be put to that of another.
    private func sealed(_ entry: MuxStoredEntry) throws -> MuxStoredEntry {
        var content = Array("{\"domain\":".utf8)
        JSONText.append(entry.name.domain, to: &content)
        content += ",\"key\":".utf8
        JSONText.append(entry.name.key, to: &content)
        content += ",\"validator\":".utf8
        JSONText.append(entry.validator, to: &content)
        content += "}\n".utf8
        content += entry.payload
        var sealed = entry
        sealed.validator = nil
        sealed.payload = Data("\"\(try self.sealData(Data(content)).base64EncodedString())\"".utf8)
        return sealed
    }

    /// The entry as it was; `nil` if that is not what was sealed, or it belongs to another name.
    private func opened(_ sealed: MuxStoredEntry) throws -> MuxStoredEntry? {
        let quote = UInt8(ascii: "\"")
        guard sealed.payload.count >= 2, sealed.payload.first == quote, sealed.payload.last == quote,
            let data = Data(base64Encoded: sealed.payload.dropFirst().dropLast())
        else { return nil }
        let content = [UInt8](try self.openData(data))
        guard let end = content.firstIndex(of: 0x0a) else { return nil }
        var reader = FlatJSONReader(content, from: 1, to: end)
        var texts: [String: String] = [:]
        while let (name, value) = reader.next() {
            texts[String(decoding: content[name], as: UTF8.self)] = reader.string(value)
        }
        guard reader.isComplete, let domain = texts["domain"],
            MuxStoreKey(domain: domain, key: texts["key"]) == sealed.name
        else { return nil }
        var entry = sealed
        entry.validator = texts["validator"]
        entry.payload = Data(content[(end + 1)...])
        return entry
    }
}
