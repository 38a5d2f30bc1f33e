import Foundation
import MuxKit

/// A secret that proves that whoever exchanges a code is who asked for it: RFC 7636, with the method `S256`.
///
/// Make a new one for each authorization. Its description shows nothing of the verifier.
public struct PKCE: Sendable, Hashable {
    /// The secret, which goes to the token endpoint together with the code.
    public let verifier: String

    /// The value of `code_challenge_method` (section 4.3).
    public static let method = "S256"

    /// A new secret from 32 random bytes, as section 4.1 recommends.
    public init() {
        var random = SystemRandomNumberGenerator()
        self.init(using: &random)
    }

    package init(using random: inout some RandomNumberGenerator) {
        self.verifier = Base64URL.encode(Data((0..<32).map { _ in UInt8.random(in: .min ... .max, using: &random) }))
    }

    /// The secret `verifier`; `nil` if it is not one: 43 to 128 unreserved characters (section 4.1).
    public init?(verifier: String) {
        guard (43...128).contains(verifier.utf8.count), verifier.utf8.allSatisfy({ PercentEncoding.isUnreserved($0) })
        else { return nil }
        self.verifier = verifier
    }

    /// The secret's hash, which goes to the authorization endpoint (section 4.2).
    public var challenge: String { Base64URL.encode(Data(SHA256.hash(self.verifier))) }
}

extension PKCE: CustomStringConvertible, CustomReflectable {
    /// Says what it is, and nothing of the verifier.
    public var description: String { "PKCE(…)" }

    /// Shows nothing of the verifier.
    public var customMirror: Mirror { Mirror(self, children: [:]) }
}
