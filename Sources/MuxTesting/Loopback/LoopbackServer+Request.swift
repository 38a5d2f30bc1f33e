public import Foundation

/// A request as a ``LoopbackServer`` received it.
public struct LoopbackRequest: Sendable {
    /// The method, such as `GET`, as it was sent.
    public var method: String

    /// Path and query, as they were sent.
    public var target: String

    /// The version of HTTP that the client speaks: `HTTP/1.1` or `HTTP/1.0`.
    public var version = "HTTP/1.1"

    /// Names and values of the header fields, in order.
    public var headers: [(name: String, value: String)]

    /// The body; empty if there is none.
    public var body: Data

    /// The path as it was sent, still percent-encoded, without the query.
    public var path: String { String(self.target.prefix { $0 != "?" }) }

    /// The segments of the path, decoded one by one.
    public var segments: [String] {
        self.path.split(separator: "/").map { $0.removingPercentEncoding ?? String($0) }
    }

    /// The value of the first header field of that name, whatever the case of its letters.
    public func header(_ name: String) -> String? {
        let name = name.lowercased()
        return self.headers.first { $0.name.lowercased() == name }?.value
    }

    /// Whether the client may send another request on the same connection (RFC 9112, section 9.3).
    var keepsAlive: Bool {
        let options = ConnectionOptions(self.headers)
        return !options.contains("close")
            && (self.version != "HTTP/1.0" || options.contains("keep-alive"))
    }

    /// The token of an `Authorization: Bearer …` field.
    public var bearerToken: String? {
        guard let value = self.header("Authorization"), value.lowercased().hasPrefix("bearer ") else { return nil }
        return String(value.dropFirst("bearer ".count))
    }

    /// The fields of the body: of a JSON object whose values are text, or of a submitted form.
    public var fields: [String: String] {
        if self.header("Content-Type")?.lowercased().hasPrefix("application/json") == true {
            return (try? JSONDecoder().decode([String: String].self, from: self.body)) ?? [:]
        }
        var fields: [String: String] = [:]
        for pair in String(decoding: self.body, as: UTF8.self).split(separator: "&") {
            let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map { part in
                let spaced = String(part.map { $0 == "+" ? " " : $0 })
                return spaced.removingPercentEncoding ?? spaced
            }
            fields[parts[0]] = parts.count > 1 ? parts[1] : ""
        }
        return fields
    }
}

/// What the `Connection` fields of a message say, in lower case (RFC 9110, section 7.6.1).
struct ConnectionOptions: Sendable {
    private let options: Set<String>

    init(_ headers: [(name: String, value: String)]) {
        let fields = headers.filter { $0.name.lowercased() == "connection" }
        self.options = Set(
            fields.flatMap { $0.value.lowercased().split(separator: ",") }
                .map { $0.trimmingCharacters(in: .whitespaces) }
        )
    }

    func contains(_ option: String) -> Bool { self.options.contains(option) }
}
