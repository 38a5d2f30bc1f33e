package import Foundation

/// Scheme, host and port of a URL: what credentials belong to (RFC 6454).
package struct HTTPOrigin: Sendable, Hashable {
    package var scheme: String
    package var host: String
    package var port: Int

    /// The origin of an absolute `http` or `https` URL; `nil` for any other.
    package init?(_ url: URL) {
        guard let scheme = url.scheme?.lowercased(), let host = url.host()?.lowercased(), !host.isEmpty else {
            return nil
        }
        switch scheme {
        case "http": self.port = url.port ?? 80
        case "https": self.port = url.port ?? 443
        default: return nil
        }
        self.scheme = scheme
        self.host = host
    }

    package var isSecure: Bool { self.scheme == "https" }

    /// Whether it is on this machine: by the name that is always its own (RFC 6761, section 6.3), or by its address.
    package var isLoopback: Bool {
        if ["localhost", "::1", "[::1]"].contains(self.host) { return true }
        let parts = self.host.split(separator: ".", omittingEmptySubsequences: false)
        let isAddress = parts.allSatisfy { $0.utf8.allSatisfy { (48...57).contains($0) } && UInt8($0) != nil }
        return isAddress && parts.count == 4 && parts[0] == "127"
    }
}
