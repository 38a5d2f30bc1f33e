import Foundation
import MuxConformance
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Seeded mutations of responses, over real connections.
///
/// `MUX_FUZZ=100` multiplies the number of mutations by 100. `MUX_SEED=7` starts with the seed 7.
@Suite(.standard(minutes: 60))
struct TransportFuzzTests {
    private static let silence = Duration.milliseconds(250)
    private let fuzz = FuzzRun()

    init() { self.fuzz.announce() }

    /// Responds to `/mutated/7` with the response and the ending of seed 7, and to other requests with
    /// `right`.
    private static let script: RawServer.Script = { connection in
        while true {
            let target = try connection.readRequest().target
            guard target.hasPrefix("/mutated/"), let seed = UInt64(target.dropFirst("/mutated/".count)) else {
                try connection.respond(200, "right")
                continue
            }
            let answer = MutatedAnswer(seed: seed)
            for piece in answer.pieces { try connection.write(piece) }
            switch answer.ending {
            case .fin: return
            case .rst: return connection.resetAtEnd()
            case .silence: return connection.waitForEnd()
            }
        }
    }

    @Test func `TR-02 mutated responses over a connection are right or typed errors in time`() async throws {
        let server = RawServer(Self.script)
        let base = try server.start()
        let (count, lanes) = (300 * self.fuzz.factor, 8)
        let tally = Locked<[String: Int]>([:])
        await withTaskGroup { group in
            for lane in 0..<lanes {
                group.addTask {
                    for number in stride(from: lane, to: count, by: lanes) {
                        let outcome = await self.tryOne(self.fuzz.seed &+ UInt64(number), base)
                        tally.withLock { $0[outcome, default: 0] += 1 }
                    }
                }
            }
        }
        if self.fuzz.factor > 1 { print("TR-02: \(count) answers, \(tally.withLock { $0 })") }
        await server.stop()
    }

