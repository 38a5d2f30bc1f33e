import Foundation
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct HTTPQueryTests {
    @Test func `G10 parameters keep their order and a name may occur twice`() {
        let query: HTTPQuery = ["z": "1", "a": "2", "z": "3"]

        #expect(query.encoded == "z=1&a=2&z=3")
        #expect(query["z"] == "1" && query["b"] == nil)
        #expect((query + ["b": "4"]).encoded == "z=1&a=2&z=3&b=4")
    }

    @Test func `G10 an empty query adds no question mark`() throws {
        let place = HTTPEndpoint(host: "h", path: "/p")

        #expect(try place.url().absoluteString == "https://h/p")
        #expect(try place.url(query: [.init("a", nil)]).absoluteString == "https://h/p?a")
        #expect(try place.url(query: ["a": ""]).absoluteString == "https://h/p?a=")
    }

    @Test func `G10 plus, ampersand and space survive a round trip`() {
        let query: HTTPQuery = ["a+b&c": "d=e +%&"]

        #expect(query.encoded == "a%2Bb%26c=d%3De%20%2B%25%26")
        #expect(HTTPQuery(parsing: query.encoded) == query)
        #expect(
            HTTPQuery(parsing: "a=b+c&d&=e&&f=g=h&%zz=%4") == [
                .init("a", "b c"), .init("d", nil), .init("", "e"), .init("f", "g=h"), .init("%zz", "%4"),
            ]
        )
    }

    @Test func `G10 a parameter without a value is left out`() {
        var query = HTTPQuery()

        query.append("a", nil)
        query.append("b", "1")

        #expect(query.items == [.init("b", "1")])
    }

    @Test func `G10 descriptions contain no name without a value`() {
        let query = HTTPQuery(parsing: "hunter2&page=1")
        #expect("\(query)" == "[…, page]" && query.items.map { "\($0)" } == ["…", "page"])
    }

    @Test func `G10 descriptions contain no values`() {
        let query: HTTPQuery = ["code": "SECRET"]
        var dumped = ""
        dump((query, query.items), to: &dumped)

        #expect("\(query)" == "[code]")
        #expect(!"\(String(reflecting: query)) \(query.items) \(dumped)".contains("SECRET"))
    }

    @Test func `G10 a server parses the query that the client encoded`() {
        var random = SplitMix64(state: 11)
        let alphabet = Array("aZ0 +&=%?#/;:@é漢👩‍🚀\r\n\0\"'<>{}|\\^`~-._".unicodeScalars)
        func word() -> String {
            var text = String.UnicodeScalarView()
            for _ in 0..<Int.random(in: 0...6, using: &random) {
                text.append(alphabet.randomElement(using: &random) ?? "a")
            }
            return String(text)
        }
        for _ in 0..<2_000 {
            // A parameter with an empty name and without a value would encode like no parameter.
            let items = (0..<Int.random(in: 0...4, using: &random)).map { _ in
                let name = word()
                return HTTPQuery.Item(name, name.isEmpty || Bool.random(using: &random) ? word() : nil)
            }
            let query = HTTPQuery(items)

            #expect(HTTPQuery(parsing: query.encoded) == query)
            let plain = query.encoded.utf8.allSatisfy { PercentEncoding.isUnreserved($0) || "%=&".utf8.contains($0) }
            #expect(plain)
        }
    }
}
