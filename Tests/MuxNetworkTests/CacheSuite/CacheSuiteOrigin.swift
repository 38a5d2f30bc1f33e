import Foundation
import MuxConformance
import MuxKit
import MuxTesting

/// The origin server of the suite, which all tests share and which distinguishes tests by path.
///
/// The server uses real connections and sends the same responses as upstream's server on Node.js, byte for
/// byte where a cache can see a difference.
final class CacheSuiteOrigin: Sendable {
    private let sessions: Locked<[String: CacheSuiteSession]>
    private let server: RawServer
    let url: URL

    /// Starts the server.
    init() throws {
        let sessions = Locked<[String: CacheSuiteSession]>([:])
        self.sessions = sessions
        self.server = RawServer { connection in
            while true {
                let request = try connection.readRequest()
                let token = request.target.split(whereSeparator: { "/?".contains($0) }).dropFirst().first
                guard let session = sessions.withLock({ $0[String(token ?? "")] }) else {
                    try connection.respond(404)
                    continue
                }
                guard let answer = session.answer(request) else { return }
                try connection.write(answer.bytes)
                if answer.closes { return }
            }
        }
        self.url = try self.server.start()
    }

    func stop() async { await self.server.stop() }

    /// Registers a test under a unique URL.
    func open(_ test: CacheSuiteTest, clock: VirtualClock, wallTime: @escaping @Sendable () -> Date)
        -> CacheSuiteSession
    {
        let token = UUID().uuidString.lowercased()
        let session = CacheSuiteSession(test, token: token, base: self.url, clock: clock, wallTime: wallTime)
        self.sessions.withLock { $0[token] = session }
        return session
    }
}

/// The server's part of one test: upstream's `handle-test.mjs`.
final class CacheSuiteSession: Sendable {
    /// A request as received by the server.
    struct Seen: Sendable {
        /// The client's number of the request.
        var number: Int?
        var method: String
        /// Field values by lower-case name, with joined lines.
        var headers: [String: String]
        /// The response fields that the client must receive.
        var expected: [(name: String, value: String)] = []
    }

    private struct State: Sendable {
        var seen: [Seen] = []
        /// The response fields sent for each request of the test, by the request's number from 1.
        var sent: [Int: [(name: String, value: String)]] = [:]
    }

    private typealias Lines = [(name: String, values: [String])]

    let token: String
    private let test: CacheSuiteTest
    private let base: URL
    private let clock: VirtualClock
    private let wallTime: @Sendable () -> Date
    private let state = Locked(State())

    init(
        _ test: CacheSuiteTest,
        token: String,
        base: URL,
        clock: VirtualClock,
        wallTime: @escaping @Sendable () -> Date
    ) {
        self.test = test
        self.token = token
        self.base = base
        self.clock = clock
        self.wallTime = wallTime
    }

    /// The requests so far, in order.
    var seen: [Seen] { self.state.withLock { $0.seen } }

    /// The URL of a request of this test.
    func url(of request: CacheSuiteRequest) -> URL? {
        let file = request.fileName.map { "/\($0)" } ?? ""
        let query = request.queryArgument.map { "?\($0)" } ?? ""
        return URL(string: "\(self.base.absoluteString)/test/\(self.token)\(file)\(query)")
    }

    /// Whether each request gets a separate connection.
    ///
    /// libcurl resends a request if a reused connection ends without a response.
    private var closesEach: Bool { self.test.requests.contains { $0.disconnects } }

    /// Makes the response to a request.
    ///
    /// - Returns: The bytes, and whether the connection ends afterwards; `nil` to end it without a response.
    fileprivate func answer(_ request: RawRequest) -> (bytes: [UInt8], closes: Bool)? {
        let headers = Dictionary(request.fields.map { ($0.name.lowercased(), $0.value) }) { "\($0), \($1)" }
        let clientNumber = headers["req-num"].flatMap { Int($0) }
        let place = clientNumber ?? self.seen.count + 1
        guard self.test.requests.indices.contains(place - 1) else {
            return (Array("HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n".utf8), false)
        }
        let config = self.test.requests[place - 1]
        if let pause = config.responsePause { self.clock.advance(by: .seconds(pause)) }
        let now = self.wallTime()

        let (status, lines) = self.state.withLock { state -> (CacheSuiteStatus, Lines) in
            let status = self.status(config, place, headers, state)
            let count = state.seen.count + 1
            var lines: Lines = [
                ("Server-Base-Url", [request.target]), ("Server-Request-Count", [String(count)]),
                ("Client-Request-Count", [clientNumber.map { String($0) } ?? "NaN"]),
                ("Server-Now", [String(Int(now.timeIntervalSince1970 * 1000))]),
            ]
            var seen = Seen(number: clientNumber, method: request.method, headers: headers)
            let fields = self.fields(config, place, request.target, now, &state)
            for (field, text) in zip(config.responseHeaders, fields.map(\.value)) {
                let values = Self.add(text, for: field.name, to: &lines)
                guard field.isExpected else { continue }
                seen.expected.removeAll { $0.name == field.name }
                seen.expected.append((field.name, values.joined(separator: ", ")))
            }
            if !Self.has("Content-Type", lines) { lines.append(("Content-Type", ["text/plain"])) }
            state.seen.append(seen)
            let numbers = state.seen.map { $0.number.map { String($0) } ?? "NaN" }
            lines.append(("Request-Numbers", [numbers.joined(separator: " ")]))
            return (status, lines)
        }
        guard !config.disconnects else { return nil }
        return self.bytes(config, request.method, status, lines, now)
    }