    /// - Returns: The name of the outcome.
    private func tryOne(_ seed: UInt64, _ base: URL) async -> String {
        let answer = MutatedAnswer(seed: seed)
        let text: Comment = "MUX_SEED=\(seed)"
        var call = HTTPCall(method: answer.isForHead ? "HEAD" : "GET", url: base.appending(path: "mutated/\(seed)"))
        if answer.ending == .silence { call.timeout = Self.silence }
        var options = HTTPTransportConfiguration()
        options.usesProxies = false
        // A mutated `Location` may name any host.
        options.maximumRedirects = 0
        (options.timeout, options.deadline) = (.seconds(60), .seconds(120))
        // A separate transport, because a client may take bytes after a complete response for the response to
        // its next request.
        let transport = SystemTransport(options)
        defer { #expect(transport.pendingCount == 0, text) }
        if seed.isMultiple(of: 4) {
            // The mutated response arrives on the connection of this request.
            let reply = try? await transport.send(HTTPCall(url: base.appending(path: "right")))
            #expect(reply?.status == 200 && reply?.body == Data("right".utf8), text)
        }
        let start = ContinuousClock.now
        defer { #expect(start.duration(to: .now) < .busyMachine, text) }
        do {
            let reply = try await transport.send(call)
            if let flaw = answer.flaw(in: reply) { Issue.record("\(text): \(flaw): \(answer.description)") }
            return "answer"
        } catch HTTPError.transport(let failure, _) {
            switch failure {
            case .closedWithoutResponse: return "closedWithoutResponse"
            case .truncated: return "truncated"
            case .notHTTP: return "notHTTP"
            case .headTooLarge: return "headTooLarge"
            case .bodyTooLarge: return "bodyTooLarge"
            case .damagedContent: return "damagedContent"
            case .redirectRefused: return "redirectRefused"
            // On a busy machine, the connection may take longer than the permitted silence.
            case .notConnected where answer.ending == .silence: return "notConnected"
            case .timedOut:
                #expect(answer.ending == .silence, "\(text): \(answer.description)")
                return "timedOut"
            default: Issue.record("\(text): \(failure): \(answer.description)")
            }
        } catch {
            Issue.record("\(text): \(error): \(answer.description)")
        }
        return "another"
    }
}

/// The response of a seed, and an independent parser of its bytes.
private struct MutatedAnswer: CustomStringConvertible {
    enum Ending: String {
        case fin, rst
        /// The connection stays open.
        case silence
    }

    let bytes: [UInt8]
    let ending: Ending
    let isForHead: Bool
    /// The bytes in the pieces of the writes.
    let pieces: [[UInt8]]

    init(seed: UInt64) {
        var mutator = Mutator(seed: seed, words: Self.words)
        let bytes = mutator.mutated(Self.answers.randomElement(using: &mutator) ?? [])
        let ending = Int.random(in: 0..<48, using: &mutator)
        self.ending = ending == 0 ? .silence : ending.isMultiple(of: 2) ? .fin : .rst
        self.isForHead = Int.random(in: 0..<8, using: &mutator) == 0
        var pieces: [[UInt8]] = []
        var rest = bytes[...]
        let longest = Bool.random(using: &mutator) ? bytes.count + 1 : 40
        while !rest.isEmpty {
            let count = Int.random(in: 1...longest, using: &mutator)
            pieces.append(Array(rest.prefix(count)))
            rest = rest.dropFirst(count)
        }
        self.bytes = bytes
        self.pieces = pieces
    }

    var description: String {
        "\(String(String.UnicodeScalarView(self.bytes.map { Unicode.Scalar($0) })).debugDescription), then \(self.ending)"
    }

    private static let answers: [[UInt8]] =
        [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n5\r\nhello\r\n3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n",
            "HTTP/1.1 103 Early\r\nLink: <a>\r\n\r\nHTTP/1.1 404 Not\r\nContent-Length: 2\r\n\r\nno",
            "HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.0 200 OK\r\nContent-Type: x\r\n\r\nuntil the end",
            "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 9\r\n\r\n",
            "HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm=\"x\"\r\nContent-Length: 1\r\n\r\nx",
            "HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\nConnection: keep-alive\r\nContent-Length: 600\r\n\r\n"
                + String(repeating: "ten bytes!", count: 60),
        ].map { Array($0.utf8) } + [
            Array("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 25\r\n\r\n".utf8)
                + (Data(base64Encoded: "H4sIAAAAAAAC/8tIzcnJBwCGphA2BQAAAA==") ?? Data())
        ]

    private static let words: [[UInt8]] =
        [
            "\r\n", "\r\n\r\n", "\n", "\r", ":", " ", "\t", "0", "0\r\n\r\n", "-1", "99999999999999999999", "\0", "é",
            "Content-Length: 3\r\n", "Content-Length: 30\r\n", "Transfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip\r\n", "Content-Encoding: deflate\r\n", "Content-Encoding: br\r\n",
            "Content-Encoding: zstd, gzip\r\n", "HTTP/1.1 ", "HTTP/2 ", "ICY 200 OK\r\n", "Location: http://[\r\n",
            "Location: //\r\n", "Connection: close\r\n", "Upgrade: h2c\r\n", "101", "204", "100", "ffffffffffffffff",
            "Retry-After: 1\r\n", "Proxy-Authenticate: NTLM\r\n", "HTTP/1.1 200 OK\r\n\r\n",
        ].map { Array($0.utf8) } + [[0xff], [0x80, 0x81], [UInt8](repeating: 97, count: 3_000)]

    // MARK: - Independent parser

    /// The difference between `reply` and the response in the bytes, as far as the length shows.
    func flaw(in reply: HTTPReply) -> String? {
        if self.isForHead || [204, 304].contains(reply.status) {
            return reply.body.isEmpty ? nil : "a body where there is none"
        }
        // libcurl 7.88 loses parts of a line that begins with NUL, so that other lines of the head become
        // part of the body.
        guard self.bytes.firstRange(of: [10, 0]) == nil else { return nil }
        guard let (fields, content) = self.message else { return "half a head" }
        let transferCodings = fields.filter { $0.name == "transfer-encoding" }.flatMap {
            $0.value.split(separator: ",")
        }
        .map { $0.trimmingCharacters(in: .whitespaces) }
        // Parsers disagree about codings with control characters.
        guard !transferCodings.contains(where: { $0.utf8.contains { $0 < 32 } }) else { return nil }
        let isCoded = fields.contains { $0.name == "content-encoding" } || transferCodings.contains { $0 != "chunked" }
        if transferCodings.contains("chunked") {
            guard let body = Self.unchunked(content) else { return "chunks without an end" }
            return isCoded || body == Array(reply.body) ? nil : "other chunks"
        }
        guard transferCodings.isEmpty,
            let length = fields.first(where: { $0.name == "content-length" })
                .flatMap({ Int($0.value.prefix { $0.isNumber }) })
        else {
            guard self.ending == .fin else { return "the connection did not end the body" }
            return isCoded || Array(content) == Array(reply.body) ? nil : "another body of \(reply.body.count) bytes"
        }
        guard content.count >= length else { return "\(content.count) of \(length) bytes" }
        return isCoded || Array(content.prefix(length)) == Array(reply.body)
            ? nil : "another body of \(reply.body.count) bytes"
    }

    /// The fields of the last head, in lower case, and the bytes after the head, or `nil` for an incomplete
    /// head.
    private var message: (fields: [(name: String, value: String)], content: ArraySlice<UInt8>)? {
        var rest = self.bytes[...]
        while true {
            var lines: [String] = []
            while true {
                guard let end = rest.firstIndex(of: 10) else { return nil }
                let line = String(decoding: rest[..<end], as: UTF8.self).lowercased()
                    .trimmingCharacters(in: CharacterSet(charactersIn: "\r"))
                rest = rest[(end + 1)...]
                guard !line.isEmpty else { break }
                lines.append(line)
            }
            guard let status = lines.first, status.split(separator: " ").dropFirst().first?.first != "1" else {
                continue
            }
            let fields = lines.dropFirst().compactMap { line -> (String, String)? in
                guard let colon = line.firstIndex(of: ":") else { return nil }
                return (
                    String(line[..<colon]),
                    line[line.index(after: colon)...].trimmingCharacters(in: .whitespaces)
                )
            }
            return (fields, rest)
        }
    }

    /// The content of chunks, or `nil` if the chunks or the trailers have no end.
    private static func unchunked(_ bytes: ArraySlice<UInt8>) -> [UInt8]? {
        var (rest, content) = (bytes, [UInt8]())
        func line() -> String? {
            guard let end = rest.firstIndex(of: 10) else { return nil }
            defer { rest = rest[(end + 1)...] }
            return String(decoding: rest[..<end], as: UTF8.self).trimmingCharacters(
                in: CharacterSet(charactersIn: "\r")
            )
        }
        while true {
            guard let size = line().flatMap({ Int($0.prefix { $0.isHexDigit }, radix: 16) }) else { return nil }
            guard size > 0 else { break }
            guard rest.count >= size else { return nil }
            content += rest.prefix(size)
            rest = rest.dropFirst(size)
            guard line() != nil else { return nil }
        }
        while let field = line() { if field.isEmpty { return content } }
        // libcurl accepts a missing last LF.
        return rest == [13] ? content : nil
    }
}
