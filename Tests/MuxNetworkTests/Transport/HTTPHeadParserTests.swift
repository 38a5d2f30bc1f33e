import Foundation
import MuxNetwork
import MuxTestSupport
import Testing

@Suite(.standard)
struct HTTPHeadParserTests {
    private func parser(limit: Int = 10_000) throws -> HTTPHeadParser {
        HTTPHeadParser(url: try #require(URL(string: "http://a/")), limit: limit)
    }

    /// The first head in the lines of `text`, whose last line may lack its end.
    private func read(_ parser: inout HTTPHeadParser, _ text: String) throws -> HTTPReply? {
        for line in Array(text.utf8).split(separator: 10, omittingEmptySubsequences: false) {
            if let head = try parser.read(line + [10]) { return head }
        }
        return nil
    }

    private func fields(_ head: HTTPReply?) -> [[String]] {
        head?.headers.fields.map { [$0.name.rawValue, $0.value] } ?? []
    }

    @Test func `TR-04 fields arrive in order, also fields with the same name`() throws {
        var parser = try self.parser()

        let head = try self.read(&parser, "HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nX:\r\nSet-Cookie:  b=2 \r\n\r\n")

        #expect(self.fields(head) == [["Set-Cookie", "a=1"], ["X", ""], ["Set-Cookie", "b=2"]])
    }

    @Test func `TR-04 a folded line of an invalid field does not continue another field`() throws {
        for invalid in ["bad name: x", "no colon", "X-Nul: a\u{0}"] {
            var parser = try self.parser()
            let text =
                "HTTP/1.1 103 Early Hints\r\nX-A: 1\r\n\r\nHTTP/1.1 200 OK\r\n folded\r\nX-B: 2\r\n\(invalid)\r\n folded\r\nX-C: 3\r\n 4\r\n\r\n"
            let head = try self.read(&parser, text)
            #expect(self.fields(head) == [["X-B", "2"], ["X-C", "3 4"]], "\(invalid)")
            #expect(try self.read(&parser, "X-D: 5\r\n\(invalid)\r\n folded\r\n") == nil)
            #expect(parser.trailers.fields.map(\.value) == ["5"])
        }
    }

    @Test(arguments: [
        ("HTTP/1.1 304 -", true), ("HTTP/2 304", true), ("HTTP/9.9 304 -", true), ("HTTP/q.1 304 -", false),
        ("HTTP/ 304 -", false), ("HTTP/1. 304 -", false), ("HTTP/11.1 304 -", false), ("HTTP/1.1.1 304 -", false),
        ("HTTP/1.1 30", false), ("HTTP/1.1 3040", false), ("HTTP/1.1 099", false),
    ])
    func `TR-02 a status line without a version or a status is not HTTP`(line: String, isRight: Bool) throws {
        var parser = try self.parser()

        guard isRight else {
            #expect(throws: HTTPError.notHTTP) { try parser.read("\(line)\r\n".utf8) }
            return
        }
        #expect(try parser.read("\(line)\r\n".utf8) == nil)
    }

    @Test func `TR-04 an interim response is not the final response`() throws {
        var parser = try self.parser()

        let head = try self.read(&parser, "HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 204 \r\nY: z\r\n\r\n")

        let reply = try #require(head)
        #expect(reply.status == 204 && reply.headers == ["Y": "z"])
    }

    @Test func `TR-04 fields after the head are trailers`() throws {
        var parser = try self.parser()
        _ = try self.read(&parser, "HTTP/2 200\r\n\r\n")

        // libcurl delivers trailers in this form after a pause.
        #expect(try parser.read("X-Sum: 1\r\nX-More: 2\r\nX-Bad: a\rb\r\n".utf8) == nil)

        #expect(parser.trailers == ["X-Sum": "1", "X-More": "2"])
        #expect(throws: HTTPError.notHTTP) { try parser.read("HTTP/1.1 200 OK\r\n".utf8) }
    }

    @Test func `TR-04 bytes outside ASCII are text, and a folded line is a single line`() throws {
        var parser = try self.parser()
        _ = try parser.read("HTTP/1.1 200 OK\r\n".utf8)
        _ = try parser.read(Array("U: caf".utf8) + [0xc3, 0xa9])
        _ = try parser.read(Array("L: caf".utf8) + [0xe9])
        _ = try parser.read("F: a\r\n".utf8)
        _ = try parser.read("\t b\r\n".utf8)

        #expect(try self.fields(parser.read("\r\n".utf8)) == [["U", "café"], ["L", "café"], ["F", "a b"]])
    }

    @Test(arguments: [
        "garbage", "", "HTTP/1.1", "HTTP/1.1 2000 x", "HTTP/1.1 abc x", "HTTP/1.1 +20 x", "http/1.1 200",
        "HTTP/1.1  200",
        "HTTP/1.1 099 x", "HTTP/1.1 101 Switching\r\nUpgrade: x\r\n",
    ])
    func `TR-02 an invalid head is detected at once`(text: String) throws {
        var parser = try self.parser()

        #expect(throws: HTTPError.notHTTP) { try self.read(&parser, text) }
    }

    @Test func `TR-02 an endless head is refused at the limit`() throws {
        var parser = try self.parser(limit: 100)
        #expect(try parser.read("HTTP/1.1 200 OK\r\n".utf8) == nil)

        #expect(throws: HTTPError.transport(.headTooLarge(limit: 100))) {
            for _ in 0..<100 { _ = try parser.read("X: yyyyyyyyyyyyyyyy\r\n".utf8) }
        }
    }

    @Test func `TR-02 mutated heads are parsed without a trap, and each parsed head has a status`() throws {
        let head =
            "HTTP/1.1 100 Continue\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\nSet-Cookie: a\r\n b\r\n\r\nX: y\r\n\r\n"
        var mutator = Mutator(seed: 1, words: Mutator.messageWords)
        for _ in 0..<20_000 {
            var parser = try self.parser(limit: 500)
            let bytes = mutator.mutated(Array(head.utf8))
            for line in bytes.split(separator: 10, omittingEmptySubsequences: false) {
                guard let reply = try? parser.read(line + [10]) else { continue }
                #expect((200...999).contains(reply.status))
            }
        }
    }
}
