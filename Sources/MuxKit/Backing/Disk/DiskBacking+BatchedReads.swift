/// Batched reads: one call of the store reads the entries of many flights.
extension DiskBacking {
    /// The result of a batched read for one flight.
    @usableFromInline
    struct BatchedRead: Sendable {
        /// The entry on disk; `nil` without an entry.
        @usableFromInline let entry: MuxStoredEntry?
        @usableFromInline let stateBefore: StateBeforeRead
        /// The time at the start of the read.
        @usableFromInline let start: Moment

        /// Whether the entry is decoded without a change of threads.
        @usableFromInline var isSmall: Bool {
            self.entry.map { $0.payload.count <= SlotMemory<Slots>.smallPayload } ?? false
        }
    }

    /// The states of slots before a batched read; see ``stateBeforeRead(of:)``.
    @usableFromInline
    func statesBeforeRead(of keys: [Key]) -> [StateBeforeRead?] {
        self.memory.engine.withState { state in keys.map { Self.stateBeforeRead(of: $0, in: state) } }
    }

    /// Reads entries in one call, then the changes that concern the entries (``readChanges(for:)``).
    ///
    /// - Returns: The entries, in the order of `keys`; `nil` if the store fails.
    @usableFromInline
    func read(_ keys: [(key: Key, stateBefore: StateBeforeRead)], for flights: [FlightID]) async -> [BatchedRead]? {
        guard !keys.isEmpty else { return [] }
        let start = self.memory.repository.time.now
        let names = keys.map { self.persistence.name(of: $0.key) }
        let stored = await WaitForGraph.loading(for: flights.map(self.memory.engine.node)) { () -> [MuxStoredEntry?]? in
            guard let stored = try? await self.memory.repository.load(names), stored.count == names.count,
                (try? await self.readChanges(for: stored.compactMap(\.self))) != nil
            else { return nil }
            return stored
        }
        guard let stored else { return nil }
        return zip(keys, zip(names, stored)).map { key, found in
            BatchedRead(entry: found.1?.name == found.0 ? found.1 : nil, stateBefore: key.stateBefore, start: start)
        }
    }

    /// Continues the look-up of a flight after a batched read; see ``Backing/lookUp(_:_:)``.
    @inlinable
    func lookUp(_ key: Key, _ flight: FlightID, after read: BatchedRead) async -> LookUp<Value> {
        guard let entry = read.entry,
            let found = await self.memory.loaded(entry, key, self.persistence, isPersistent: true, since: read.start)
        else { return LookUp() }
        return self.answer(key, flight, found, read.stateBefore)
    }
}
