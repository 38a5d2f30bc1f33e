#if os(Linux)
import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Content codings as the transport over libcurl undoes them.
@Suite(.timeLimit(.minutes(15)), .takesTurns)
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
        var options = HTTPTransportOptions()
        options.maximumBodySize = 1000
        let body = try #require(Self.encoded.first).body
        let server = LoopbackServer { _ in LoopbackServer.Response(headers: ["Content-Encoding": "gzip"], body: body) }
        let url = try server.start()

        await #expect(throws: HTTPError.bodyTooLarge(limit: 1000)) {
            try await SystemTransport(options).send(HTTPCall(url: url))
        }
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
