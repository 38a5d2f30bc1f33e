import Foundation
import MuxConformance
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// A malformed or cut response is the right response or a typed error, and no cut response counts as
/// complete.
///
/// With `MUX_FUZZ=2` or more, each response of less than 1,000 bytes is cut at every byte.
@Suite(.standard(minutes: 60))
struct CutAnswerTests {
    @Test func `TR-02 the table has sixty-four different responses`() {
        #expect(CutAnswer.all.count == 64)
        #expect(Set(CutAnswer.all.map(\.bytes)).count == 64)
    }

    /// How the server ends the connection.
    private enum Ending: String, CaseIterable {
        case fin, rst
    }

    @Test(arguments: CutAnswer.all)
    func `TR-02 a response is right or an error in time, and no cut response is complete`(answer: CutAnswer)
        async throws
    {
        let server = RawServer { connection in
            let words = try connection.readRequest().target.split(separator: "/")
            let count = words.first.flatMap { Int($0) } ?? 0
            try connection.write(Array(answer.bytes.prefix(count)))
            if words.last == "rst" { connection.resetAtEnd() }
        }
        let base = try server.start()
        var options = HTTPTransportConfiguration()
        options.usesProxies = false
        let transport = SystemTransport(options)
        for count in answer.cuts {
            for ending in Ending.allCases {
                let call = HTTPCall(url: base.appending(path: "\(count)/\(ending.rawValue)"))
                for outcome in [
                    await self.outcome { try await transport.send(call) },
                    await self.outcome {
                        let buffer = HTTPBuffer(limit: .max)
                        var reply = try await transport.stream(call, into: buffer)
                        reply.body = buffer.body
                        return reply
                    },
                ] {
                    let text: Comment = "\(count) of \(answer.bytes.count) bytes, then \(ending): \(outcome)"
                    self.check(outcome, answer.expectation(after: count, byReset: ending == .rst), text)
                }
            }
        }
        #expect(transport.pendingCount == 0)
        await server.stop()
    }

    private func outcome(of call: () async throws -> HTTPReply) async -> Result<HTTPReply, any Error> {
        do { return .success(try await call()) } catch { return .failure(error) }
    }

    private func check(
        _ outcome: Result<HTTPReply, any Error>,
        _ expectation: CutAnswer.Expectation,
        _ text: Comment
    ) {
        switch outcome {
        case .success(let reply):
            #expect(expectation.reply?.status == reply.status, text)
            #expect(expectation.reply?.body == Array(reply.body), text)
        case .failure(HTTPError.transport(let failure, _)):
            #expect(expectation.mayFail, text)
            switch failure {
            case .closedWithoutResponse, .truncated, .notHTTP, .headTooLarge, .damagedContent, .redirectRefused: break
            // The connection has ended, so a time-out is wrong, and the class of the failure is known.
            default: Issue.record(text)
            }
        case .failure: Issue.record(text)
        }
    }
}

/// The bytes that a server writes, in the three parts that are cut.
struct CutAnswer: Sendable, CustomTestStringConvertible {
    /// The permitted outcomes of a response.
    struct Expectation: Sendable {
        /// The right response, or `nil` if only an error is right.
        var reply: (status: Int, body: [UInt8])?
        var mayFail: Bool
    }

    private let head: [UInt8]
    private let body: [UInt8]
    private let trailer: [UInt8]
    private let whole: Expectation
    /// Whether the body ends with the connection, so that a FIN within the body is its end.
    private let isUnannounced: Bool
    /// The number of bytes that follow a complete response.
    private let excess: Int

    var bytes: [UInt8] { self.head + self.body + self.trailer }
    var testDescription: String { String(decoding: self.bytes.prefix(120), as: UTF8.self).debugDescription }

    /// Cuts in the middle of each part, at the end of the head, before the last byte, and after the last
    /// byte.
    var cuts: [Int] {
        if FuzzRun().factor > 1, self.bytes.count < 1_000 { return Array(0...self.bytes.count) }
        let (first, second) = (self.head.count, self.head.count + self.body.count)
        let middles = [first / 2, first + self.body.count / 2, second + self.trailer.count / 2]
        return Set(middles + [first - 1, first, self.bytes.count - 1, self.bytes.count]).sorted()
    }

