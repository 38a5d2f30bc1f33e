import Foundation
import MuxTestSupport
import MuxTesting
import Testing

@testable import MuxKit

/// The environment of a test of multiplexers: virtual clock and wall time, a store in memory, counted events
/// and a repository.
struct World: Sendable {
    let clock: VirtualClock
    let events = EventTally()
    let store: any MuxStore
    let repository: MuxRepository
    /// The lead of the wall clock over the virtual clock.
    let wallShift: Locked<Duration>

    static let start = Date(timeIntervalSinceReferenceDate: 800_000_000)

    init(
        store: any MuxStore = MemoryStore(),
        random: @escaping @Sendable () -> Double = { 0.5 },
        spawn: TaskLauncher = TaskLauncher(),
        clock: VirtualClock = VirtualClock(),
        wallShift: Duration = .zero,
        observer: (any MuxObserver)? = nil
    ) {
        self.clock = clock
        let shift = Locked(wallShift)
        self.store = store
        self.wallShift = shift
        self.repository = MuxRepository(
            store: store,
            durability: .relaxed,
            observer: observer ?? self.events,
            time: TimeSource(clock),
            wallTime: {
                let elapsed = clock.now.offset + shift.withLock { $0 }
                return Self.start.addingTimeInterval(Double(elapsed.components.seconds))
            },
            random: random,
            spawn: spawn
        )
    }

    /// A new repository on the same store, as in a process that starts after `downtime`.
    func relaunched(after downtime: Duration = .zero, spawn: TaskLauncher = TaskLauncher()) -> World {
        let shift = self.wallShift.withLock { $0 } + self.clock.now.offset + downtime
        return World(store: self.store, spawn: spawn, wallShift: shift)
    }
}

/// An error of a fetch that is not silenceable.
struct FetchFailed: Error, Equatable {
    var call = 0
}

/// The error of a fetch without a network.
let offline = SilenceableError(FetchFailed())

extension Multiplexer {
    /// Checks that no work is left.
    nonisolated func expectAtRest(_ location: SourceLocation = #_sourceLocation) async {
        let occupancy = await settledOccupancy { self.occupancy }
        #expect(occupancy.waiters == 0, "callers still wait", sourceLocation: location)
        #expect(occupancy.tasks == 0, "tasks still run", sourceLocation: location)
        #expect(occupancy.keys == 0, "flights are still known", sourceLocation: location)
        let hasOptions = self.core.engine.withState { !$0.waiterOptions.isEmpty }
        #expect(!hasOptions, "options of callers are left", sourceLocation: location)
    }
}

extension MultiplexerMap {
    /// Checks that no work is left.
    nonisolated func expectAtRest(_ location: SourceLocation = #_sourceLocation) async {
        let occupancy = await settledOccupancy { self.occupancy }
        #expect(occupancy.waiters == 0, "callers still wait", sourceLocation: location)
        #expect(occupancy.tasks == 0, "tasks still run", sourceLocation: location)
        #expect(occupancy.keys == 0, "flights are still known", sourceLocation: location)
        let hasOptions = self.core.engine.withState { !$0.waiterOptions.isEmpty }
        #expect(!hasOptions, "options of callers are left", sourceLocation: location)
    }
}

extension Multiplexer {
    /// The number of iterators of `values` and `states`: zero at rest.
    nonisolated var watcherCount: Int { self.core.watchers.count }
}

extension MultiplexerMap {
    /// The number of iterators of `values` and `states`: zero at rest.
    nonisolated var watcherCount: Int { self.core.watchers.count }

    /// See ``Locked/acquisitionCount``.
    nonisolated var lockCount: Int? { self.core.engineState.acquisitionCount }

    /// The number of marks (refreshes and pending removals) of entries that are not in memory.
    nonisolated var markCount: Int { self.core.engine.withState { $0.slots.markCount } }

    /// The number of keys with changes that a fetch has not replaced.
    nonisolated var changeCount: Int { self.core.engine.withState { $0.layers.count } }

    /// The number of keys with state for a shared store.
    nonisolated var sharedFactCount: Int { self.core.engine.withState { $0.shared.count } }

    /// The number of remembered failures of keys without an entry.
    nonisolated var failureCount: Int { self.core.engine.withState { $0.slots.failures.count } }
}

extension MuxRepository {
    /// Whether the repository saves when the app enters the background.
    nonisolated var watchesBackground: Bool { self.backgroundNotices.withLock { $0 != nil } }
}

extension DependentRunner {
    /// Checks that no work is left.
    nonisolated func expectAtRest(_ location: SourceLocation = #_sourceLocation) async {
        let occupancy = await settledOccupancy { self.occupancy }
        #expect(occupancy.waiters == 0, "callers still wait", sourceLocation: location)
        #expect(occupancy.tasks == 0, "updates still run", sourceLocation: location)
        #expect(occupancy.keys == 0, "flights are still known", sourceLocation: location)
    }
}

extension Locked<Int> {
    /// Increments the count and returns it.
    func next() -> Int {
        self.withLock { count in
            count += 1
            return count
        }
    }
}
