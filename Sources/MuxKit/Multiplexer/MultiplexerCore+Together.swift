/// Flights of many keys that begin together, and look at the disk in one call.
extension MultiplexerCore {
    @usableFromInline typealias Launch = FlightEngine<Key, MuxEntry<Value>, State>.Launch
    /// A flight that has to start.
    @usableFromInline typealias KeyedLaunch = (key: Key, launch: Launch)

    /// Starts flights, in portions that share a look at the disk.
    @inlinable
    func launch(_ launches: [KeyedLaunch]) {
        guard let persistence, launches.count > 1 else {
            for (key, launch) in launches { self.engine.launch(launch, of: key) }
            return
        }
        for start in stride(from: 0, to: launches.count, by: Self.portion) {
            let portion = Array(launches[start..<min(start + Self.portion, launches.count)])
            self.startLoading(portion.first?.launch.priority) { await self.begin(portion, persistence) }
        }
    }

    /// Starts a task that works for flights.
    @usableFromInline
    func startLoading(_ priority: TaskPriority?, _ work: @escaping @Sendable @concurrent () async -> Void) {
        self.repository.spawn(
            name: "mux.load",
            priority: priority,
            otherwiseOn: FlightExecutor.shared,
            work
        )
    }

    /// Begins flights: answers those that the disk can answer, and has each of the others go on in a task of its own.
    @inlinable
    func begin(_ portion: [KeyedLaunch], _ persistence: Persistence<Key, Value>) async {
        let start = self.repository.time.now
        let looks = self.engine.withState { state in portion.map { Self.look(for: $0.key, in: state) } }
        let names = zip(portion, looks).compactMap { $1 == nil ? nil : persistence.name(of: $0.key) }
        let stored = await self.stored(names, for: portion, persistence)
        var next = 0
        for ((key, launch), look) in zip(portion, looks) {
            // Without an answer of the store, or with an entry in memory, the flight finds out alone.
            guard let look, let stored else {
                self.engine.launch(launch, of: key)
                continue
            }
            defer { next += 1 }
            var (isOver, loaded): (Bool, Slot<Value>?) = (false, nil)
            if let entry = stored[next], entry.name == names[next],
                let found = await self.loaded(entry, key, persistence, since: start)
            {
                (isOver, loaded) = self.answer(key, launch.flight, found, look)
            }
            guard !isOver else { continue }
            var rest = launch
            rest.work = { [weak self, loaded] key, flight in await self?.fly(key, flight, loaded) }
            self.engine.launch(rest, of: key)
        }
    }

    /// Reads the entries with `names`, in their order, for flights; `nil` if the store fails.
    @usableFromInline
    func stored(
        _ names: [MuxStoreKey],
        for portion: [KeyedLaunch],
        _ persistence: Persistence<Key, Value>
    ) async -> [MuxStoredEntry?]? {
        guard !names.isEmpty else { return [] }
        let flights = portion.map { self.engine.node($0.key, $0.launch.flight) }
        return await WaitForGraph.loading(for: flights) {
            guard let stored = try? await self.repository.load(names), stored.count == names.count,
                (try? await self.readRefresh(persistence)) != nil
            else { return nil }
            return stored
        }
    }
}
