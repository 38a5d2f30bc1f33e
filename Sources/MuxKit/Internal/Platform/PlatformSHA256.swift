#if canImport(CryptoKit)
import CryptoKit

/// The system's SHA-256.
///
/// Written from the documentation; compiled here against stand-ins only (`.ci/apple-lines`):
/// https://developer.apple.com/documentation/cryptokit/sha256
struct PlatformSHA256: Sendable {
    private var hash = CryptoKit.SHA256()

    mutating func update(_ bytes: UnsafeRawBufferPointer) {
        unsafe self.hash.update(bufferPointer: bytes)
    }

    mutating func finalize() -> [UInt8] { Array(self.hash.finalize()) }
}
#else
/// The package's SHA-256.
typealias PlatformSHA256 = PortableSHA256
#endif
