import Foundation
import MuxKit

/// A substitute for a cipher in tests: does not protect a secret, but detects every change.
struct ToySeal: Sendable {
    struct Refused: Error {}

    let key: UInt8

    @Sendable func seal(_ data: Data) throws -> Data {
        let hidden = Data(data.map { $0 ^ 0x5a ^ self.key })
        return hidden + Hex.bytes(of: self.hash(hidden))
    }

    @Sendable func open(_ data: Data) throws -> Data {
        let hidden = data.dropLast(16)
        guard Hex.value(of: data.suffix(16)) == self.hash(hidden) else { throw Refused() }
        return Data(hidden.map { $0 ^ 0x5a ^ self.key })
    }

    private func hash(_ data: some Sequence<UInt8>) -> UInt64 { FNV.hash([self.key] + Array(data)) }
}
