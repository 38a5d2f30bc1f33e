import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Servers and intermediaries that violate RFC 9110 and RFC 9111.
///
/// No response combines two versions, and no validation of another version confirms a response.
@Suite(.standard)
struct MisbehavingServerTests {
    private let world = CachingWorld()

    private static let fresh = "max-age=100"
    private static let text = Array("0123456789".utf8)

    /// A 206 with a range of bytes of a representation, which has ten bytes by default.
    private static func part(_ bytes: ClosedRange<Int>, of version: String, text: [UInt8] = text) -> HTTPReply {
        HTTPReply(
            status: 206,
            headers: [
                "Cache-Control": fresh, "ETag": "\"\(version)\"",
                "Content-Range": "bytes \(bytes.lowerBound)-\(bytes.upperBound)/\(text.count)",
            ],
            body: Data(text[bytes])
        )
    }

    private static func whole(_ text: String, _ version: String, _ control: String = fresh) -> HTTPReply {
        HTTPReply(
            status: 200,
            headers: ["Cache-Control": control, "ETag": "\"\(version)\""],
            body: Data(text.utf8)
        )
    }

    /// A cache in front of a server that returns these responses in turn, and then fails.
    private func cache(_ replies: [HTTPReply]) -> (CachingTransport, ClosureTransport) {
        let left = Locked(replies[...])
        return self.world.cache { _ in
            guard let reply = left.withLock({ $0.popFirst() }) else {
                throw HTTPError.transport(.closedWithoutResponse(FetchLost()))
            }
            return reply
        }
    }

    // MARK: - Parts

    /// Responses to the request for the rest of a stored part, but with other bytes than the rest.
    private static let wrongRests: [HTTPReply] = [
        // The server ignored If-Range.
        part(5...9, of: "2"),
        // Other bytes than the requested bytes.
        part(6...9, of: "1"), part(4...9, of: "1"), part(0...4, of: "1"), part(5...8, of: "1"), part(0...9, of: "1"),
        // Bytes of a representation with another length.
        part(5...9, of: "1", text: text + text),
    ]

    @Test(arguments: wrongRests)
    func `PT-05 a part is combined only with its rest`(rest: HTTPReply) async throws {
        let (cache, server) = self.cache([Self.part(0...4, of: "1"), rest, Self.whole("ABCDEFGHIJ", "2")])
        _ = try await cache.send(self.world.call("GET", ["Range": "bytes=0-4"]))

        let reply = try await cache.send(self.world.call())

        #expect(reply.status == 200)
        let texts = ["0123456789", "ABCDEFGHIJ"]
        let text = String(decoding: reply.body, as: UTF8.self)
        // Bytes of one version may be combined if all bytes are present. Bytes of two versions never are.
        let isOfOther = rest.headers["ETag"] != "\"1\"" || rest.headers["Content-Range"]?.hasSuffix("/20") == true
        #expect(isOfOther ? text == texts[1] : texts.contains(text))
        #expect(server.calls.count == (text == texts[1] ? 3 : 2))
        #expect(try await cache.send(self.world.call()).body == reply.body)
    }

    @Test func `PT-05 any two parts of a version are combined without a gap`() async throws {
        let count = 6
        let all = Array(Self.text.prefix(count))
        let ranges = (0..<count).flatMap { first in (first..<count).map { first...$0 } }
        let server = { @Sendable (call: HTTPCall) -> HTTPReply in
            guard let range = call.headers["Range"] else {
                return Self.whole(String(decoding: all, as: UTF8.self), "1")
            }
            let ends = range.dropFirst("bytes=".count).split(separator: "-", omittingEmptySubsequences: false)
            let (first, last) = (ends.first.flatMap { Int($0) } ?? 0, ends.last.flatMap { Int($0) } ?? count - 1)
            guard first < count else {
                Issue.record("asked for \(range) of \(count) bytes")
                return HTTPReply(status: 416)
            }
            return Self.part(first...min(last, count - 1), of: "1", text: all)
        }
        for first in ranges {
            for second in ranges {
                let world = CachingWorld()
                let (cache, _) = world.cache { server($0) }
                for range in [first, second, first, second] {
                    let field = "bytes=\(range.lowerBound)-\(range.upperBound)"
                    let reply = try await cache.send(world.call("GET", ["Range": field]))
                    try #require(reply.body == Data(all[range]), "\(first), \(second): \(range)")
                }
                let reply = try await cache.send(world.call())
                try #require(reply.status == 200 && reply.body == Data(all), "\(first), \(second)")
            }
        }
    }

    @Test func `PT-05 parts with a content coding are never used as the decoded representation`() async throws {
        var parts = [Self.part(0...9, of: "1"), Self.part(0...4, of: "1"), Self.part(5...9, of: "1")]
        for number in parts.indices { parts[number].headers["Content-Encoding"] = "gzip" }
        for replies in [[parts[0]], [parts[1], parts[2]], [parts[1]]] {
            let (cache, server) = self.cache(replies + [Self.whole("decoded", "1")])
            for reply in replies {
                let range = reply.headers["Content-Range"]?.dropFirst("bytes ".count).prefix(3) ?? ""
                #expect(try await cache.send(self.world.call("GET", ["Range": "bytes=\(range)"])).status == 206)
            }
            #expect(try await cache.send(self.world.call()).body == Data("decoded".utf8))
            #expect(server.calls.last?.headers["Range"] == nil)
            #expect(server.calls.count == replies.count + 1)
        }
    }

    // MARK: - Validation

