public import Foundation

/// Encrypts the entries of another store.
///
/// The other store receives values, validators and tags in encrypted form only. Names, times and numbers,
/// such as the schema version, stay readable: the other store needs names and times to find and expire
/// entries. If names are secret, use a `cacheKey` and map keys that reveal nothing.
///
/// ```swift
/// let store = SealedStore(
///     JournalStore(directory: folder),
///     seal: { try AES.GCM.seal($0, using: key).combined ?? Data() },
///     open: { try AES.GCM.open(AES.GCM.SealedBox(combined: $0), using: key) }
/// )
/// ```
///
/// **Concurrent calls.** As with the other store; the closures are called concurrently, on threads of
/// Dispatch.
///
/// **Cancellation.** As with the other store; a closure that was called runs to the end.
///
/// **On disk.** As with the other store; a sealed value is a JSON string of base64, without a line break.
///
/// **After a failure.** An entry that cannot be decrypted, because of another key or tampering, is a miss,
/// counted in ``JournalStore/Statistics/unopened``. The entry stays in the other store.
public struct SealedStore: MuxStore {
    private let base: any MuxStore
    private let sealData: @Sendable (Data) throws -> Data
    private let openData: @Sendable (Data) throws -> Data
    private let unopened = Locked(0)

    /// Makes a store that seals the entries of `base`.
    ///
    /// - Parameters:
    ///   - base: Stores the sealed entries; the app must not use `base` directly.
    ///   - seal: Encrypts. If `seal` throws for an entry, only this entry is not saved.
    ///   - open: Decrypts the result of `seal`; throws after tampering or with another key.
    public init(
        _ base: some MuxStore,
        seal: @escaping @Sendable (Data) throws -> Data,
        open: @escaping @Sendable (Data) throws -> Data
    ) {
        self.base = base
        self.sealData = seal
        self.openData = open
    }

    /// The number of the current session, in the other store.
    ///
    /// - Throws: The other store's error.
    public func sessionEpoch() async throws -> UInt64 { try await self.base.sessionEpoch() }

    /// The number of the current session; `nil` if the other store cannot read the number synchronously.
    public func peekSessionEpoch() -> UInt64? { self.base.peekSessionEpoch() }

    /// Waits for sign-outs by other processes; `nil` if the other store cannot report sign-outs.
    public var sessionWatch: (@Sendable (_ epoch: UInt64) async throws -> UInt64)? { self.base.sessionWatch }

    /// Durably raises the session number to `epoch`, which invalidates entries of earlier sessions.
    ///
    /// - Throws: The other store's error.
    public func raiseSessionEpoch(to epoch: UInt64) async throws {
        try await self.base.raiseSessionEpoch(to: epoch)
    }

    /// Returns the decrypted entry with the name; `nil` for a missing entry, or after a failed decryption.
    ///
    /// - Throws: The other store's error; a failed decryption is not an error.
    public func load(_ name: MuxStoreKey) async throws -> MuxStoredEntry? {
        try await self.load([name]).first ?? nil
    }

    /// Returns the decrypted entries in the order of `names`; `nil` for a missing entry, or after a failed
    /// decryption.
    ///
    /// - Throws: The other store's error; a failed decryption is not an error.
    public func load(_ names: [MuxStoreKey]) async throws -> [MuxStoredEntry?] {
        let sealed = try await self.base.load(names)
        guard sealed.contains(where: { $0 != nil }) else { return sealed }
        return await BlockingWork.map(sealed, for: .userInitiated) { $0.flatMap(self.openedOrCounted) }
    }

    /// Seals and saves `entries`, and replaces entries with the same names.
    ///
    /// - Throws: ``MuxStoreError/PartialSave`` with the entries that cannot be sealed or that the other store
    ///   does not save; the other entries count as saved. After any other error of the other store, no entry
    ///   counts as saved.
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

    /// Removes the entries with the names; returns after the removal has the given durability.
    ///
    /// - Throws: The other store's error.
    public func remove(_ names: [MuxStoreKey], durability: MuxDurability) async throws {
        try await self.base.remove(names, durability: durability)
    }

    /// Removes every entry of `domain`; returns after the removal has the given durability.
    ///
    /// - Throws: The other store's error.
    public func removeAll(domain: String, durability: MuxDurability) async throws {
        try await self.base.removeAll(domain: domain, durability: durability)
    }

    /// Removes every entry of every domain; the session epoch stays.
    ///
    /// - Throws: The other store's error.
    public func removeEverything() async throws { try await self.base.removeEverything() }

    /// The other store's counters, and the number of failed decryptions.
    public func statistics() async -> JournalStore.Statistics {
        var statistics = await self.base.statistics()
        statistics.unopened += self.unopened.withLock { $0 }
        return statistics
    }

    /// Seals name, validator, tags and value together, so these parts of different entries cannot be
    /// combined.
    private func sealed(_ entry: MuxStoredEntry) throws -> MuxStoredEntry {
        var content = Array("{\"domain\":".utf8)
        JSONText.append(entry.name.domain, to: &content)
        content += ",\"key\":".utf8
        JSONText.append(entry.name.key, to: &content)
        content += ",\"validator\":".utf8
        JSONText.append(entry.validator, to: &content)
        if !entry.tags.isEmpty {
            content += ",\"tags\":".utf8
            JSONText.append(TagText.text(entry.tags), to: &content)
        }
        content += "}\n".utf8
        content += entry.payload
        var sealed = entry
        (sealed.validator, sealed.tags) = (nil, [])
        sealed.payload = Data("\"\(try self.sealData(Data(content)).base64EncodedString())\"".utf8)
        return sealed
    }

    private func openedOrCounted(_ sealed: MuxStoredEntry) -> MuxStoredEntry? {
        let opened = try? self.opened(sealed)
        if opened == nil { self.unopened.withLock { $0 += 1 } }
        return opened
    }

    /// The decrypted entry; `nil` if the content is malformed or of another name.
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
            texts[String(decoding: name, as: UTF8.self)] = reader.string(value)
        }
        guard reader.isComplete, let domain = texts["domain"],
            MuxStoreKey(domain: domain, key: texts["key"]) == sealed.name
        else { return nil }
        var entry = sealed
        // Tags outside the seal may be forged, and are ignored.
        (entry.validator, entry.tags) = (texts["validator"], [])
        if let text = texts["tags"] {
            guard let tags = TagText.tags(text) else { return nil }
            entry.tags = tags
        }
        entry.payload = Data(content[(end + 1)...])
        return entry
    }
}

extension SealedStore: FolderStore, IdentifiedStore {
    package var identity: UInt64? { get async throws { try await (self.base as? any IdentifiedStore)?.identity } }

    package var folder: StoreFolder? { (self.base as? any FolderStore)?.folder }

    package func setWallTime(_ wallTime: @escaping @Sendable () -> Date) {
        (self.base as? any FolderStore)?.setWallTime(wallTime)
    }

    package var problems: StorageProblems? { (self.base as? any ReportsProblems)?.problems }
}
