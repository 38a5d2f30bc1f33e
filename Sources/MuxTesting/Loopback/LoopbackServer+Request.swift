public import Foundation

extension LoopbackServer {
    /// A received request.
    public struct Request: Sendable {
        /// The method as sent, such as `GET`.
        public var method: String

        /// Path and query as sent.
        public var target: String

        /// The HTTP version: `HTTP/1.1` or `HTTP/1.0`.
        public var version = "HTTP/1.1"

        /// Names and values of the header fields, in order.
        public var headers: [(name: String, value: String)]

        /// The body; empty if absent.
        public var body: Data

        /// The path as sent, percent-encoded, without the query.
        public var path: String { String(self.target.prefix { $0 != "?" }) }

        /// The nonempty segments of the path, percent-decoded; a segment with invalid escapes is unchanged.
        public var segments: [String] {
            self.path.split(separator: "/").map { $0.removingPercentEncoding ?? String($0) }
        }

        /// The value of the first header field with this name, compared case-insensitively.
        public func header(_ name: String) -> String? {
            let name = name.lowercased()
            return self.headers.first { $0.name.lowercased() == name }?.value
        }

        /// Whether the request lets the connection stay open (RFC 9112, section 9.3).
        var keepsAlive: Bool {
            let options = ConnectionOptions(self.headers)
            return !options.contains("close")
                && (self.version != "HTTP/1.0" || options.contains("keep-alive"))
        }

        /// The token of the first `Authorization` field; `nil` without the field, or with another scheme than
        /// `Bearer`.
        public var bearerToken: String? {
            guard let value = self.header("Authorization"), value.lowercased().hasPrefix("bearer ") else { return nil }
            return String(value.dropFirst("bearer ".count))
        }

        /// The fields of the body.
        ///
        /// With the type `application/json`, the body must be an object whose values are strings; otherwise
        /// the result is empty. With another type, the body is read as a URL-encoded form.
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
}

/// The options in the `Connection` fields of a message, in lower case (RFC 9110, section 7.6.1).
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

/// A parser of requests, for the subset of HTTP/1.1 used in tests.
package struct LoopbackRequestParser: Sendable {
    package enum Step: Sendable {
        /// More bytes are needed.
        case needsMore
        /// The client asks for `100 Continue` before the body (RFC 9110, section 10.1.1).
        case sendContinue
        /// A complete request; its bytes are removed from the buffer.
        case request(LoopbackServer.Request)
        /// The bytes are not an acceptable request: respond with this status and close.
        case refuse(status: Int)
    }

    private struct Head: Sendable {
        var request: LoopbackServer.Request
        var bodyLength: Int
    }

    private let headerLimit: Int
    private let bodyLimit: Int
    private var buffer: [UInt8] = []
    private var head: Head?

    package init(headerLimit: Int, bodyLimit: Int) {
        self.headerLimit = headerLimit
        self.bodyLimit = bodyLimit
    }

    /// Whether the buffer has space for more bytes while the server processes a request.
    package var canTakeMore: Bool { self.buffer.count <= self.headerLimit + self.bodyLimit }

    package mutating func append(_ bytes: [UInt8]) { self.buffer += bytes }

    package mutating func next() -> Step {
        if self.head == nil {
            guard let end = self.buffer.firstRange(of: [13, 10, 13, 10])?.upperBound else {
                return self.buffer.count > self.headerLimit ? .refuse(status: 431) : .needsMore
            }
            guard end <= self.headerLimit else { return .refuse(status: 431) }
            let head: Head
            do { head = try self.parseHead(self.buffer.prefix(end)) } catch { return .refuse(status: error.status) }
            self.buffer.removeFirst(end)
            self.head = head
            let expects = head.request.header("Expect")?.lowercased() == "100-continue"
            if expects, head.request.version != "HTTP/1.0", self.buffer.count < head.bodyLength {
                return .sendContinue
            }
        }
        guard var head = self.head, self.buffer.count >= head.bodyLength else { return .needsMore }
        head.request.body = Data(self.buffer.prefix(head.bodyLength))
        self.buffer.removeFirst(head.bodyLength)
        self.head = nil
        return .request(head.request)
    }

    private struct Refusal: Error {
        var status: Int
    }

    private func parseHead(_ bytes: ArraySlice<UInt8>) throws(Refusal) -> Head {
        guard let text = String(validating: bytes, as: UTF8.self) else { throw Refusal(status: 400) }
        let lines = text.split(separator: "\r\n", omittingEmptySubsequences: true)
        let start = (lines.first ?? "").split(separator: " ", omittingEmptySubsequences: false)
        guard start.count == 3, start[0].allSatisfy(\.isHTTPToken), !start[0].isEmpty, start[1].hasPrefix("/"),
            start[2] == "HTTP/1.1" || start[2] == "HTTP/1.0"
        else { throw Refusal(status: 400) }

        var headers: [(name: String, value: String)] = []
        for line in lines.dropFirst() {
            let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
            guard parts.count == 2, !parts[0].isEmpty, parts[0].allSatisfy(\.isHTTPToken) else {
                throw Refusal(status: 400)
            }
            headers.append((String(parts[0]), parts[1].trimmingCharacters(in: .whitespaces)))
        }
        let request = LoopbackServer.Request(
            method: String(start[0]),
            target: String(start[1]),
            version: String(start[2]),
            headers: headers,
            body: Data()
        )
        guard request.header("Transfer-Encoding") == nil else { throw Refusal(status: 411) }
        let lengths = Set(headers.filter { $0.name.lowercased() == "content-length" }.map(\.value))
        let length = lengths.first ?? "0"
        guard lengths.count <= 1, length.utf8.allSatisfy({ (48...57).contains($0) }),
            let bodyLength = Int(length)
        else { throw Refusal(status: 400) }
        guard bodyLength <= self.bodyLimit else { throw Refusal(status: 413) }
        return Head(request: request, bodyLength: bodyLength)
    }
}

extension Character {
    /// Whether the character is allowed in a token: RFC 9110, section 5.6.2.
    fileprivate var isHTTPToken: Bool {
        self.isASCII && (self.isLetter || self.isNumber || "!#$%&'*+-.^_`|~".contains(self))
    }
}
