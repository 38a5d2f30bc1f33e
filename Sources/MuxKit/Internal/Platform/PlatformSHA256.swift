#if canImport(CryptoKit)
import CryptoKit

/// The system's SHA-256.
///
/// https://developer.apple.com/documentation/cryptokit/sha256
///
/// Written from Apple's documentation. `.ci/apple-lines` compiles the type on Linux against stubs of Apple's
/// modules; no Apple SDK has compiled the type.
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
