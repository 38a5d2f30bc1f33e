public import Foundation

/// A server's answer, whatever its status.
///
/// Its description names neither header values nor the body, so it may be logged.
public struct HTTPReply: Sendable, Hashable, CustomStringConvertible, CustomReflectable {
    /// The status code, such as 200.
    public var status: Int

    /// The header fields, their names in lower case; fields of one name are joined by commas.
    public private(set) var headers: [String: String]

    /// The body, decoded from any content encoding; empty if there is none.
    public var body: Data

    /// The URL that answered: another than the one asked after a redirection.
    public var url: URL?

    /// Describes an answer.
    public init(status: Int, headers: [String: String] = [:], body: Data = Data(), url: URL? = nil) {
        self.status = status
        self.headers = Dictionary(headers.map { ($0.key.lowercased(), $0.value) }) { "\($0), \($1)" }
        self.body = body
        self.url = url
    }

    /// The value of a header field, whatever the case of the name's letters.
    public func header(_ name: String) -> String? { self.headers[name.lowercased()] }

    /// Status and size.
    public var description: String { "status \(self.status), \(self.body.count) bytes" }

    /// Shows what ``description`` shows and nothing more.
    public var customMirror: Mirror { Mirror(self, children: ["description": self.description]) }
}
