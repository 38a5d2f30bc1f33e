import MuxKit
import MuxTesting

extension FleetEngine {
    /// A store in this process, which loses everything when it is stopped.
    static func inMemory() -> FleetEngine {
        let store = MemorySharedStore(clock: ContinuousClock())
        return FleetEngine(
            name: "a store in memory",
            connect: {
                let connection = store.connection()
                return Connection(store: connection) { connection.isCut = true }
            },
            start: { store.isDown = false },
            stop: {
                store.isDown = true
                store.loseEverything()
            }
        )
    }
}
