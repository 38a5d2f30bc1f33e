import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// The cache under test.
let cacheSubject: CacheSubject = { base, clock, wallTime in
    CachingTransport(
        base,
        repository: MuxRepository(store: MemoryStore(), clock: clock, wallTime: wallTime)
    )
}

/// The number of tests that the cache under test must pass, of 137 and 77.
let cacheSubjectGoal = (required: 137, optimal: 70)

/// The public suite http-tests/cache-tests, run by an interpreter in Swift.
@Suite(.standard, .enabled(if: CacheSuite.isAvailable, "Tests/Interop/cache-tests/tests.json is missing"))
struct CacheSuiteTests {
    // MARK: - The interpreter

    @Test func `HC-04 the tests for a private cache are the tests of the published results`() throws {
        let tests = try CacheSuite.all().flatMap(\.tests)
        func count(_ kind: CacheSuiteTest.Kind, _ scope: CacheSuiteTest.Scope) -> Int {
            tests.count { $0.kind == kind && $0.scope == scope }
        }

        #expect(tests.count == 370)
        #expect(count(.required, .privateCache) == 137)
        #expect(count(.optimal, .privateCache) == 77)
        #expect(count(.check, .privateCache) == 86)
        #expect(count(.required, .beyondBrowsers) == 8)
        #expect(count(.optimal, .beyondBrowsers) == 18)
    }

    @Test func `HC-04 every member of the data is read`() throws {
        let json = try JSONSerialization.jsonObject(with: CacheSuite.data())
        let suites = try #require(json as? [[String: Any]])
        let tests = suites.flatMap { $0["tests"] as? [[String: Any]] ?? [] }
        let requests = tests.flatMap { $0["requests"] as? [[String: Any]] ?? [] }

        func unread(_ objects: [[String: Any]], _ known: [String]) -> Set<String> {
            Set(objects.flatMap(\.keys)).subtracting(known).subtracting(CacheSuite.explanations)
        }
        #expect(requests.count == 779)
        #expect(unread(suites, CacheSuite.CodingKeys.allCases.map(\.rawValue)) == [])
        #expect(unread(tests, CacheSuiteTest.CodingKeys.allCases.map(\.rawValue)) == [])
        #expect(unread(requests, CacheSuiteRequest.CodingKeys.allCases.map(\.rawValue)) == [])
    }

    @Test func `HC-04 dates are formatted as HTTP dates`() {
        let date = Date(timeIntervalSince1970: 784_111_777)

        #expect(CacheSuiteDate.text(date) == "Sun, 06 Nov 1994 08:49:37 GMT")
        #expect(CacheSuiteDate.text(date, isRFC850: true) == "Sunday, 06-Nov-94 08:49:37 GMT")
    }

    @Test func `HC-04 without a cache no test passes that requires a cache`() async throws {
        let report = try await CacheSuiteReport.of { base, _, _ in base }

        let passed = report.suites.flatMap(\.tests).filter { report.verdicts[$0.id] == .passed }
        let cached = passed.filter { test in
            test.requests.contains { $0.expectedType == .cached || $0.expectedType?.isValidated == true }
        }
        #expect(cached.map(\.id) == [])
        // The other passed tests require no reuse, and depend on no test that requires a cache.
        #expect(report.count(.required) == .init(passed: 18, total: 137))
        #expect(report.count(.optimal) == .init(passed: 0, total: 77))
        #expect(report.verdicts["freshness-none"] == .passed)
        #expect(report.verdicts["freshness-max-age"] == .failed("response 2 does not come from cache"))
        #expect(report.verdicts["freshness-max-age-stale"] == .dependency("freshness-max-age"))
        #expect(
            report.verdicts["304-etag-update-response-Test-Header"] == .dependency("304-lm-use-stored-Test-Header")
        )
        #expect(report.verdicts["304-lm-use-stored-Test-Header"]?.isVoid == true)
    }

    @Test func `HC-04 a cache without rules fails the tests that require rules`() async throws {
        let report = try await CacheSuiteReport.of { base, _, _ in HoardingTransport(base) }

        #expect(report.count(.required) == .init(passed: 0, total: 137))
        #expect(report.count(.optimal) == .init(passed: 12, total: 77))
        #expect(report.verdicts["cc-resp-no-store"] == .failed("response 2 comes from cache"))
        #expect(report.verdicts["cc-resp-immutable-stale"] == .failed("request 2 was not sent"))
    }

    @Test func `HC-04 every response of the origin reaches the caller`() async throws {
        let report = try await CacheSuiteReport.of { base, _, _ in base }

        // Unknown codings, wrong lengths and odd statuses test the cache only after passing the transport.
        let lost = report.suites.flatMap(\.tests).filter { test in
            let reason = report.outcomes[test.id]?.reason ?? ""
            return reason.hasPrefix("no answer") && !test.requests.contains { $0.disconnects }
        }
        #expect(lost.map(\.id) == [])
        let ended = report.outcomes.filter { $0.value.reason?.hasPrefix("no answer") == true }.map(\.key)
        #expect(
            ended.sorted() == [
                "stale-close", "stale-close-must-revalidate", "stale-close-no-cache", "stale-sie-close",
                "stale-warning-become", "stale-warning-stored",
            ]
        )
    }

    @Test func `WR-12 the figures of browsers count a test whose dependency fails as failed`() {
        let table = CacheSuiteReport([], [:]).table("no cache")

        #expect(table.contains("Chrome 143 117/137, Firefox 146 106/137, Safari 26.2 108/137"))
    }

    // MARK: - The cache under test

    @Test func `HC-04 the cache passes the suite`() async throws {
        let report = try await CacheSuiteReport.of(cacheSubject)
        print(report.table("the cache under test"))

        #expect(report.count(.required).passed >= cacheSubjectGoal.required)
        #expect(report.count(.optimal).passed >= cacheSubjectGoal.optimal)
    }
}

extension CacheSuiteReport {
    /// Runs all tests except tests of shared caches against a subject.
    static func of(_ subject: @escaping CacheSubject) async throws -> CacheSuiteReport {
        let suites = try CacheSuite.all()
        let tests = suites.flatMap(\.tests).filter { $0.scope != .sharedCache }
        let origin = try CacheSuiteOrigin()
        let outcomes = await CacheSuitePlayer(origin: origin, subject: subject).play(tests)
        await origin.stop()
        return CacheSuiteReport(suites, outcomes)
    }
}

/// Keeps the first response of every URL forever.
private final class HoardingTransport: HTTPTransport {
    private let base: any HTTPTransport
    private let kept = Locked<[URL: HTTPReply]>([:])

    init(_ base: any HTTPTransport) { self.base = base }

    func send(_ call: HTTPCall) async throws -> HTTPReply {
        if let reply = self.kept.withLock({ $0[call.url] }) { return reply }
        let reply = try await self.base.send(call)
        self.kept.withLock { $0[call.url] = reply }
        return reply
    }
}
