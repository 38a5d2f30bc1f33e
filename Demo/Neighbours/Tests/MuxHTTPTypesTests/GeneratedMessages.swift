import Foundation
import MuxNetwork
import Testing

/// Valid messages, the same for the same seed.
struct GeneratedMessages {
    private var state: UInt64

    init(seed: UInt64) { self.state = seed }

    /// A call that both libraries represent completely.
    mutating func call() throws -> HTTPCall {
        let scheme = self.pick(["http", "https"])
        let host = self.pick(["a.example", "127.0.0.1", "[::1]", "a-b.c.example"])
        let port = self.pick(["", ":1", ":65535"])
        let path = self.pick(["/", "/a/b", "/a%2Fb", "/%C3%BC", "//a", "/a;b=c,d", "/a/../b"])
        let query = self.pick(["", "?", "?a=b&c", "?a=%20+/?:@"])
        let url = URL(string: "\(scheme)://\(host)\(port)\(path)\(query)")
        return HTTPCall(
            method: self.pick(["GET", "POST", "M-SEARCH", "get"]),
            url: try #require(url),
            headers: self.headers(),
            body: self.pick([nil, .data(Data("body".utf8))])
        )
    }

    /// A reply that both libraries represent completely.
    mutating func reply() -> HTTPReply {
        HTTPReply(
            status: self.number(below: 1000),
            headers: self.headers(),
            body: Data(repeating: 1, count: self.number(below: 3)),
            trailers: self.headers(),
            url: self.pick([nil, URL(string: "https://a.example/")])
        )
    }

    private mutating func headers() -> HTTPHeaders {
        var headers = HTTPHeaders([:])
        let names: [HTTPHeaders.Name] = ["A", "a", "Set-Cookies", "X-!#$%&'*+-.^_`|~", "ETag", "etag", "0"]
        let values = ["", "1", "a, b", "\"q\\\"\"", "a\tb  c", "ü", "🙂", "a;b=c", "%0D%0A", ":"]
        for _ in 0..<self.number(below: 12) { headers.append(self.pick(values), for: self.pick(names)) }
        return headers
    }

    private mutating func pick<Value>(_ values: [Value]) -> Value { values[self.number(below: values.count)] }

    private mutating func number(below end: Int) -> Int {
        self.state = self.state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
        return Int(self.state >> 33) % end
    }
}
