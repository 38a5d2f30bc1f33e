import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import Testing

/// The server that records received requests, started by `Tests/Interop/browser/run`.
private let origin = ProcessInfo.processInfo.environment["MUX_BROWSER"].flatMap { URL(string: $0) }

/// The cache compared with Chromium's cache.
///
/// Chromium has performed the exchanges of `Tests/Interop/browser/exchanges.json` before.
@Suite(.standard, .enabled(if: origin != nil, "Tests/Interop/browser/run starts the browser that this needs"))
struct BrowserComparisonTests {
    /// The exchanges with different requests at the origin, with the reason why the library is correct.
    private static let exceptions = [
        "changed-content-location": """
        The library invalidates what an answer to an unsafe method names in Content-Location, as a cache may \
        (RFC 9111, section 4.4). Chromium invalidates the URL of the request alone.
        """,
        "heuristic-after-two-days": """
        RFC 9111, section 4.2.2, leaves heuristic freshness to the cache. The library's ends after a day \
        (`heuristicLimit`); Chromium's has no limit but the tenth of the time since the change.
        """,
        "immutable": """
        A fresh answer that is immutable is not validated for a reload, max-age=0 (RFC 8246, section 2). \
        Chromium validates it.
        """,
        "moved-permanently": """
        Without a lifetime and a last change there is nothing to derive freshness from, so the library asks \
        again. Chromium keeps a 301 for good. RFC 9111, section 4.2.2, permits both.
        """,
        "pragma": """
        Pragma says nothing in an answer (RFC 9111, section 5.4). Chromium takes no-cache in it for a directive.
        """,
        "request-max-stale": """
        The request accepts a stale answer (RFC 9111, section 5.2.1.2). Chromium ignores the directive.
        """,
        "request-no-cache": """
        The request demands validation, for which the stored validator will do (RFC 9111, section 5.2.1.4). \
        Chromium bypasses its cache.
        """,
        "request-only-if-cached": """
        Nothing is stored, so the answer is 504 without a request (RFC 9111, section 5.2.1.7). Chromium ignores \
        the directive.
        """,
        "request-own-condition": """
        The stored answer is fresh, so the cache evaluates the condition (RFC 9111, section 4.3.2). A browser \
        passes a page's own condition on (Fetch, section 4.6).
        """,
        "unsafe-method-with-validator": """
        An invalidated answer stays stored and is validated, as RFC 9111, section 4.4, permits. Chromium removes \
        it.
        """,
        "vary-and-back": """
        The library keeps an answer for each variant (RFC 9111, section 4.1). Chromium keeps the last one.
        """,
    ]

    /// The steps of a client in an exchange.
    private struct Exchange: Decodable {
        struct Step: Decodable {
            var request: Request
            var pause: Double?
        }

        struct Request: Decodable {
            var path: String?
            var method: String?
            var headers: [String: String]?
            var body: String?
        }

        var name: String
        var steps: [Step]
    }

    /// The compared members of a request that has reached the origin.
    private struct Seen: Decodable, Equatable {
        var step: Int
        var method: String
        var path: String
        var ifNoneMatch: String?
        var ifModifiedSince: String?
        var range: String?

        private enum CodingKeys: String, CodingKey {
            case step, method, path
            case ifNoneMatch = "If-None-Match"
            case ifModifiedSince = "If-Modified-Since"
            case range = "Range"
        }
    }

    private let direct: SystemTransport

    init() {
        var options = HTTPTransportConfiguration()
        options.usesProxies = false
        self.direct = .system(options)
    }

    private func url(_ target: String) throws -> URL {
        let base = try #require(origin)
        return try #require(URL(string: "\(base.absoluteString)/\(target)"))
    }

    private func get<Value: Decodable>(_ target: String) async throws -> Value {
        let reply = try await self.direct.send(HTTPCall(url: self.url(target)))
        #expect(reply.status == 200)
        return try JSONDecoder().decode(Value.self, from: reply.body)
    }

    private func play(_ exchange: Exchange, as client: String, over transport: CachingTransport) async throws {
        for (number, step) in zip(1..., exchange.steps) {
            let request = step.request
            var call = HTTPCall(
                method: request.method ?? "GET",
                url: try self.url("\(client)/\(exchange.name)/\(request.path ?? "")"),
                body: request.body.map { .data(Data($0.utf8)) }
            )
            call.headers["Step"] = String(number)
            for (name, value) in request.headers ?? [:] { call.headers[.init(stringLiteral: name)] = value }
            _ = try await transport.send(call)
            guard let pause = step.pause else { continue }
            // The origin responds after the pause.
            #expect(try await self.direct.send(HTTPCall(url: self.url("pause/\(pause)"))).status == 204)
        }
    }

    @Test func `HC-08 the server receives the same requests as from a browser`() async throws {
        let exchanges: [Exchange] = try await self.get("exchanges.json")
        #expect(exchanges.count == 40)
        // A unique name, so that the test can be repeated.
        let client = "muxkit-\(UUID().uuidString)"
        let cache = CachingTransport(self.direct, repository: MuxRepository(store: MemoryStore()))

        for exchange in exchanges { try await self.play(exchange, as: client, over: cache) }

        let browser: [String: [Seen]] = try await self.get("record/chromium")
        let library: [String: [Seen]] = try await self.get("record/\(client)")
        #expect(Set(browser.keys) == Set(exchanges.map(\.name)))
        #expect(Set(Self.exceptions.keys).isSubset(of: exchanges.map(\.name)))
        for exchange in exchanges {
            let (theirs, ours) = (browser[exchange.name] ?? [], library[exchange.name] ?? [])
            if let reason = Self.exceptions[exchange.name] {
                #expect(ours != theirs, "\(exchange.name) differs no longer: \(reason)")
            } else {
                #expect(ours == theirs, "\(exchange.name)")
            }
        }
    }
}
