import Engines
import MuxConformance
import MuxKit
import MuxTesting
import MuxValkey
import Synchronization
import Testing

extension Engine.Program: CustomTestStringConvertible {
    /// The last components of the path.
    public var testDescription: String { self.name }
}

extension Engine {
    func configuration(_ prefix: String) -> MuxValkey.Configuration { .patient([self.address], prefix: prefix) }

    /// A connected store.
    func store(_ prefix: String, _ change: (inout MuxValkey.Configuration) -> Void = { _ in }) async -> MuxValkey {
        var configuration = self.configuration(prefix)
        change(&configuration)
        let store = MuxValkey(configuration)
        await store.waitUntilConnected()
        return store
    }
}

extension MuxValkey.Configuration {
    /// A configuration with long time limits, for a busy machine.
    static func patient(_ addresses: [MuxValkey.Address], prefix: String) -> MuxValkey.Configuration {
        var configuration = MuxValkey.Configuration(addresses: addresses, prefix: prefix)
        configuration.connectTimeout = .seconds(30)
        configuration.heartbeat = .seconds(30)
        return configuration
    }
}

extension MuxValkey {
    /// Waits for a connection.
    func waitUntilConnected() async {
        let changes = self.changes()
        if (try? await self.link.session()) != nil { return }
        for await change in changes where change == .unknown { return }
    }
}

/// Checks the rules of a shared store; `makeStores` receives a separate prefix for each rule.
func checkConformance(
    _ makeStores: @escaping @Sendable @concurrent (_ prefix: String) async -> (any MuxSharedStore, any MuxSharedStore)
) async throws {
    let number = Mutex(0)
    try await MuxSharedStoreConformance.run(
        unit: .seconds(1),
        advancing: { try? await Task.sleep(for: $0) },
        of: {
            let prefix = number.withLock { number in
                number += 1
                return "rule \(number)"
            }
            return await makeStores(prefix)
        }
    )
}
