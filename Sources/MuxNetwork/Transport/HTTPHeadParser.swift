package import Foundation

/// Parses the lines of a response's head and trailers that libcurl delivers (RFC 9112, sections 4, 5 and
/// 7.1.2).
package struct HTTPHeadParser: Sendable {
    private enum State: Sendable {
        case statusLine
        case fields(status: Int)
        /// The head is complete; further fields are trailers.
        case body
    }

    private let limit: Int
    private let url: URL
    private var state = State.statusLine
    private var size = 0
    private var fields = HTTPHeaders()
    /// Whether the previous line belongs to a valid field.
    private var isFieldValid = false

    /// Whether any line has arrived.
    package var hasBegun: Bool { self.size > 0 }

    package private(set) var trailers = HTTPHeaders()

    /// Makes a parser.
    ///
    /// - Parameters:
    ///   - url: The URL of the request.
    ///   - limit: The maximum size of the head in bytes, including interim heads and trailers.
    package init(url: URL, limit: Int) {
        self.url = url
        self.limit = limit
    }

    /// Parses one line, with or without its line end, or several lines of trailers.
    ///
    /// - Returns: The head, if the line completes the head of a final response; otherwise `nil`.
    /// - Throws: ``HTTPError/TransportFailure/headTooLarge(limit:)``;
    ///   ``HTTPError/TransportFailure/notHTTP`` for a malformed status line, a status line after the head of
    ///   the final response, or the end of a head with status 101 (Switching Protocols).
    package mutating func read(_ bytes: some Collection<UInt8>) throws(HTTPError) -> HTTPReply? {
        self.size += bytes.count
        guard self.size <= self.limit else { throw .transport(.headTooLarge(limit: self.limit)) }
        let line = Self.withoutEnd(bytes)
        switch self.state {
        case .statusLine:
            guard let status = Self.status(line) else { throw .notHTTP }
            self.state = .fields(status: status)
        case .fields(let status) where line.isEmpty: return try self.complete(status)
        case .fields: self.append(line, to: \.fields)
        case .body:
            guard !line.starts(with: "HTTP/".utf8) else { throw .notHTTP }
            // libcurl before 8 delivers all trailers of a paused transfer in one piece.
            for line in line.split(separator: 10) where line != [13] {
                self.append(Self.withoutEnd(line), to: \.trailers)
            }
        }
        return nil
    }

    private mutating func complete(_ status: Int) throws(HTTPError) -> HTTPReply? {
        let fields = self.fields
        (self.fields, self.isFieldValid) = ([:], false)
        switch status {
        case 101: throw .notHTTP
        case 100...199:
            self.state = .statusLine
            return nil
        default:
            self.state = .body
            return HTTPReply(status: status, headers: fields, url: self.url)
        }
    }

    /// Parses a status line, such as `HTTP/1.1 200 OK` or `HTTP/2 200`; `nil` if the line is malformed.
    ///
    /// The line must be checked here: libcurl accepts malformed lines, and invents a status.
    private static func status(_ line: [UInt8]) -> Int? {
        let parts = line.split(separator: UInt8(ascii: " "), maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count >= 2, parts[0].starts(with: "HTTP/".utf8), parts[1].count == 3,
            let status = Int(String(decoding: parts[1], as: UTF8.self)), (100...999).contains(status)
        else { return nil }
        let version = parts[0].dropFirst("HTTP/".utf8.count).split(
            separator: UInt8(ascii: "."),
            omittingEmptySubsequences: false
        )
        let isVersion =
            (1...2).contains(version.count)
            && version.allSatisfy { $0.count == 1 && $0.allSatisfy { (48...57).contains($0) } }
        return isVersion ? status : nil
    }

    /// Appends a field.
    ///
    /// A line that begins with a space or a tab continues the previous field (RFC 9112, section 5.2). An
    /// invalid field is skipped, with its continuation lines.
    private mutating func append(_ line: [UInt8], to headers: WritableKeyPath<Self, HTTPHeaders>) {
        let isText = !line.contains { $0 == 0 || $0 == 10 || $0 == 13 }
        if let first = line.first, first == 32 || first == 9 {
            guard isText, self.isFieldValid else { return }
            self[keyPath: headers].continueLast(with: Self.text(line[...]))
            return
        }
        self.isFieldValid = false
        guard isText, let colon = line.firstIndex(of: UInt8(ascii: ":")),
            let name = HTTPHeaders.Name(rawValue: String(decoding: line[..<colon], as: UTF8.self))
        else { return }
        self.isFieldValid = true
        let value = line[(colon + 1)...]
        let isReference = name == .location || name == .contentLocation
        self[keyPath: headers].append(isReference ? Self.reference(value) : Self.text(value), for: name)
    }

    /// Decodes bytes as UTF-8 if they are valid UTF-8, otherwise as ISO 8859-1 (RFC 9110, section 5.5).
    private static func text(_ bytes: ArraySlice<UInt8>) -> String {
        let text =
            String(validating: bytes, as: UTF8.self)
            ?? String(String.UnicodeScalarView(bytes.map { Unicode.Scalar($0) }))
        return HTTPGrammar.trimmed(text)
    }

    /// Decodes a URL reference; if the bytes are not valid UTF-8, all bytes outside ASCII are
    /// percent-encoded.
    ///
    /// ``text(_:)`` would convert the bytes from ISO 8859-1, and so change the target of the reference.
    private static func reference(_ bytes: ArraySlice<UInt8>) -> String {
        guard String(validating: bytes, as: UTF8.self) == nil else { return self.text(bytes) }
        return HTTPGrammar.trimmed(PercentEncoding.encodeIllegal(bytes) { $0 < 128 })
    }

    private static func withoutEnd(_ bytes: some Collection<UInt8>) -> [UInt8] {
        var line = Array(bytes)
        if line.last == 10 { line.removeLast() }
        if line.last == 13 { line.removeLast() }
        return line
    }
}
