import Foundation
import MuxNetwork
import MuxTestSupport
import Testing

/// The public suite, for the shared cache of a server in another process: `Tests/Interop/cache/run`.
@Suite(.standard, .enabled(if: ProxiedTransport.address != nil, "MUX_SHARED_CACHE is not set"))
struct SharedCacheInteropTests {
    /// The required tests that do not apply, with the reasons.
    private static let inapplicable = [
        "stale-while-revalidate-window": "a handler cannot run after its request",
        "stale-close-must-revalidate":
            "depends on stale-close, a question: a handler sends an error, and no disconnection",
        "stale-close-proxy-revalidate": "as stale-close-must-revalidate",
        "stale-close-no-cache": "as stale-close-must-revalidate",
        "stale-close-s-maxage=2": "as stale-close-must-revalidate",
        "headers-store-Set-Cookie": "a response with Set-Cookie is not stored",
        "other-date-update": "Hummingbird replaces Date in every response",
        "other-date-update-expires": "as other-date-update",
        "interim-not-cached": "handlers send no interim responses through the cache",
    ]

    @Test func `NB-04 the shared cache passes the public tests of shared caches`() async throws {
        let proxy = try #require(ProxiedTransport.address)
        let suites = try CacheSuite.all()
        let tests = suites.flatMap(\.tests).filter { !$0.isForPrivateCache && !$0.isForNetworks }
        let origin = try CacheSuiteOrigin()
        let player = CacheSuitePlayer(origin: origin) { base, _, wallTime in
            ProxiedTransport(base: base, proxy: proxy, wallTime: wallTime)
        }
        let outcomes = await player.play(tests)
        await origin.stop()
        let report = CacheSuiteReport(suites, outcomes)
        let required = tests.filter { $0.kind == .required }
        let notPassed = required.filter { report.verdicts[$0.id] != .passed }
        print("shared cache: required \(required.count - notPassed.count)/\(required.count)")
        for test in tests where test.kind != .check && report.verdicts[test.id] != .passed {
            print("    \(test.kind.rawValue): \(test.id): \(report.verdicts[test.id]?.reason ?? "")")
        }
        #expect(Set(notPassed.map(\.id)) == Set(Self.inapplicable.keys))
        #expect(required.count == 150)
    }
}

/// Sends the requests of the suite's client through the server with the cache.
///
/// The server makes a new cache for each `Test-Cache`, and moves the cache's virtual clock to `Test-Time`.
private struct ProxiedTransport: HTTPTransport {
    static let address = ProcessInfo.processInfo.environment["MUX_SHARED_CACHE"]

    let base: any HTTPTransport
    let proxy: String
    let wallTime: @Sendable () -> Date
    private let name = UUID().uuidString

    init(base: any HTTPTransport, proxy: String, wallTime: @escaping @Sendable () -> Date) {
        (self.base, self.proxy, self.wallTime) = (base, proxy, wallTime)
    }

    func send(_ call: HTTPCall) async throws -> HTTPReply {
        var call = call
        guard let origin = call.url.host().flatMap({ host in call.url.port.map { "http://\(host):\($0)" } }),
            let url = URL(string: call.url.absoluteString.replacing(origin, with: self.proxy))
        else { throw HTTPError.preparation(.invalidURL) }
        call.headers.append(origin, for: "Test-Origin")
        call.headers.append(self.name, for: "Test-Cache")
        call.headers.append(String(self.wallTime().timeIntervalSince1970), for: "Test-Time")
        call.url = url
        return try await self.base.send(call)
    }
}
