#if os(Linux)
import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Content codings as the transport over libcurl undoes them.
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
        // Without the format's head, as some servers send it.
        ("deflate", "C8lIVSgszUzOVkgqyi/PU0jLr1DIKs0tKFbIL0stUigBSuckVlUqpOSn6ymEjCoeVTyqeFTxqOJRxcNLMQA="),
        ("br", "GwcHiCwOeNPQlV2XELsXK6nK0JLMjK1BXObyNsgZnp4Ke4MNOHBIIG8kv0GnFc4cHieqKTjCqXSfBgM="),
        ("zstd", "KLUv/WAIBrUBANQCVGhlIHF1aWNrIGJyb3duIGZveCBqdW1wcyBvdmVyIHRoZSBsYXp5IGRvZy4gAQDFFv6qDA=="),
    ].map { ($0.0, Data(base64Encoded: $0.1) ?? Data()) }

    private let transport = SystemTransport()

    /// The answer to a request that the server answers with `body` in some codings.
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
    func `TR-06 a known coding is undone`(coding: String, body: Data) async throws {
        #expect(try await self.reply(coding, body).get().body == Self.text)
        #expect(try await self.reply(coding.uppercased(), body).get().body == Self.text)
    }

    @Test(arguments: Self.encoded)
    func `TR-04 a content that ends early is truncated though its length is right`(coding: String, body: Data) async {
        for count in 1..<body.count {
            await #expect(throws: HTTPError.self, "\(coding) \(count)") {
                let reply = try await self.reply(coding, body.prefix(count)).get()
                guard reply.body != Self.text else { throw HTTPError.truncated(expected: nil, received: 0) }
            }
        }
        await #expect(throws: HTTPError.self) { try await self.reply(coding, body.dropLast()).get() }
    }

    @Test func `TR-04 codings in a row are undone from the last to the first`() async throws {
        let twice = try #require(Self.encoded.first { $0.coding == "gzip" })

        let error = await #expect(throws: HTTPError.self) { try await self.reply("br, gzip", twice.body).get() }

        #expect(error == .transport(.damagedContent(coding: "br")))
    }

    @Test(arguments: ["aes128gcm", "gzip, aes128gcm", "x", "gzip gzip"])
    func `TR-04 an unknown coding arrives as it is, with its field`(coding: String) async throws {
        let reply = try await self.reply(coding, Data("as it is".utf8)).get()

        #expect(reply.body == Data("as it is".utf8))
        #expect(reply.headers[.contentEncoding] == coding)
    }

    @Test func `TR-04 members of gzip follow one another`() async throws {
        let one = try #require(Self.encoded.first).body

        #expect(try await self.reply("gzip", one + one).get().body == Self.text + Self.text)
        #expect(try await self.reply("gzip", one + Data("rest".utf8)).get().body == Self.text)
        await #expect(throws: HTTPError.self) { try await self.reply("gzip", one + one.prefix(20)).get() }
    }

    @Test func `TR-04 a part of a content is not undone, nor is none`() async throws {
        let one = try #require(Self.encoded.first).body

        #expect(try await self.reply("gzip", one, status: 206).get().body == one)
        #expect(try await self.reply("gzip", one, method: "HEAD").get().body.isEmpty)
        #expect(try await self.reply("gzip", Data()).get().body.isEmpty)
    }

    @Test func `TR-02 a content that grows without end is bounded`() async throws {
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

    // MARK: - What the request asked for

    /// Values of `Accept-Encoding`, and the codings that are undone for them; `nil` for a request without the field.
    static let requests: [(field: String?, undone: Set<String>)] = [
        (nil, ["gzip", "x-gzip", "deflate", "br", "zstd"]), ("identity", []), ("", []), ("gzip", ["gzip", "x-gzip"]),
        ("x-gzip", ["gzip", "x-gzip"]), ("GZip;q=0.5", ["gzip", "x-gzip"]), ("br, zstd;q=0", ["br"]),
        ("zstd;q=0.0, deflate;q=0.001", ["deflate"]), ("*", ["gzip", "x-gzip", "deflate", "br", "zstd"]), ("*;q=0", []),
        ("*, gzip;q=0", ["deflate", "br", "zstd"]), ("identity;q=0, deflate", ["deflate"]),
        ("gzip;q=0, br", ["br"]), ("compress, unknown", []), (";;, /", []),
    ]

    @Test(arguments: Self.requests.indices)
    func `WR-06 a content is undone only if the request asked for its coding`(index: Int) async throws {
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

    @Test func `WR-06 codings in a row are undone only if the request asked for all`() async throws {
        let gzip = try #require(Self.encoded.first).body
        // Stored blocks of deflate around the bytes of gzip.
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
    func `WR-06 media are stored as the server sends them and resume`(coding: String) async throws {
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

    @Test func `WR-06 an archive that the server calls encoded matches its digest`() async throws {
        let archive = try #require(Self.encoded.first).body
        let world = try MediaWorld(answer: { _ in .init(headers: ["Content-Encoding": "x-gzip"], body: archive) })
        try await world.run { (world) async throws in
            let url = world.server.url.appending(path: "source.tar.gz")
            let digest = SHA256.text(SHA256.hash(archive))

            let file = try await world.media().request(url: url, sha256: digest)

            #expect(try Data(contentsOf: file) == archive)
        }
    }

    @Test func `WR-06 a cache keeps apart what was decoded and what was not`() async throws {
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
    func `TR-02 damaged contents are typed errors or contents, never traps`(coding: String, body: Data) async throws {
        var mutator = Mutator(seed: 7, words: Mutator.messageWords)
        for _ in 0..<60 {
            let damaged = Data(mutator.mutated(Array(body)))
            if case .failure(let error) = await self.reply(coding, damaged) { #expect(error is HTTPError) }
        }
    }
}
#endif