    /// The permitted outcomes of the first `count` bytes.
    func expectation(after count: Int, byReset: Bool) -> Expectation {
        if self.isUnannounced, !byReset, count >= self.head.count {
            return Expectation(
                reply: self.whole.reply.map { ($0.status, Array(self.body.prefix(count - self.head.count))) },
                mayFail: self.whole.mayFail
            )
        }
        // libcurl accepts a chunked body without the last LF. The content and the trailers are then complete.
        if self.excess == 0, !self.trailer.isEmpty, count == self.bytes.count - 1 {
            return Expectation(reply: self.whole.reply, mayFail: true)
        }
        guard count >= self.bytes.count - self.excess, !self.isUnannounced else {
            return Expectation(reply: nil, mayFail: true)
        }
        // A reset may overtake the bytes written before the reset.
        return Expectation(reply: self.whole.reply, mayFail: self.whole.mayFail || byReset)
    }

    // MARK: - The table

    /// One byte for each scalar.
    private static func bytes(_ text: String) -> [UInt8] {
        text.unicodeScalars.map { UInt8(truncatingIfNeeded: $0.value) }
    }

    private init(
        _ head: String,
        _ body: [UInt8],
        _ trailer: String,
        _ whole: Expectation,
        unannounced: Bool,
        excess: Int
    ) {
        (self.head, self.body, self.trailer) = (Self.bytes(head), body, Self.bytes(trailer))
        (self.whole, self.isUnannounced, self.excess) = (whole, unannounced, excess)
    }

    /// A well-formed response.
    private static func good(
        _ head: String,
        _ body: String = "",
        _ trailer: String = "",
        is reply: (Int, String),
        unannounced: Bool = false,
        excess: Int = 0
    ) -> CutAnswer {
        let whole = Expectation(reply: (reply.0, self.bytes(reply.1)), mayFail: false)
        return CutAnswer(head, self.bytes(body), trailer, whole, unannounced: unannounced, excess: excess)
    }

    /// A response that a transport may refuse, or must refuse without `reply`.
    private static func bad(
        _ head: String,
        _ body: String = "",
        _ trailer: String = "",
        is reply: (Int, String)? = nil,
        unannounced: Bool = false,
        excess: Int = 0
    ) -> CutAnswer {
        let whole = Expectation(reply: reply.map { ($0.0, self.bytes($0.1)) }, mayFail: true)
        return CutAnswer(head, self.bytes(body), trailer, whole, unannounced: unannounced, excess: excess)
    }

    private static let ok = "HTTP/1.1 200 OK\r\n"
    private static let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    private static let hello = "5\r\nhello\r\n"
    /// "hello" with gzip.
    private static let zipped = String(
        String.UnicodeScalarView(
            (Data(base64Encoded: "H4sIAAAAAAAC/8tIzcnJBwCGphA2BQAAAA==") ?? Data()).map { Unicode.Scalar($0) }
        )
    )

    static let all = Self.wholes + Self.statusLines + Self.fields + Self.lengths + Self.chunks + Self.contents

    private static let wholes = [
        Self.good("\(Self.ok)Content-Length: 5\r\n\r\n", "hello", is: (200, "hello")),
        Self.good("\(Self.ok)Content-Length: 0\r\n\r\n", is: (200, "")),
        Self.good("\(Self.chunked)", "\(Self.hello)3\r\nabc\r\n", "0\r\n\r\n", is: (200, "helloabc")),
        Self.good("\(Self.chunked)", Self.hello, "0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n", is: (200, "hello")),
        Self.good("\(Self.chunked)", "0005;a=b;c=\"d\"\r\nhello\r\n", "000\r\n\r\n", is: (200, "hello")),
        Self.good("HTTP/1.0 200 OK\r\n\r\n", "to the end", is: (200, "to the end"), unannounced: true),
        Self.good("\(Self.ok)Connection: close\r\n\r\n", "to the end", is: (200, "to the end"), unannounced: true),
        Self.good("HTTP/1.1 204 No\r\n\r\n", is: (204, "")),
        Self.good("HTTP/1.1 304 Same\r\nContent-Length: 9\r\n\r\n", is: (304, "")),
        Self.good(
            "HTTP/1.1 100 Continue\r\n\r\n\(Self.ok)Content-Length: 5\r\n\r\n",
            "hello",
            is: (200, "hello")
        ),
        Self.good(
            "HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\n",
            "no",
            is: (404, "no")
        ),
        Self.good("HTTP/1.1 302 Found\r\nContent-Length: 4\r\n\r\n", "gone", is: (302, "gone")),
        Self.good("HTTP/1.1 500 \r\nContent-Length: 3\r\n\r\n", "bad", is: (500, "bad")),
    ]

