#if os(Linux)
import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// The decoding of content codings in the transport over libcurl.
@Suite(.standard)
struct ContentCodingTests {
    private static let text = Data(String(repeating: "The quick brown fox jumps over the lazy dog. ", count: 40).utf8)

    /// ``text``, encoded by gzip, zlib, brotli and zstd of Debian.
    static let encoded: [(coding: String, body: Data)] = [
        (
            "gzip",
            "H4sIAAAAAAACAwvJSFUoLM1MzlZIKsovz1NIy69QyCrNLShWyC9LLVIoAUrnJFZVKqTkp+sphIwqHlU8qnhU8ajiUcXDSzEA5sOVZAgHAAA="
        ),
        ("deflate", "eJwLyUhVKCzNTM5WSCrKL89TSMuvUMgqzS0oVsgvSy1SKAFK5yRWVSqk5KfrKYSMKh5VPKp4VPGo4lHFw0sxAIgKhjc="),
        // Without the header of the format, as some servers send deflate.
        ("deflate", "C8lIVSgszUzOVkgqyi/PU0jLr1DIKs0tKFbIL0stUigBSuckVlUqpOSn6ymEjCoeVTyqeFTxqOJRxcNLMQA="),
        ("br", "GwcHiCwOeNPQlV2XELsXK6nK0JLMjK1BXObyNsgZnp4Ke4MNOHBIIG8kv0GnFc4cHieqKTjCqXSfBgM="),
        ("zstd", "KLUv/WAIBrUBANQCVGhlIHF1aWNrIGJyb3duIGZveCBqdW1wcyBvdmVyIHRoZSBsYXp5IGRvZy4gAQDFFv6qDA=="),
    ].map { ($0.0, Data(base64Encoded: $0.1) ?? Data()) }

    private let transport = SystemTransport()

    /// The result of a request to a server that responds with `body` in the given codings.
    private func reply(
        _ coding: String,
        _ body: Data,
        status: Int = 200,
        method: String = "GET"
    ) async -> Result<HTTPReply, any Error> {
        let server = LoopbackServer { _ in
            LoopbackServer.Response(status: status, headers: ["Content-Encoding": coding], body: body)
        }
        let result: Result<HTTPReply, any Error>
        do {
            result = .success(try await self.transport.send(HTTPCall(method: method, url: try server.start())))
        } catch {
            result = .failure(error)
        }
        await server.stop()
        return result
    }

    @Test(arguments: Self.encoded)
    func `TR-06 a known coding is decoded`(coding: String, body: Data) async throws {
        #expect(try await self.reply(coding, body).get().body == Self.text)
        #expect(try await self.reply(coding.uppercased(), body).get().body == Self.text)
    }

