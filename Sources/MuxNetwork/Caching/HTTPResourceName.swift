package import Foundation

/// What a URL names, whatever way it is written: RFC 9110, section 4.2.3.
package struct HTTPResourceName: Sendable, Hashable {
    private let origin: HTTPOrigin
    /// Path and query, as they are sent.
    private let target: String

    /// The name of what an absolute `http` or `https` URL names; `nil` for any other.
    package init?(_ url: URL) {
        guard let origin = HTTPOrigin(url) else { return nil }
        self.origin = origin
        let path = url.path(percentEncoded: true)
        let query = url.query(percentEncoded: true).map { "?\($0)" } ?? ""
        self.target = PercentEncoding.normalized((path.isEmpty ? "/" : path) + query)
    }
}
