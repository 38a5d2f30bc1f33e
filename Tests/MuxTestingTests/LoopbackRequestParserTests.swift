import Foundation
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct LoopbackRequestParserTests {
    private func parser(_ text: String = "") -> LoopbackRequestParser {
        var parser = LoopbackRequestParser(headerLimit: 200, bodyLimit: 10)
        parser.append(Array(text.utf8))
        return parser
    }

    private func refusal(_ text: String) -> Int? {
        var parser = self.parser(text)
        guard case .refuse(let status) = parser.next() else { return nil }
        return status
    }

    @Test func `P-04 requests are parsed from pieces of any size`() {
        let text = "POST /a/b%2Fc?d=1 HTTP/1.1\r\nX-A:  b \r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\n\r\n"
        for size in 1...text.utf8.count {
            var parser = self.parser()
            var found: [LoopbackServer.Request] = []
            var rest = Array(text.utf8)[...]
            while !rest.isEmpty {
                parser.append(Array(rest.prefix(size)))
                rest = rest.dropFirst(size)
                while case .request(let request) = parser.next() { found.append(request) }
            }
            #expect(found.map(\.method) == ["POST", "GET"])
            #expect(found.first?.segments == ["a", "b/c"])
            #expect(found.first?.header("x-a") == "b")
            #expect(found.first?.body == Data("hello".utf8))
            parser.append(Array("GET /next HTTP/1.1\r\n\r\n".utf8))
            guard case .request(let next) = parser.next() else {
                Issue.record("bytes are left over")
                return
            }
            #expect(next.path == "/next")
        }
    }

    @Test(arguments: [
        ("garbage\r\n\r\n", 400), ("GET /\r\n\r\n", 400), ("GET / HTTP/2\r\n\r\n", 400),
        ("GET x HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nno colon\r\n\r\n", 400), ("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nContent-Length: 11\r\n\r\n", 413),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        ("GET / HTTP/1.1\r\nX: " + String(repeating: "x", count: 200), 431), ("\r\n\r\n", 400),
    ])
    func `P-04 an invalid request is refused with a status`(text: String, status: Int) {
        #expect(self.refusal(text) == status)
    }

    @Test func `P-04 a client that expects 100 Continue before its body gets that status`() {
        var parser = self.parser("POST / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        guard case .sendContinue = parser.next() else {
            Issue.record("no leave")
            return
        }
        guard case .needsMore = parser.next() else {
            Issue.record("no wait")
            return
        }
        parser.append([1, 2])
        guard case .request(let request) = parser.next() else {
            Issue.record("no request")
            return
        }
        #expect(request.body == Data([1, 2]))
    }
}
