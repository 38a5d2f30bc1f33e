import Foundation
import MuxNetwork

/// Servers in other processes, started by the scripts in `Tests/Interop`.
enum Interop {
    static let oauth = Self.url("MUX_INTEROP_OAUTH")
    static let nginx = Self.url("MUX_INTEROP_NGINX")
    static let otherNginx = Self.url("MUX_INTEROP_NGINX_OTHER")
    static let httpbin = Self.url("MUX_INTEROP_HTTPBIN")
    static let proxy = Self.url("MUX_INTEROP_PROXY")
    static let tls = Self.url("MUX_INTEROP_TLS")
    static let tlsOfAnotherName = Self.url("MUX_INTEROP_TLS_WRONG")
    static let expiredTLS = Self.url("MUX_INTEROP_TLS_EXPIRED")
    static let authority = ProcessInfo.processInfo.environment["MUX_INTEROP_AUTHORITY"].map { URL(filePath: $0) }
    static let mutual = Self.url("MUX_INTEROP_MUTUAL")
    static let mutualOfOpenSSL = Self.url("MUX_INTEROP_MUTUAL_OPENSSL")
    static let nginxFolder = ProcessInfo.processInfo.environment["MUX_INTEROP_NGINX_FOLDER"]

    /// The servers by name, such as `nginx-13-h2` for nginx with TLS 1.3 and HTTP/2.
    static let wire: [String: URL] = {
        let pairs = (ProcessInfo.processInfo.environment["MUX_INTEROP_WIRE"] ?? "").split(separator: " ").compactMap {
            let parts = $0.split(separator: "=", maxSplits: 1).map { String($0) }
            return parts.count == 2 ? URL(string: parts[1]).map { (parts[0], $0) } : nil
        }
        return Dictionary(pairs) { first, _ in first }
    }()

    private static func url(_ name: String) -> URL? {
        ProcessInfo.processInfo.environment[name].flatMap { URL(string: $0) }
    }
}

/// A GET request below a URL that is known only at run time.
struct GetFrom<Output: Decodable & Sendable>: HTTPRequest {
    var base: URL
    var path: String
    var headers: HTTPHeaders = [:]
    var endpoint: HTTPEndpoint {
        .init(
            scheme: .http,
            host: HTTPHost(self.base.host() ?? "", port: self.base.port ?? 80),
            path: .init(stringLiteral: self.path)
        )
    }
    var method: HTTPMethod { .get }
}
