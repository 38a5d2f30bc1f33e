import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// The suite, run against the value cache: a map of complete responses, by URL.
@Suite(.standard, .enabled(if: CacheSuite.isAvailable, "Tests/Interop/cache-tests/tests.json is missing"))
struct ValueCacheSuiteTests {
    /// Whether a test concerns complete responses: an output has no fields to update, no parts and no age.
    private static func isAboutAnswers(_ test: CacheSuiteTest, of suite: CacheSuite) -> Bool {
        ["headers", "update304", "updateHEAD", "partial", "conditional-lm", "interim"].contains(suite.id)
            || test.id.hasPrefix("other-age-") || Self.answersOfTheCache.contains(test.id)
    }

    /// Tests that expect a 304 or a 504 from the cache, where a value cache returns the value or throws.
    private static let answersOfTheCache: Set<String> = [
        "conditional-304-etag", "conditional-etag-precedence", "stale-close-must-revalidate", "stale-close-no-cache",
    ]

    @Test func `HC-01 HC-02 the value cache fails no required test`() async throws {
        let report = try await CacheSuiteReport.of { ValueCacheTransport($0, $1, $2) }
        print(report.table("the value cache"))

        var (failed, total): (Set<String>, Int) = ([], 0)
        for suite in report.suites {
            for test in suite.tests where test.kind == .required && test.scope != .sharedCache {
                guard !Self.isAboutAnswers(test, of: suite) else { continue }
                total += 1
                if report.verdicts[test.id] != .passed { failed.insert(test.id) }
            }
        }
        print("required of a cache of values: \(total - failed.count)/\(total), failed: \(failed.sorted())")
        #expect(total > 90)
        #expect(failed.sorted() == [])
    }
}

/// The value cache of a client as a transport: a map serves `GET`, and the client sends other methods.
///
/// Request directives become equivalent options of a request.
private final class ValueCacheTransport: HTTPTransport {
    private let client: HTTPClient
    private let answers: MultiplexerMap<URL, HTTPReply>
    /// The last request of each URL, which the next fetch sends.
    private let calls: Locked<[URL: HTTPCall]>

    init(_ base: any HTTPTransport, _ clock: VirtualClock, _ wallTime: @escaping @Sendable () -> Date) {
        var configuration = HTTPClient.Configuration()
        configuration.clock = clock
        configuration.wallTime = wallTime
        let repository = MuxRepository(
            store: MemoryStore(),
            durability: .relaxed,
            clock: clock,
            wallTime: wallTime
        )
        let calls = Locked<[URL: HTTPCall]>([:])
        self.calls = calls
        self.client = HTTPClient(configuration: configuration, transport: base)
        self.answers = self.client.multiplexerMap(policy: .init(timeToLive: .zero), repository: repository) { url in
            GetWhole(call: calls.withLock { $0[url] } ?? HTTPCall(url: url))
        }
    }

    func send(_ call: HTTPCall) async throws -> HTTPReply {
        guard call.method == "GET" else {
            let response = try await self.client.response(to: GetWhole(call: call))
            return GetWhole.reply(response)
        }
        self.calls.withLock { $0[call.url] = call }
        do {
            return try await self.answers.request(key: call.url, Self.options(call.headers))
        } catch MuxError.notCached {
            return HTTPReply(status: 504)
        }
    }

    private static func options(_ headers: HTTPHeaders) -> RequestOptions {
        let directives = (headers[.cacheControl] ?? "").split(separator: ",").map {
            $0.trimmingCharacters(in: .whitespaces).lowercased()
        }
        if directives.contains("only-if-cached") { return .cacheOnly }
        if directives.contains("no-cache") || directives.contains("no-store") { return .reload }
        let age = directives.first { $0.hasPrefix("max-age=") }?.dropFirst("max-age=".count)
        return age.flatMap { Int($0) }.map { .maxAge(.seconds($0)) } ?? .init()
    }
}

/// A request whose output is the response, regardless of the status.
private struct GetWhole: HTTPRequest {
    typealias Output = HTTPReply
    var call: HTTPCall
    var endpoint: HTTPEndpoint {
        (try? HTTPEndpoint(self.call.url)) ?? HTTPEndpoint(scheme: .http, host: "invalid")
    }
    var method: HTTPMethod { HTTPMethod(rawValue: self.call.method) ?? .get }
    var headers: HTTPHeaders { self.call.headers }
    var usesPrivateHeaders: Bool { true }
    var body: HTTPBody? { self.call.body?.data.map { .data($0) } }
    var successStatuses: ClosedRange<HTTPStatus> { 100...999 }
    var mapper: HTTPMapper<HTTPReply> { .init(output: Self.reply) }

    @Sendable static func reply(_ response: HTTPResponse) -> HTTPReply {
        HTTPReply(status: response.status.code, headers: response.headers, body: response.body, url: response.url)
    }
}