    @Test(arguments: [["ETag": "\"2\""], ["ETag": "W/\"2\""], ["Last-Modified": "Sun, 06 Nov 1994 08:49:37 GMT"]])
    func `PT-05 a 304 for another version does not confirm the stored response`(fields: [String: String]) async throws {
        var first = Self.whole("1", "1", "max-age=10")
        if fields["ETag"] == nil {
            first.headers["ETag"] = nil
            first.headers["Last-Modified"] = "Sat, 05 Nov 1994 08:49:37 GMT"
        }
        let confirmation = HTTPReply(
            status: 304,
            headers: HTTPHeaders(fields.merging(["Cache-Control": Self.fresh]) { _, new in new })
        )
        let (cache, server) = self.cache([first, confirmation, Self.whole("2", "2")])
        _ = try await cache.send(self.world.call())
        self.world.clock.advance(by: .seconds(11))

        for _ in 0..<2 { #expect(try await cache.send(self.world.call()).body == Data("2".utf8)) }

        #expect(server.calls.count == 3)
        let conditions = server.calls.map { $0.headers["If-None-Match"] ?? $0.headers["If-Modified-Since"] }
        #expect(conditions.map { $0 != nil } == [false, true, false])
    }

    @Test func `PT-05 after a change, a 304 makes the stored response fresh again`() async throws {
        let confirmation = HTTPReply(status: 304, headers: ["Cache-Control": Self.fresh, "ETag": "\"1\""])
        let (cache, server) = self.cache([Self.whole("1", "1"), HTTPReply(status: 204), confirmation])
        _ = try await cache.send(self.world.call())
        _ = try await cache.send(self.world.call("POST"))

        for _ in 0..<3 { #expect(try await cache.send(self.world.call()).body == Data("1".utf8)) }

        #expect(server.calls.count == 3)
    }

    @Test(arguments: ["PUT", "POST", "DELETE", "PATCH"], [true, false])
    func `PT-05 a response stored before a change does not replace a failure`(
        method: String,
        isOffline: Bool
    ) async throws {
        let control = "max-age=100, stale-if-error=1000, stale-while-revalidate=1000"
        let failure = HTTPReply(status: 503)
        let (cache, server) = self.cache(
            [Self.whole("1", "1", control), HTTPReply(status: 204)] + (isOffline ? [] : [failure, failure])
        )
        _ = try await cache.send(self.world.call())
        _ = try await cache.send(self.world.call(method))

        for _ in 0..<2 {
            let reply = try? await cache.send(self.world.call())
            #expect(reply?.status == (isOffline ? nil : 503))
            #expect(reply?.body != Data("1".utf8))
        }
        #expect(server.calls.count == 4)
    }

    // MARK: - Redirections

    /// The responses of a redirection's target, which are in no relation to the stored response.
    private static let ofTarget: [HTTPReply] = [
        part(5...9, of: "1"), HTTPReply(status: 304, headers: ["ETag": "\"1\""]),
    ]

    @Test(arguments: ofTarget)
    func `PT-05 a response of another URL neither completes nor validates a stored response`(
        redirected: HTTPReply
    ) async throws {
        var redirected = redirected
        redirected.url = self.world.url.appending(path: "moved")
        let isPart = redirected.status == 206
        let first = isPart ? Self.part(0...4, of: "1") : Self.whole("0123456789", "1", "max-age=10")
        let (cache, server) = self.cache([first, redirected, Self.whole("ABCDEFGHIJ", "1")])
        _ = try await cache.send(self.world.call("GET", isPart ? ["Range": "bytes=0-4"] : [:]))
        if !isPart { self.world.clock.advance(by: .seconds(11)) }

        #expect(try await cache.send(self.world.call()).body == Data("ABCDEFGHIJ".utf8))

        #expect(server.calls.count == 3)
        #expect(server.calls.last?.headers["Range"] == nil)
        #expect(server.calls.last?.headers["If-None-Match"] == nil)
    }

    @Test func `PT-05 a response of another URL to HEAD does not describe the stored response`() async throws {
        var redirected = HTTPReply(status: 200, headers: ["Cache-Control": Self.fresh])
        redirected.url = self.world.url.appending(path: "moved")
        let (cache, server) = self.cache([Self.whole("1", "1", "max-age=10"), redirected, Self.whole("2", "2")])
        _ = try await cache.send(self.world.call())
        self.world.clock.advance(by: .seconds(11))
        _ = try await cache.send(self.world.call("HEAD"))

        #expect(try await cache.send(self.world.call()).body == Data("2".utf8))

        #expect(server.calls.count == 3)
    }

    // MARK: - Vary

    @Test func `PT-05 Vary compares field names without case, and separates different field values`() async throws {
        let languages = Locked<[String]>([])
        let (cache, _) = self.world.cache { call in
            let language = call.headers["Accept-Language"] ?? ""
            languages.withLock { $0.append(language) }
            return HTTPReply(
                status: 200,
                headers: ["Cache-Control": Self.fresh, "Vary": "ACCEPT-language"],
                body: Data(language.utf8)
            )
        }
        for (name, language) in [
            ("Accept-Language", "de"), ("accept-LANGUAGE", "de"), ("accept-language", "fr"), ("Accept-Language", "de"),
        ] {
            let call = self.world.call("GET", HTTPHeaders([name: language]))
            #expect(try await cache.send(call).body == Data(language.utf8))
        }
        #expect(languages.withLock { $0 } == ["de", "fr"])
    }
}
