import NIOCore
import Testing

@testable import MuxValkey

/// RESP from engines and from foreign programs.
struct ReplyDecoderTests {
    private func decode(_ text: String, limit: Int = 1 << 20) throws -> [Reply] {
        var buffer = ByteBuffer(string: text)
        var replies: [Reply] = []
        while let reply = try ReplyDecoder(maximumBytes: limit).decode(buffer: &buffer) { replies.append(reply) }
        return replies
    }

    private func bytes(_ text: String) -> Reply { .bytes(ByteBuffer(string: text)) }

    private static let all =
        "+OK\r\n-ERR no such thing\r\n:-7\r\n$5\r\na\r\nbc\r\n$-1\r\n_\r\n#t\r\n#f\r\n,1.5\r\n(123456789012345678901234567890\r\n"
        + "!9\r\nERR other\r\n=8\r\ntxt:text\r\n*2\r\n:1\r\n*1\r\n$0\r\n\r\n*-1\r\n~1\r\n+a\r\n%1\r\n+key\r\n:2\r\n"
        + "|1\r\n+popularity\r\n,0.3\r\n:9\r\n>3\r\n+message\r\n+channel\r\n$1\r\nx\r\n"

    @Test func `FL-09 each kind of reply is read`() throws {
        let expected: [Reply] = [
            self.bytes("OK"), .failure(ServerFailure("ERR no such thing")), .number(-7), self.bytes("a\r\nbc"),
            .nothing, .nothing, .number(1), .number(0), self.bytes("1.5"),
            self.bytes("123456789012345678901234567890"), .failure(ServerFailure("ERR other")), self.bytes("text"),
            .list([.number(1), .list([self.bytes("")])]), .nothing, .list([self.bytes("a")]),
            .list([self.bytes("key"), .number(2)]), .number(9),
            .message([self.bytes("message"), self.bytes("channel"), self.bytes("x")]),
        ]
        #expect(try self.decode(Self.all) == expected)
        #expect(ServerFailure("ERR no such thing").code == "ERR")
    }

    @Test func `FL-09 a reply in pieces is read when it is complete`() throws {
        let whole = try self.decode(Self.all)
        let decoder = ReplyDecoder(maximumBytes: 1 << 20)
        var (buffer, replies) = (ByteBuffer(), [Reply]())
        for byte in Self.all.utf8 {
            buffer.writeInteger(byte)
            while let reply = try decoder.decode(buffer: &buffer) { replies.append(reply) }
        }
        #expect(replies == whole && buffer.readableBytes == 0)
    }

    @Test(arguments: [
        "HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH\r\n", "\0\0\0\0\r\n", "$abc\r\n", "$3\r\nabcd\r\n",
        "*99999999999\r\n", "*-2\r\n:1\r\n>-1\r\n", "%9223372036854775807\r\n", ":\r\n", ":1.5\r\n", "+OK\rx",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", "*1\r\n>1\r\n+a\r\n", "=2\r\nab\r\n",
        "$99999999999999999999\r\n", "|9223372036854775807\r\n",
    ])
    func `FL-09 bytes other than a reply are an error`(text: String) {
        #expect(throws: ValkeyError.self) { try self.decode(text) }
    }

    @Test func `FL-09 the size of a reply is bounded`() {
        #expect(throws: ValkeyError.tooLarge(limit: 10)) { try self.decode("$11\r\n", limit: 10) }
        #expect(throws: ValkeyError.tooLarge(limit: 100)) {
            try self.decode("*100\r\n" + String(repeating: "$3\r\nabc\r\n", count: 99), limit: 100)
        }
        #expect(throws: ValkeyError.self) { try self.decode("+" + String(repeating: "a", count: 300_000)) }
        let lines = String(repeating: "+" + String(repeating: "a", count: 60_000) + "\r\n", count: 5)
        #expect(throws: ValkeyError.self) { try self.decode("*6\r\n" + lines) }
        #expect(throws: ValkeyError.self) {
            try self.decode("*10000\r\n" + String(repeating: "*-1\r\n", count: 10_000))
        }
    }

    @Test func `FL-09 no bytes stop the process`() {
        var random = SystemRandomNumberGenerator()
        let letters = Array("+-:$*%~|>_#,(!=0123456789\r\ntab ".utf8)
        for _ in 0..<20_000 {
            let bytes = (0..<Int.random(in: 0..<60, using: &random)).map { _ in
                letters.randomElement(using: &random) ?? 0
            }
            var buffer = ByteBuffer(bytes: bytes)
            for _ in 0..<100 {
                guard let reply = try? ReplyDecoder(maximumBytes: 1_000).decode(buffer: &buffer) else { break }
                _ = reply
            }
        }
    }
}