    @Test(arguments: Self.encoded)
    func `TR-04 coded content that ends early is truncated although its length is right`(coding: String, body: Data)
        async
    {
        for count in 1..<body.count {
            await #expect(throws: HTTPError.self, "\(coding) \(count)") {
                let reply = try await self.reply(coding, body.prefix(count)).get()
                guard reply.body != Self.text else { throw HTTPError.truncated(expected: nil, received: 0) }
            }
        }
        await #expect(throws: HTTPError.self) { try await self.reply(coding, body.dropLast()).get() }
    }

    @Test func `TR-04 multiple codings are decoded from the last to the first`() async throws {
        let twice = try #require(Self.encoded.first { $0.coding == "gzip" })

        let error = await #expect(throws: HTTPError.self) { try await self.reply("br, gzip", twice.body).get() }

        #expect(error == .transport(.damagedContent(coding: "br")))
    }

    @Test(arguments: ["aes128gcm", "gzip, aes128gcm", "x", "gzip gzip"])
    func `TR-04 content with an unknown coding arrives unchanged, with its field`(coding: String) async throws {
        let reply = try await self.reply(coding, Data("as it is".utf8)).get()

        #expect(reply.body == Data("as it is".utf8))
        #expect(reply.headers[.contentEncoding] == coding)
    }

    @Test func `TR-04 consecutive members of gzip are decoded`() async throws {
        let one = try #require(Self.encoded.first).body

        #expect(try await self.reply("gzip", one + one).get().body == Self.text + Self.text)
        #expect(try await self.reply("gzip", one + Data("rest".utf8)).get().body == Self.text)
        await #expect(throws: HTTPError.self) { try await self.reply("gzip", one + one.prefix(20)).get() }
    }

    @Test func `TR-04 partial content and absent content are not decoded`() async throws {
        let one = try #require(Self.encoded.first).body

        #expect(try await self.reply("gzip", one, status: 206).get().body == one)
        #expect(try await self.reply("gzip", one, method: "HEAD").get().body.isEmpty)
        #expect(try await self.reply("gzip", Data()).get().body.isEmpty)
    }

    @Test func `TR-02 the size of decoded content is limited`() async throws {
        var options = HTTPTransportConfiguration()
        options.maximumBodySize = 1000
        let body = try #require(Self.encoded.first).body
        let server = LoopbackServer { _ in LoopbackServer.Response(headers: ["Content-Encoding": "gzip"], body: body) }
        let url = try server.start()

        await #expect(throws: HTTPError.bodyTooLarge(limit: 1000)) {
            try await SystemTransport(options).send(HTTPCall(url: url))
        }
        await server.stop()
    }

    // MARK: - Accepted codings

    /// Values of `Accept-Encoding`, or `nil` for no field, and the decoded codings.
    static let requests: [(field: String?, undone: Set<String>)] = [
        (nil, ["gzip", "x-gzip", "deflate", "br", "zstd"]), ("identity", []), ("", []), ("gzip", ["gzip", "x-gzip"]),
        ("x-gzip", ["gzip", "x-gzip"]), ("GZip;q=0.5", ["gzip", "x-gzip"]), ("br, zstd;q=0", ["br"]),
        ("zstd;q=0.0, deflate;q=0.001", ["deflate"]), ("*", ["gzip", "x-gzip", "deflate", "br", "zstd"]), ("*;q=0", []),
        ("*, gzip;q=0", ["deflate", "br", "zstd"]), ("identity;q=0, deflate", ["deflate"]),
        ("gzip;q=0, br", ["br"]), ("compress, unknown", []), (";;, /", []),
    ]

    @Test(arguments: Self.requests.indices)
    func `WR-06 content is decoded only if the request accepts its coding`(index: Int) async throws {
        let (field, undone) = Self.requests[index]
        let gzip = try #require(Self.encoded.first)
        let server = LoopbackServer { request in
            let (coding, body) = (request.path.dropFirst().removingPercentEncoding ?? "", Data(request.body))
            return LoopbackServer.Response(headers: ["Content-Encoding": coding], body: body)
        }
        let url = try server.start()
        for (coding, body) in Self.encoded + [("x-gzip", gzip.body), ("identity", Self.text), ("unknown", gzip.body)] {
            var call = HTTPCall(method: "POST", url: url.appending(path: coding), body: .data(body))
            if let field { call.headers[.acceptEncoding] = field }

            let reply = try await self.transport.send(call)

            let isUndone = undone.contains(coding)
            #expect(reply.body == (isUndone ? Self.text : body), "\(coding) for \(field ?? "no field")")
            #expect(reply.headers[.contentEncoding] == coding)
        }
        await server.stop()
    }

    @Test func `WR-06 multiple codings are decoded only if the request accepts all codings`() async throws {
        let gzip = try #require(Self.encoded.first).body
        // A stored block of deflate around the bytes of gzip.
        let count = UInt16(gzip.count)
        let twice = Data([1, UInt8(count & 255), UInt8(count >> 8), UInt8(~count & 255), UInt8(~count >> 8)]) + gzip
        let server = LoopbackServer { _ in
            LoopbackServer.Response(headers: ["Content-Encoding": "x-gzip, deflate"], body: twice)
        }
        let url = try server.start()
        for (field, body) in [("gzip, deflate", Self.text), ("gzip", twice), ("deflate", twice), ("identity", twice)] {
            let reply = try await self.transport.send(HTTPCall(url: url, headers: [.acceptEncoding: field]))

            #expect(reply.body == body, "\(field)")
        }
        await server.stop()
    }

    @Test(arguments: ["gzip", "x-gzip", "deflate", "br", "zstd", "unknown", "gzip, br", "identity"])
    func `WR-06 media are stored without decoding and resume`(coding: String) async throws {
        let file = LoopbackServer.File(size: 300_000)
        let fields = Locked<[String?]>([])
        let faults = Locked<[LoopbackServer.File.Fault?]>([.cut(after: 100_000), nil])
        let world = try MediaWorld(
            file,
            answer: { request in
                fields.withLock { $0.append(request.header("Accept-Encoding")) }
                let fault = faults.withLock { $0.removeFirst() }
                return file.response(to: request, fault: fault).adding("Content-Encoding", coding)
            }
        )
        try await world.run { (world) async throws in
            let digest = SHA256.text(SHA256.hash(file.content))

            let stored = try await world.media().request(url: world.url, sha256: digest)

            #expect(try Data(contentsOf: stored) == file.content)
            #expect(file.starts == [0, 100_000])
            #expect(fields.withLock { $0 } == ["identity", "identity"])
        }
    }

    @Test func `WR-06 an archive that the server declares as encoded matches its digest`() async throws {
        let archive = try #require(Self.encoded.first).body
        let world = try MediaWorld(answer: { _ in .init(headers: ["Content-Encoding": "x-gzip"], body: archive) })
        try await world.run { (world) async throws in
            let url = world.server.url.appending(path: "source.tar.gz")
            let digest = SHA256.text(SHA256.hash(archive))

            let file = try await world.media().request(url: url, sha256: digest)

            #expect(try Data(contentsOf: file) == archive)
        }
    }

    @Test func `WR-06 a cache separates decoded responses and responses without decoding`() async throws {
        let gzip = try #require(Self.encoded.first).body
        let server = LoopbackServer { _ in
            .init(headers: ["Content-Encoding": "gzip", "Cache-Control": "max-age=100"], body: gzip)
        }
        let url = try server.start()
        let repository = MuxRepository(store: MemoryStore())
        let cache = CachingTransport(self.transport, repository: repository)
        for _ in 0..<2 {
            #expect(try await cache.send(HTTPCall(url: url)).body == Self.text)
            let plain = HTTPCall(url: url, headers: [.acceptEncoding: "identity"])
            #expect(try await cache.send(plain).body == gzip)
        }
        #expect(server.requestCount == 2)
        await server.stop()
    }

    @Test(arguments: Self.encoded)
    func `TR-02 damaged content is a typed error or a body, and never a trap`(coding: String, body: Data) async throws {
        var mutator = Mutator(seed: 7, words: Mutator.messageWords)
        for _ in 0..<60 {
            let damaged = Data(mutator.mutated(Array(body)))
            if case .failure(let error) = await self.reply(coding, damaged) { #expect(error is HTTPError) }
        }
    }
}
#endif
