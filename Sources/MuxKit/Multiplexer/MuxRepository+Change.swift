extension MuxRepository {
    /// A change of a cached value that the server does not have yet.
    ///
    /// ```swift
    /// let change = Backend.todos.change(key: "42") { $0.title = "Milk" }  // visible at once
    /// do {
    ///     try await api.rename("42", "Milk")
    ///     change.commit()
    /// } catch {
    ///     change.undo()
    /// }
    /// ```
    ///
    /// The cache keeps the server's value, and shows the value with all its changes. Changes may overlap, and
    /// may end in any order. After the end of the last change, the value is stale: the next request, or the
    /// view that follows the value, fetches the server's value.
    ///
    /// **Fetches during a change.** A response to a fetch during a change may or may not include the change,
    /// so the response is not kept; callers get the changed value in the cache, if any. A committed change is
    /// shown until the cache gets a newer value: from a fetch that began after the end of all changes, or
    /// from a call of `store`.
    ///
    /// **End.** Only the first call of ``commit()`` or ``undo()`` has an effect. Without a call, the
    /// deallocation of the object undoes the change. A clear or a sign-out removes the value with its
    /// changes. Changes are not saved.
    public final class Change: Sendable {
        /// Ends the change; `nil` after the end.
        private let end: Locked<(@Sendable (_ isCommitted: Bool) -> Void)?>
        private let markUnsent: @Sendable (_ isUnsent: Bool) -> Void

        init(
            mark: @escaping @Sendable (_ isUnsent: Bool) -> Void = { _ in },
            _ end: @escaping @Sendable (_ isCommitted: Bool) -> Void
        ) {
            self.markUnsent = mark
            self.end = Locked(end)
        }

        deinit { self.undo() }

        /// Ends the change as accepted by the server.
        public func commit() { self.end.withLock { $0.take() }?(true) }

        /// Ends the change as refused: the value is shown without the change.
        public func undo() { self.end.withLock { $0.take() }?(false) }

        /// Marks the change as certainly unsent, or as possibly sent.
        ///
        /// A response to a fetch may include a change that is possibly sent.
        package func mark(isUnsent: Bool) { self.markUnsent(isUnsent) }
    }
}

extension MultiplexerCore {
    /// Adds a change, and shows the entry with the change.
    ///
    /// `transform` runs outside the lock. If the entry changes in the meantime, `transform` runs again with
    /// the new entry.
    ///
    /// - Parameters:
    ///   - key: The key.
    ///   - isUnsent: Whether no request has sent the change: only a sent, uncommitted change prevents the
    ///     caching of a response.
    ///   - isOverlay: Whether the uncommitted change stays after a removal of the value, except at the end of
    ///     the session.
    ///   - transform: The change.
    /// - Returns: The change.
    /// - Throws: The error of `transform`.
    func change<Failure: Error>(
        _ key: Key,
        isUnsent: Bool = false,
        isOverlay: Bool = false,
        _ transform: @escaping @Sendable (inout Value) throws(Failure) -> Void
    ) throws(Failure) -> MuxRepository.Change {
        guard key == key else { return MuxRepository.Change { _ in } }
        let (id, session) = (self.engine.nextID(), self.engine.withState { $0.session })
        var change = Layers<Value>.Change(id: id) { try transform(&$0) }
        (change.isUnsent, change.isOverlay) = (isUnsent, isOverlay)
        while true {
            let (entry, version) = self.engine.withState { ($0.shownEntry(key), $0.layers[key]?.version) }
            var shown = entry
            if var value = entry?.value {
                try transform(&value)
                shown?.value = value
            }
            let isAdded = self.update(key, version, entry, isNew: true) { [change, shown] in
                $0.append(change, to: entry, showing: shown, of: key)
            }
            if isAdded { break }
        }
        return MuxRepository.Change(
            mark: { [weak self] in self?.markChange(id, of: key, isUnsent: $0) },
            { [weak self] in self?.endChange(id, of: key, in: session, isCommitted: $0) }
        )
    }

    /// Marks a change as sent or unsent, and fences running fetches, as at the beginning of a change.
    ///
    /// No effect after the end of the change, or if the mark is the same.
    private func markChange(_ id: Ticket, of key: Key, isUnsent: Bool) {
        while true {
            let (entry, former) = self.engine.withState { ($0.shownEntry(key), $0.layers[key]) }
            guard var layers = former, let place = layers.changes.firstIndex(where: { $0.id == id }),
                layers.changes[place].isUnsent != isUnsent
            else { return }
            layers.changes[place].isUnsent = isUnsent
            let isReplaced = self.update(key, former?.version, entry, isNew: false) { [layers] in
                $0.setLayers(layers, of: key, isNew: false)
            }
            guard isReplaced else { continue }
            // A response during the attempt to send the change was not kept: without a value of the server,
            // another fetch is due.
            if !layers.isSending, layers.base == nil { self.refresh(key) }
            return
        }
    }

    private func endChange(_ id: Ticket, of key: Key, in session: UInt64, isCommitted: Bool) {
        while true {
            let (entry, former) = self.engine.withState { ($0.shownEntry(key), $0.layers[key]) }
            guard var layers = former, let place = layers.changes.firstIndex(where: { $0.id == id }) else {
                // The value was removed during the change: a fetch since the removal may return a value
                // without the change.
                let isNewer = self.engine.withState { state in
                    state.session == session && state.slots.slot(of: key)?.entry != nil
                }
                return isNewer || self.engine.isInFlight(key) ? self.refresh(key) : ()
            }
            if isCommitted {
                layers.changes[place].isCommitted = true
            } else {
                layers.changes.remove(at: place)
                layers.show()
            }
            let next = layers.changes.isEmpty ? nil : layers
            let isReplaced = self.update(key, former?.version, entry, isNew: !isCommitted) {
                $0.setLayers(next, of: key, isNew: !isCommitted)
            }
            guard isReplaced else { continue }
            // A fetch is due when no change is being sent: the response then includes all committed changes.
            guard !layers.isSending else { return }
            self.refresh(key)
            return self.memory.withSlots { $0.dropEvictedLayers(of: key) }
        }
    }

