public import Foundation

/// Flights of many keys that begin together and read the disk in common calls.
extension MultiplexerCore {
    @usableFromInline typealias Launch = FlightEngine<Key, MuxEntry<Value>, State>.Launch
    /// A flight to start, with its key.
    @usableFromInline typealias KeyedLaunch = (key: Key, launch: Launch)

    /// Starts flights in portions; each portion reads the disk in one call.
    @inlinable
    func launch(_ launches: [KeyedLaunch]) {
        guard let persistence, launches.count > 1 else {
            for (key, launch) in launches { self.engine.launch(launch, of: key) }
            return
        }
        for start in stride(from: 0, to: launches.count, by: Self.portion) {
            let portion = Array(launches[start..<min(start + Self.portion, launches.count)])
            self.startLoading(portion) { await self.begin(portion, persistence) }
        }
    }

    /// Starts the common task of a portion of flights.
    ///
    /// An escalation of any flight escalates the task. A cancellation of a flight does not cancel the task.
    @usableFromInline
    func startLoading(_ portion: [KeyedLaunch], _ work: @escaping @Sendable @concurrent () async -> Void) {
        let task = self.repository.spawn(
            name: "mux.load",
            priority: portion.first?.launch.priority,
            otherwiseOn: FlightExecutor.shared,
            work
        )
        self.engine.setSharedTask(task, of: portion.map(\.launch.flight))
    }

    /// Reads the entries of flights from disk and resumes callers; starts each other flight in a separate
    /// task.
    @inlinable
    func begin(_ portion: [KeyedLaunch], _ persistence: Persistence<Key, Value>) async {
        let start = self.repository.time.now
        let looks = self.engine.withState { state in portion.map { Self.look(for: $0.key, in: state) } }
        // Flights with an entry in memory or a pending removal do not need the disk.
        for ((key, launch), look) in zip(portion, looks) where look == nil { self.engine.launch(launch, of: key) }
        let others = zip(portion, looks).compactMap { flight, look in look.map { (flight, $0) } }
        let names = others.map { persistence.name(of: $0.0.key) }
        guard let stored = await self.stored(names, for: portion, persistence) else {
            for ((key, launch), _) in others { self.engine.launch(launch, of: key) }
            return
        }
        var small: [(KeyedLaunch, DiskLook, MuxStoredEntry)] = []
        for (((key, launch), look), (name, entry)) in zip(others, zip(names, stored)) {
            if let entry, entry.name == name, entry.payload.count <= Self.smallPayload {
                small.append(((key, launch), look, entry))
                continue
            }
            var rest = launch
            rest.work = { [weak self] key, flight in
                var loaded: FormerSlot?
                if let self, let entry, entry.name == name {
                    let found = await self.answer(key, flight, entry, look, persistence, since: start)
                    guard !found.isOver else { return }
                    loaded = found.loaded
                }
                await self?.fly(key, flight, loaded)
            }
            self.engine.launch(rest, of: key)
        }
        for ((key, launch), look, entry) in small {
            let (isOver, loaded) = await self.answer(key, launch.flight, entry, look, persistence, since: start)
            guard !isOver else { continue }
            var rest = launch
            rest.work = { [weak self] key, flight in await self?.fly(key, flight, loaded) }
            self.engine.launch(rest, of: key)
        }
    }

    /// Resumes callers of a flight with a usable stored entry; see ``answerFromDisk(_:_:)``.
    @inlinable
    func answer(
        _ key: Key,
        _ flight: FlightID,
        _ entry: MuxStoredEntry,
        _ look: DiskLook,
        _ persistence: Persistence<Key, Value>,
        since start: Moment
    ) async -> (isOver: Bool, loaded: FormerSlot?) {
        guard let found = await self.loaded(entry, key, persistence, since: start) else { return (false, nil) }
        return self.answer(key, flight, found, look)
    }

    /// Reads the entries of flights, in the order of `names`; `nil` if the store fails.
    @usableFromInline
    func stored(
        _ names: [MuxStoreKey],
        for portion: [KeyedLaunch],
        _ persistence: Persistence<Key, Value>
    ) async -> [MuxStoredEntry?]? {
        guard !names.isEmpty else { return [] }
        let flights = portion.map { self.engine.node($0.launch.flight) }
        return await WaitForGraph.loading(for: flights) {
            guard let stored = try? await self.repository.load(names), stored.count == names.count,
                (try? await self.readRefresh(for: stored, persistence)) != nil
            else { return nil }
            return stored
        }
    }
}