    private static let statusLines =
        [
            "HTTP/1.1 20 OK", "HTTP/1.1 2000 OK", "HTTP/1.1 abc OK", "HTTP/9.9 200 OK", "HTTP/1.1",
            "ICY 200 OK", "200 OK", "http/1.1 200 OK", "\u{0}HTTP/1.1 200 OK", "HTTP/1.1 101 Switching",
            " HTTP/1.1 200",
        ].map { Self.bad("\($0)\r\nContent-Length: 5\r\n\r\n", "hello") } + [
            Self.bad("HTTP/1.1 999 \u{ff}\u{fe}\r\nContent-Length: 5\r\n\r\n", "hello", is: (999, "hello")),
            Self.bad("HTTP/1.1 200\r\nContent-Length: 5\r\n\r\n", "hello", is: (200, "hello")),
        ]

    private static let fields =
        [
            "no colon\r\n", ": no name\r\n", "X-A : b\r\n", "X-A: b\rc\r\n", "X-A: \u{e9}\u{ff}\r\n",
            "X-A: b\r\n folded\r\n", "X-A:\r\n", "X-A: b\n", "Trailer: X\r\nUpgrade: h2c\r\n",
            "X-A: \(String(repeating: "a", count: 70_000))\r\n",
        ].map { Self.bad("\(Self.ok)\($0)Content-Length: 5\r\n\r\n", "hello", is: (200, "hello")) } + [
            Self.bad("HTTP/1.1 200 OK\nContent-Length: 5\n\n", "hello", is: (200, "hello")),
            Self.bad("\(Self.ok)X-A: b\u{0}c\r\nContent-Length: 5\r\n\r\n", "hello", is: (200, "hello")),
            Self.bad("\(Self.ok)X-A: \(String(repeating: "a", count: 300_000))\r\nContent-Length: 5\r\n\r\n", "hello"),
        ]

    private static let lengths =
        ["-5", "+5", "5x", "", "5, 6", "99999999999999999999"].map {
            Self.bad("\(Self.ok)Content-Length: \($0)\r\n\r\n", "hello")
        } + [
            Self.bad("\(Self.ok)Content-Length: 5\r\nContent-Length: 6\r\n\r\n", "hello"),
            Self.bad("\(Self.ok)Content-Length: 6\r\nContent-Length: 5\r\n\r\n", "hello!"),
            Self.bad("\(Self.ok)Content-Length: 5, 5\r\n\r\n", "hello", is: (200, "hello")),
            Self.bad("\(Self.ok)Content-Length: 5\r\n\r\n", "hello", "HTTP/1.1", is: (200, "hello"), excess: 8),
            Self.bad(
                "\(Self.ok)Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
                Self.hello,
                "0\r\n\r\n",
                is: (200, "hello")
            ),
        ]

    private static let chunks =
        [
            "x\r\nhello\r\n", "-5\r\nhello\r\n", "fffffffffffffffff\r\nhello\r\n", "5\r\nhelloo\r\n",
            "\r\nhello\r\n",
        ].map { Self.bad(Self.chunked, $0, "0\r\nX-Sum: 1\r\n\r\n") } + [
            Self.bad(
                "\(Self.ok)Transfer-Encoding: chunked, chunked\r\n\r\n",
                Self.hello,
                "0\r\n\r\n",
                is: (200, "hello")
            ),
            Self.bad("\(Self.ok)Transfer-Encoding: mine, chunked\r\n\r\n", Self.hello, "0\r\n\r\n"),
            Self.bad(
                "\(Self.ok)Transfer-Encoding: identity\r\nContent-Length: 5\r\n\r\n",
                "hello",
                is: (200, "hello")
            ),
            Self.bad("\(Self.ok)Transfer-Encoding: gzip\r\nContent-Length: 5\r\n\r\n", "hello"),
            // LF alone may end a line (RFC 9112, section 2.2).
            Self.bad(Self.chunked, "5\r\nhell\r\n", "0\r\nX-Sum: 1\r\n\r\n", is: (200, "hell\r")),
        ]

    private static let contents = [
        Self.good(
            "\(Self.ok)Content-Encoding: gzip\r\nContent-Length: \(Self.zipped.unicodeScalars.count)\r\n\r\n",
            Self.zipped,
            is: (200, "hello")
        ),
        Self.bad("\(Self.ok)Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\n", "hello"),
        Self.bad("\(Self.ok)Content-Encoding: br\r\nContent-Length: 5\r\n\r\n", "hello"),
        Self.good("\(Self.ok)Content-Encoding: mine\r\nContent-Length: 5\r\n\r\n", "hello", is: (200, "hello")),
    ]
}
