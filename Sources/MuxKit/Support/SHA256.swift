package import Foundation

/// The SHA-256 hash (FIPS 180-4), in one go or part by part.
///
/// ```swift
/// var hash = SHA256()
/// for part in parts { hash.update(part) }
/// let digest = hash.finalize()
/// ```
package struct SHA256: Sendable {
    /// How many bytes a hash has.
    package static let byteCount = 32

    private var core = PlatformSHA256()

    package init() {}

    /// Goes on with `bytes`.
    package mutating func update(_ bytes: some ContiguousBytes) {
        unsafe bytes.withUnsafeBytes { unsafe self.core.update($0) }
    }

    /// Goes on with the text's UTF-8.
    package mutating func update(_ text: String) { self.update(Array(text.utf8)) }

    /// Returns the hash of all that came; nothing may come afterwards.
    package mutating func finalize() -> [UInt8] { self.core.finalize() }

    /// The hash of `bytes`.
    package static func hash(_ bytes: some ContiguousBytes) -> [UInt8] {
        var hash = SHA256()
        hash.update(bytes)
        return hash.finalize()
    }

    /// The hash of `text` in UTF-8.
    package static func hash(_ text: String) -> [UInt8] { self.hash(Array(text.utf8)) }

    /// A hash as 64 lower-case hexadecimal digits.
    package static func text(_ digest: [UInt8]) -> String {
        let digits = Array("0123456789abcdef".utf8)
        return String(decoding: digest.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
    }
}
