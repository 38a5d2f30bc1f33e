import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// The defaults that apps rely on, in one table: a changed default is a change of the public interface.
@Suite(.standard)
struct DefaultsTests {
    /// The members of `value`, except functions and members that contain functions.
    private static func lines(_ name: String, _ value: Any) -> [String] {
        Mirror(reflecting: value).children.compactMap { label, value in
            let text = value is Set<Int> ? "\((value as? Set<Int> ?? []).sorted())" : "\(value)"
            guard let label, !text.contains("(Function)") else { return nil }
            let set = (value as? Set<String>).map { "\($0.sorted())" }
            return "\(name).\(label) = \(set ?? text.replacing("Optional(", with: "").replacing(")", with: ""))"
        }
    }

    private static let table = """
        MuxPolicy.name = nil
        MuxPolicy.timeToLive = 1800.0 seconds
        MuxPolicy.timeToLiveJitter = 0.0
        MuxPolicy.staleWhileRevalidate = 0.0 seconds
        MuxPolicy.refreshAhead = nil
        MuxPolicy.staleIfError = 604800.0 seconds
        MuxPolicy.errorBackoff = 1.0 seconds
        MuxPolicy.whenAbandoned = cancel(linger: 1.0 seconds
        MuxPolicy.fetchTimeout = 60.0 seconds
        MuxPolicy.retry = nil
        MuxPolicy.refetch = Refetch(whenStale: true, every: nil, onActivation: false, onReconnection: false
        MuxPolicy.maximumCount = 10000
        MuxPolicy.maximumCost = nil
        MuxPolicy.evictsLeastRecentlyUsed = false
        MuxPolicy.schemaVersion = 1
        MuxPolicy.migrations = []
        Batching.window = 0.005 seconds
        Batching.maximumSize = 100
        RunnerPolicy.name = nil
        RunnerPolicy.maximumUpdatesPerCall = 5
        RunnerPolicy.retry = nil
        RunnerPolicy.maximumUpdatesPerWindow = 5
        RunnerPolicy.window = 30.0 seconds
        RunnerPolicy.updateTimeout = 300.0 seconds
        RunnerPolicy.coolDown = 0.0 seconds
        RunnerPolicy.leeway = 30.0 seconds
        RunnerPolicy.refusesSameDependency = false
        RunnerPolicy.cancelsUnwantedUpdates = false
        RunnerPolicy.leaseDuration = 10.0 seconds
        RetryPolicy.maxAttempts = 3
        RetryPolicy.jitter = full
        RetryPolicy.maximumDelay = 21600.0 seconds
        RetryPolicy.maximumDuration = nil
        RetryPolicy.maximumRetryAfter = 300.0 seconds
        RetryPolicy.wakeJitter = 3.0 seconds
        RetryPolicy.repeatsUnsafeWork = false
        RetryPolicy.retriedStatuses = [408, 425, 429, 500, 502, 503, 504]
        RetryPolicy.refusedStatuses = []
        RetryBudget.share = 0.1
        RetryBudget.minimumRetries = 10
        RetryBudget.window = 10.0 seconds
        RetryBudget.failuresToOpen = 20
        RetryBudget.pause = 5.0 seconds
        RetryBudget.maximumPause = 300.0 seconds
        RetryBudget.probeLimit = 30.0 seconds
        RetryBudget.maximumHosts = 1000
        MuxShared.budget = 0.25 seconds
        MuxShared.patience = 5.0 seconds
        MuxShared.pause = 1.0 seconds
        MuxShared.maximumPause = 30.0 seconds
        HTTPTransportConfiguration.timeout = 20.0 seconds
        HTTPTransportConfiguration.deadline = 40.0 seconds
        HTTPTransportConfiguration.maximumBodySize = 67108864
        HTTPTransportConfiguration.maximumHeadSize = 262144
        HTTPTransportConfiguration.maximumRedirects = 10
        HTTPTransportConfiguration.connectionsPerHost = 10
        HTTPTransportConfiguration.credentialHeaders = ["Authorization", "Cookie", "Proxy-Authorization", "X-Api-Key"]
        HTTPTransportConfiguration.usesProxies = true
        HTTPTransportConfiguration.certificateAuthorities = nil
        HTTPTransportConfiguration.clientCertificate = nil
        CachingTransport.cacheKey = nil
        CachingTransport.memoryLimit = 16777216
        CachingTransport.memoryBodyLimit = 262144
        CachingTransport.diskLimit = 268435456
        CachingTransport.bodyLimit = 67108864
        CachingTransport.directory = nil
        CachingTransport.heuristicLimit = 86400.0 seconds
        CachingTransport.staleLimit = 604800.0 seconds
        CachingTransport.errorBackoff = 1.0 seconds
        AsyncMedia.maximumBytes = 1073741824
        AsyncMedia.maximumFileBytes = 4294967296
        AsyncMedia.minimumFileBytes = 0
        AsyncMedia.freeSpaceReserve = 268435456
        AsyncMedia.parallelDownloads = 6
        AsyncMedia.silence = 30.0 seconds
        """

    @Test func `PT-04 the public defaults match the table`() {
        let lines =
            Self.lines("MuxPolicy", MuxPolicy()) + Self.lines("Batching", MuxPolicy.Batching())
            + Self.lines("RunnerPolicy", RunnerPolicy()) + Self.lines("RetryPolicy", RetryPolicy())
            + Self.lines("RetryBudget", RetryBudget.Limits()) + Self.lines("MuxShared", MuxShared.Policy())
            + Self.lines("HTTPTransportConfiguration", HTTPTransportConfiguration())
            + Self.lines("CachingTransport", CachingTransport.Configuration())
            + Self.lines("AsyncMedia", AsyncMedia.Limits())
        let expected = Self.table.split(separator: "\n").map(String.init)
        let found = lines.filter { !$0.hasPrefix("RetryPolicy.backoff") }
        for difference in found.difference(from: expected) { Issue.record("\(difference)") }
        #expect(RetryPolicy().backoff == .exponential(base: .milliseconds(500)))
        #expect(RetryPolicy.web == RetryPolicy())
        #expect(RetryPolicy.once.maxAttempts == 2 && RetryPolicy.never.maxAttempts == 1)
        #expect(RunnerPolicy.onePerCall.maximumUpdatesPerCall == 1)
        #expect(MuxRepository.SavePolicy.afterFetch(debounce: .seconds(1)) != .explicit)
    }
}