    /// Updates the changes of a key, and fences the flights of the key, if the entry is still `entry`, and
    /// the changes still have `version`.
    ///
    /// - Returns: Whether the changes were updated.
    private func update(
        _ key: Key,
        _ version: UInt64?,
        _ entry: Slot<Value>.Entry?,
        isNew: Bool,
        _ body: (inout State) -> Void
    ) -> Bool {
        let isReplaced = self.engine.fenceIf(key) { state in
            let current = state.shownEntry(key)
            guard state.layers[key]?.version == version, current?.revision == entry?.revision,
                current?.sequence == entry?.sequence
            else { return false }
            body(&state)
            return true
        }
        guard isReplaced else { return false }
        self.memory.releaseEvicted()
        if isNew { self.watchers.send(.entry, to: key) }
        return true
    }
}

extension Multiplexer {
    /// The server's entry in memory, without changes; `nil` without an entry.
    package nonisolated var serverEntry: (value: Value, revision: UInt64)? {
        self.core.engine.withState { $0.serverEntry(.sole) }.map { ($0.value, $0.revision) }
    }

    /// Replaces the value of the server's entry, to which any changes of the app still apply; the entry keeps
    /// its age.
    ///
    /// A running fetch continues, and a success replaces the entry.
    ///
    /// - Parameters:
    ///   - value: The new value.
    ///   - revision: The revision of ``serverEntry``.
    /// - Returns: Whether the server's entry still had the revision.
    package nonisolated func replaceValue(by value: Value, ifRevision revision: UInt64) -> Bool {
        let (core, key) = (self.core, SoleKey.sole)
        while true {
            var layers = core.engine.withState { $0.layers[key] }
            let version = layers?.version
            layers?.base?.value = value
            layers?.show()
            var isOutdated = false
            let former = core.memory.withSlots { state -> Slot<Value>.Entry? in
                guard let former = state.serverEntry(key), former.revision == revision else { return nil }
                isOutdated = state.layers[key]?.version != version
                guard !isOutdated else { return nil }
                var entry = former
                (entry.value, entry.revision) = (value, state.nextRevision())
                if let layers {
                    state.put(layers, on: entry, of: key)
                } else {
                    state.withSlot(of: key) { $0.replaceEntry(with: entry) }
                }
                state.withSlot(of: key) { $0.markUnsaved() }
                return former
            }
            if isOutdated { continue }
            guard former != nil else { return false }
            core.changed(key)
            return true
        }
    }

    /// A counter that grows with each clear, sign-out or invalidation.
    package nonisolated var clearCount: UInt64 { self.core.engine.withState { $0.clearCount } }

    /// Shows a change of the cached value at once, such as while a request sends the change to the server.
    ///
    /// If only the disk has a value, the next request shows the value with the change. If neither memory nor
    /// disk has a value, no value is cached until a fetch after the end of the change, or a call of `store`.
    /// The closure can run several times, also for a newer value of the server; if the closure then throws,
    /// the change does not apply.
    ///
    /// - Parameter transform: Changes the value; must not have other effects.
    /// - Returns: The change, to be ended by ``MuxRepository/Change/commit()`` or
    ///   ``MuxRepository/Change/undo()``.
    /// - Throws: The error of `transform`; the value is then unchanged.
    public nonisolated func change<Failure: Error>(
        _ transform: @escaping @Sendable (inout Value) throws(Failure) -> Void
    ) throws(Failure) -> MuxRepository.Change {
        try self.core.change(.sole, transform)
    }

    /// As ``change(_:)``, for a change of an outbox, which stays after a removal of the value.
    package nonisolated func overlay<Failure: Error>(
        isUnsent: Bool,
        _ transform: @escaping @Sendable (inout Value) throws(Failure) -> Void
    ) throws(Failure) -> MuxRepository.Change {
        try self.core.change(.sole, isUnsent: isUnsent, isOverlay: true, transform)
    }
}

extension MultiplexerMap {
    /// Shows a change of the cached value of `key` at once; see ``Multiplexer/change(_:)``.
    ///
    /// - Parameters:
    ///   - key: Any key that is equal to itself; a change of any other key has no effect.
    ///   - transform: Changes the value; must not have other effects.
    /// - Returns: The change, to be ended by ``MuxRepository/Change/commit()`` or
    ///   ``MuxRepository/Change/undo()``.
    /// - Throws: The error of `transform`; the value is then unchanged.
    public nonisolated func change<Failure: Error>(
        key: Key,
        _ transform: @escaping @Sendable (inout Value) throws(Failure) -> Void
    ) throws(Failure) -> MuxRepository.Change {
        try self.core.change(ExactKey(key), transform)
    }

    /// As ``change(key:_:)``, for a change of an outbox, which stays after a removal of the value.
    package nonisolated func overlay<Failure: Error>(
        key: Key,
        isUnsent: Bool,
        _ transform: @escaping @Sendable (inout Value) throws(Failure) -> Void
    ) throws(Failure) -> MuxRepository.Change {
        try self.core.change(ExactKey(key), isUnsent: isUnsent, isOverlay: true, transform)
    }
}