    private func status(
        _ config: CacheSuiteRequest,
        _ place: Int,
        _ headers: [String: String],
        _ state: State
    ) -> CacheSuiteStatus {
        guard config.expectedType?.isValidated == true else { return config.responseStatus ?? .init(200, "OK") }
        func before(_ name: String) -> String? {
            if let sent = state.sent[place - 1] { return sent.last { $0.name.lowercased() == name }?.value }
            guard place > 1 else { return nil }
            let field = self.test.requests[place - 2].responseHeaders.last { $0.name.lowercased() == name }
            return field?.text(now: nil)
        }
        let conditions = [("last-modified", "if-modified-since"), ("etag", "if-none-match")]
        let isMet = conditions.contains { validator, condition in
            before(validator).map { headers[condition] == $0 } ?? false
        }
        return isMet ? .init(304, "Not Modified") : .init(999, "304 Not Generated")
    }

    /// The response fields, in which a date relative to now keeps the value of the first response.
    private func fields(
        _ config: CacheSuiteRequest,
        _ place: Int,
        _ target: String,
        _ now: Date,
        _ state: inout State
    ) -> [(name: String, value: String)] {
        if let sent = state.sent[place] { return sent }
        let base = config.fixesLocations ? target : nil
        let fields = config.responseHeaders.map { field in
            (name: field.name, value: field.text(now: now, base: base, datesInRFC850: config.datesInRFC850))
        }
        state.sent[place] = fields
        return fields
    }

    // MARK: - Bytes

    private func bytes(
        _ config: CacheSuiteRequest,
        _ method: String,
        _ status: CacheSuiteStatus,
        _ lines: Lines,
        _ now: Date
    ) -> (bytes: [UInt8], closes: Bool) {
        var lines = lines
        if !Self.has("Date", lines) { lines.append(("Date", [CacheSuiteDate.text(now)])) }
        if self.closesEach {
            lines.append(("Connection", ["close"]))
        } else if !Self.has("Connection", lines) {
            lines.append(("Connection", ["keep-alive"]))
        }
        var body = Self.latin1(config.responseBody ?? self.token)
        let hasBody = method != "HEAD" && status.code != 204 && status.code != 304
        var endsWithConnection = false
        if !hasBody {
            body = []
        } else if let length = lines.first(where: { $0.name.lowercased() == "content-length" })?.values.first {
            body = Array(body.prefix(Int(length) ?? 0))
        } else if Self.has("Transfer-Encoding", lines) {
            // RFC 9112, section 6.3: the end of the connection ends a body without `chunked` coding.
            endsWithConnection = true
        } else {
            lines.append(("Content-Length", [String(body.count)]))
        }
        var head = ""
        for interim in config.interimResponses {
            head += "HTTP/1.1 \(interim.status) -\r\n"
            for field in interim.headers { head += "\(field.name): \(field.text(now: now))\r\n" }
            head += "\r\n"
        }
        head += "HTTP/1.1 \(status.code) \(status.phrase)\r\n"
        for line in lines { for value in line.values { head += "\(line.name): \(value)\r\n" } }
        return (Self.latin1(head + "\r\n") + body, endsWithConnection || self.closesEach)
    }

    private static func has(_ name: String, _ lines: Lines) -> Bool {
        lines.contains { $0.name.lowercased() == name.lowercased() }
    }

    /// Adds a field line and keeps other lines of the same name, as Node.js does.
    ///
    /// - Returns: All values of the name.
    private static func add(_ value: String, for name: String, to lines: inout Lines) -> [String] {
        guard let index = lines.firstIndex(where: { $0.name.lowercased() == name.lowercased() }) else {
            lines.append((name, [value]))
            return [value]
        }
        lines[index].values.append(value)
        return lines[index].values
    }

    /// ISO 8859-1, as Node.js writes heads; UTF-8 for other characters.
    private static func latin1(_ text: String) -> [UInt8] {
        let bytes = text.unicodeScalars.compactMap { UInt8(exactly: $0.value) }
        return bytes.count == text.unicodeScalars.count ? bytes : Array(text.utf8)
    }
}
