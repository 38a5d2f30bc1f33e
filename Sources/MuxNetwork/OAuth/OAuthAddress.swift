import Foundation

/// Which addresses OAuth may use, and what their queries keep.
enum OAuthAddress {
    /// Whether a person, a code or a token may go to an endpoint: RFC 6749, sections 3.1 and 3.2.
    ///
    /// An absolute `https` URL without a fragment, or one of `http` on this machine (RFC 8252, section 7.3).
    static func isSafeEndpoint(_ url: URL) -> Bool {
        guard let origin = HTTPOrigin(url), url.fragment() == nil else { return false }
        return origin.isSecure || origin.isLoopback
    }

    /// Whether a code may be sent to a redirection: RFC 6749, section 3.1.2, and RFC 9700, section 2.6.
    ///
    /// An endpoint as above, or an address of an app's own scheme (RFC 8252, section 7.1); never one that a browser runs or reads
    /// by itself.
    static func isSafeRedirection(_ text: String) -> Bool {
        guard let url = URL(string: text), let scheme = url.scheme?.lowercased() else { return false }
        switch scheme {
        case "http", "https": return self.isSafeEndpoint(url)
        case "javascript", "vbscript", "data", "blob", "about", "file", "filesystem", "view-source", "ws", "wss", "ftp":
            return false
        default: return url.fragment() == nil
        }
    }

    /// The URL without the parameters of its own query that have one of `names`; the others stay byte for byte.
    ///
    /// RFC 6749, sections 3.1 and 3.2: an endpoint may have a query, and no parameter is sent twice.
    static func removing(_ names: Set<String>, from url: URL) -> URL? {
        guard let query = url.query(percentEncoded: true) else { return url }
        let rest = query.split(separator: "&").filter { pair in
            !names.contains(PercentEncoding.decode(pair.prefix { $0 != "=" }, plusIsBlank: true))
        }
        let base = url.absoluteString.prefix { $0 != "?" }
        return URL(string: rest.isEmpty ? String(base) : "\(base)?\(rest.joined(separator: "&"))")
    }
}
