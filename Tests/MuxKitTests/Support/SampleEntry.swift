import Foundation
import MuxKit

/// An entry for tests whose value contains `number`.
func sample(_ key: String?, _ number: Int = 1, domain: String = "users", epoch: UInt64 = 0) -> MuxStoredEntry {
    MuxStoredEntry(
        name: MuxStoreKey(domain: domain, key: key),
        schemaVersion: 1,
        sessionEpoch: epoch,
        fetchedAt: Date(timeIntervalSince1970: 1_767_225_600.5),
        timeToLive: .seconds(1800),
        validator: nil,
        payload: Data("{\"number\":\(number)}".utf8)
    )
}

func name(_ key: String?, domain: String = "users") -> MuxStoreKey { MuxStoreKey(domain: domain, key: key) }
