import Foundation
import MuxNetwork
import MuxTestSupport
import Testing

/// Seeded mutations of data from callers and from servers.
///
/// `MUX_FUZZ=100` multiplies the number of mutations by 100. `MUX_SEED=7` starts with the seed 7.
@Suite(.standard(minutes: 60))
struct HTTPFuzzTests {
    private let fuzz = FuzzRun()

    init() { self.fuzz.announce() }

    private func run(_ count: Int, _ body: (inout Mutator, Comment) throws -> Void) rethrows {
        for number in 0..<(count * self.fuzz.factor) {
            var mutator = Mutator(seed: self.fuzz.seed &+ UInt64(number), words: Mutator.messageWords)
            try body(&mutator, "MUX_SEED=\(self.fuzz.seed &+ UInt64(number))")
        }
    }

    @Test func `G09 arbitrary path values become exactly the segments of the URL`() {
        self.run(3_000) { mutator, seed in
            let values = ["a": mutator.text(like: "a/b"), "b": mutator.text(like: "..")]
            let query = HTTPQuery([.init(mutator.text(like: "q="), mutator.text(like: "a+b&c"))])
            let place = HTTPEndpoint(host: "h:80", path: "/x{a}/\(mutator.text(like: "é{a}"))/{b}", query: query)
            guard let url = try? place.url(path: values) else { return }

            let text = url.absoluteString
            let isPlain = text.utf8.allSatisfy { $0 > 32 && $0 < 127 }
            #expect(isPlain, seed)
            let afterHost = text.dropFirst("https://h:80/".count)
            let path = afterHost.prefix { $0 != "?" && $0 != "#" }
            let segments = path.split(separator: "/", omittingEmptySubsequences: false)
            #expect(segments.count == 3 && text.hasPrefix("https://h:80/x"), seed)
            #expect(PercentEncoding.decode(segments[0]) == "x\(values["a"] ?? "")", seed)
            #expect(PercentEncoding.decode(segments[2]) == values["b"], seed)
            #expect(HTTPQuery(parsing: String(afterHost.dropFirst(path.count + 1))) == query, seed)
            #expect(url.host() == "h" && url.port == 80 && url.fragment() == nil, seed)
        }
    }

    @Test func `G11 a mutated host is refused or is the host of the URL`() throws {
        try self.run(3_000) { mutator, seed in
            let text = mutator.text(
                like: ["api.domain.com:8080", "[::1]:80", "a-b_c", "127.0.0.1"].randomElement(using: &mutator) ?? ""
            )
            guard let url = try? HTTPEndpoint(scheme: .http, host: HTTPHost(text)).url() else { return }

            #expect(url.absoluteString == "http://\(text)/", seed)
            #expect(url.user() == nil && url.path() == "/" && url.query() == nil, seed)
            let again = try HTTPEndpoint(url).url()
            #expect(again == url, seed)
        }
    }

    @Test func `G09 a mutated path neither traps nor leads to another server`() {
        self.run(3_000) { mutator, seed in
            let path = HTTPPath(stringLiteral: mutator.text(like: "/users/{id}/ä/{name}/../x"))
            guard let url = try? HTTPEndpoint(host: "h", path: path).url(path: ["id": "1", "name": "n"]) else { return }

            #expect(url.absoluteString.hasPrefix("https://h/") && url.host() == "h", seed)
            #expect(url.query() == nil && url.fragment() == nil, seed)
        }
    }

    @Test func `H04 a reference parser recovers arbitrary parts of a form`() throws {
        try self.run(500) { mutator, seed in
            let form = HTTPMultipart(
                fields: HTTPQuery(
                    (0..<Int.random(in: 0...2, using: &mutator)).map { _ in
                        .init(mutator.text(like: "name\"\r\n"), mutator.text(like: "value\r\n--mux-"))
                    }
                ),
                files: (0..<Int.random(in: 0...2, using: &mutator)).map { _ in
                    .init(
                        name: mutator.text(like: "file\"; x=\""),
                        fileName: mutator.text(like: "a.txt\r\n\r\n"),
                        contentType: HTTPMediaType.plainText.with("p", mutator.text(like: "v\r\n")),
                        data: Data(mutator.mutated(Array("--mux-0\r\n\r\n--\r\n".utf8)))
                    )
                }
            )
            let (data, type) = try form.encoded()
            let boundary = try #require(type?.parameters["boundary"], seed)
            let parts = try #require(MultipartParser.parse(Array(data), boundary: boundary), seed)

            #expect(parts.count == form.fields.items.count + form.files.count, seed)
            let bodies = form.fields.items.map { Array(($0.value ?? "").utf8) } + form.files.map { Array($0.data) }
            #expect(parts.map(\.body) == bodies, seed)
            for part in parts { #expect(part.headers.count == (part.headers["content-type"] == nil ? 1 : 2), seed) }
        }
    }

    @Test func `G05 a mutated media type is refused or survives a round trip`() {
        self.run(3_000) { mutator, seed in
            let text = mutator.text(like: #"text/plain; charset="a\"b"; x=y;z="";"#)
            guard let type = HTTPMediaType(rawValue: text) else { return }

            #expect(HTTPMediaType(rawValue: type.rawValue) == type, seed)
        }
    }

    @Test func `I05 a mutated date is refused or is a finite date within the calendar`() {
        self.run(3_000) { mutator, seed in
            let text = mutator.text(like: "2021-06-04T10:00:00.125+02:30")
            guard let date = ISO8601.date(text) else { return }

            #expect(date.timeIntervalSince1970.isFinite, seed)
            #expect(abs(date.timeIntervalSince1970) < 260_000_000_000, seed)
        }
    }

    @Test func `K06 a mutated token is an error or has a finite expiry or no expiry`() {
        self.run(3_000) { mutator, seed in
            let claims = mutator.mutated(Array(#"{"exp":1300819380.5,"sub":[{}]}"#.utf8))
            let texts = [
                "e30.\(Base64URL.encode(Data(claims))).c2ln", mutator.text(like: "e30.eyJleHAiOjV9.c2ln"),
            ]
            for text in texts {
                guard let token = try? JSONWebToken(text) else { continue }
                #expect(token.text == text && token.expiry?.timeIntervalSince1970.isFinite != false, seed)
            }
        }
    }

    @Test func `G18 a mutated header is refused or arrives as one line`() {
        let client = HTTPClient()
        self.run(3_000) { mutator, seed in
            let name = mutator.text(like: "X-Name")
            let ask = Ask { $0.headers = [HTTPHeaders.Name(stringLiteral: name): mutator.text(like: "value\t é")] }
            guard let call = try? client.call(for: ask) else { return }

            let isClean = call.headers.fields.allSatisfy { field in
                HTTPGrammar.isToken(field.name.rawValue)
                    && !field.value.utf8.contains { $0 < 32 && $0 != 9 || $0 == 127 }
            }
            #expect(isClean, seed)
        }
    }
}
