import Foundation
import InMemoryTracing
import Logging
import Metrics
import MetricsTestKit
import MuxKit
import MuxServices
import MuxTesting
import ServiceContextModule
import ServiceLifecycle
import ServiceLifecycleTestKit
import Synchronization
import Testing
import Tracing

/// Logs, metrics, traces and the end of a service.
@Suite(.timeLimit(.minutes(2)))
struct ServicesTests {
    private struct Failed: Error {}

    // MARK: - Logs

    /// Collects the lines of a logger.
    private final class Lines: Sendable {
        private let lines = Mutex<[String]>([])

        var all: [String] { self.lines.withLock { $0 } }

        func logger(_ level: Logger.Level) -> Logger {
            var logger = Logger(label: "test") { _ in Handler(lines: self) }
            logger.logLevel = level
            return logger
        }

        private struct Handler: LogHandler {
            let lines: Lines
            var metadata: Logger.Metadata = [:]
            var logLevel = Logger.Level.trace

            subscript(metadataKey key: String) -> Logger.Metadata.Value? {
                get { self.metadata[key] }
                set { self.metadata[key] = newValue }
            }

            func log(event: LogEvent) {
                let facts = (event.metadata ?? [:]).sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }
                self.lines.lines.withLock {
                    $0.append(([event.level.rawValue, "\(event.message)"] + facts).joined(separator: " "))
                }
            }
        }
    }

    @Test func `FL-13 a log contains events and reasons, and no key`() async throws {
        let lines = Lines()
        let repository = MuxRepository(store: .none, observer: LogObserver(lines.logger(.debug)))
        let users = MultiplexerMap<String, String>(policy: MuxPolicy(name: "Users"), repository: repository) { key in
            if key == "mallory" { throw Failed() }
            return key
        }
        users.register()
        _ = try await users.request(key: "alice")
        _ = try await users.request(key: "alice")
        await #expect(throws: Failed.self) { try await users.request(key: "mallory") }

        let all = lines.all.map {
            $0.split(separator: " ").filter { !$0.hasPrefix("milliseconds=") }.joined(separator: " ")
        }
        #expect(all.contains("debug fetched cache=Users"), "\(all)")
        #expect(all.contains("warning fetchFailed cache=Users reason=Failed"), "\(all)")
        #expect(!all.contains { $0.contains("alice") || $0.contains("mallory") || $0.contains("hit") }, "\(all)")
        users.unregister()
    }

    @Test func `FL-17 some of many failures are logged, with the number of omitted lines`() {
        let lines = Lines()
        let time = Mutex(Duration.seconds(100))
        let observer = LogObserver(lines.logger(.info), failuresPerSecond: 3) { time.withLock { $0 } }
        for _ in 0..<1_000 {
            observer.observe(MuxEvent(.fetchFailed, name: "Users", reason: .timeOut))
            observer.observe(MuxEvent(.fetched, name: "Users"))
        }
        #expect(lines.all.count == 3)
        time.withLock { $0 += .seconds(1) }
        observer.observe(MuxEvent(.fetchFailed, name: "Users", reason: .timeOut))
        #expect(lines.all.last == "warning fetchFailed cache=Users left-out=997 reason=time-out")
    }

    // MARK: - Metrics

    @Test func `FL-13 FL-17 hits are counted without events, and keys are not dimensions`() async throws {
        let metrics = TestMetrics()
        let observer = MetricsObserver(factory: metrics)
        #expect(!observer.observesHits)
        let repository = MuxRepository(store: .none, observer: observer)
        let recorded = RepositoryMetrics(of: repository, factory: metrics)
        let users = MultiplexerMap<Int, Int>(policy: MuxPolicy(name: "Users"), repository: repository) { key in
            if key < 0 { throw Failed() }
            return key
        }
        users.register()
        for key in 0..<100 { _ = try await users.request(key: key) }
        for _ in 0..<50 { _ = try await users.request(key: 7) }
        await #expect(throws: Failed.self) { try await users.request(key: -1) }
        await recorded.record()
        await recorded.record()

        #expect(metrics.counterTotal(label: "mux.hits") == 50)
        #expect(metrics.counterTotal(label: "mux.misses") == 101)
        #expect(
            metrics.counterTotal(label: "mux.events", dimensions: [("kind", "fetched"), ("cache", "Users")]) == 100
        )
        let failed = [("kind", "fetchFailed"), ("cache", "Users"), ("reason", "Failed")]
        #expect(metrics.counterTotal(label: "mux.events", dimensions: failed) == 1)
        let timer = try metrics.expectTimer("mux.duration", [("kind", "fetched"), ("cache", "Users")])
        #expect(timer.values.count == 100)
        #expect(try metrics.expectMeter("mux.entries").values.last == 100)
        // One counter for each kind of event, independent of the number of keys and events.
        #expect(metrics.counters(label: "mux.events").count < 8)
        users.unregister()
    }

    @Test func `FL-17 handles are made once, and their number is bounded`() {
        let metrics = TestMetrics()
        let observer = MetricsObserver(factory: metrics)
        for name in 0..<6_000 { observer.observe(MuxEvent(.fetched, name: "\(name)", duration: .seconds(1))) }
        for _ in 0..<10 { observer.observe(MuxEvent(.fetched, name: "7", duration: .seconds(1))) }
        #expect(metrics.counters(label: "mux.events").count == 5_001)
        #expect(metrics.counterTotal(label: "mux.events", dimensions: [("kind", "fetched"), ("cache", "7")]) == 11)
        #expect(
            metrics.counterTotal(label: "mux.events", dimensions: [("kind", "fetched"), ("cache", "other")]) == 1_000
        )
    }

    // MARK: - Traces

    @Test func `FL-13 a fetch has a span under its request, and a joining request links to the span`() async throws {
        let tracer = InMemoryTracer()
        let gate = Gate<String>()
        let repository = MuxRepository(store: .none, observer: TracingObserver(tracer: tracer))
        let users = MultiplexerMap<String, String>(policy: MuxPolicy(name: "Users"), repository: repository) { _ in
            try await gate.pass()
        }
        let (leader, joiner) = (tracer.startSpan("leader"), tracer.startSpan("joiner"))
        async let first = ServiceContext.$current.withValue(leader.context) { try await users.request(key: "alice") }
        await gate.waitForCall()
        let second = Task {
            try await ServiceContext.$current.withValue(joiner.context) { try await users.request(key: "alice") }
        }
        while tracer.activeSpans.count < 4 { await Task.yield() }
        gate.open(returning: "Alice")
        #expect(try await first == "Alice")
        #expect(try await second.value == "Alice")
        while tracer.finishedSpans.count < 2 { await Task.yield() }

        let spans = tracer.finishedSpans
        let fetch = try #require(spans.first { $0.operationName == "fetch Users" })
        let wait = try #require(spans.first { $0.operationName == "wait for Users" })
        #expect(fetch.parentSpanID == leader.spanID && wait.parentSpanID == joiner.spanID)
        #expect(wait.links.map(\.context.inMemorySpanContext?.spanID) == [fetch.spanID])
        #expect(fetch.status == nil)
        leader.end()
        joiner.end()
    }

    @Test func `FL-13 the span of a failed fetch contains the reason`() async throws {
        let tracer = InMemoryTracer()
        let repository = MuxRepository(store: .none, observer: TracingObserver(tracer: tracer))
        let users = MultiplexerMap<String, String>(policy: MuxPolicy(name: "Users"), repository: repository) { _ in
            throw Failed()
        }
        await #expect(throws: Failed.self) { try await users.request(key: "alice") }
        while tracer.finishedSpans.isEmpty { await Task.yield() }
        let span = try #require(tracer.finishedSpans.first)
        #expect(span.status?.code == .error && span.status?.message == "Failed")
        #expect(tracer.activeSpans.isEmpty)
    }

    // MARK: - The end

    @Test func `FL-16 a service waits for fetches at its end, and saves`() async throws {
        let folder = FileManager.default.temporaryDirectory.appending(component: "mux-service-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: folder) }
        let repository = MuxRepository(directory: folder)
        let gate = Gate<String>()
        let places = MultiplexerMap<String, String>(cacheKey: "Places", repository: repository) { key in
            key == "slow" ? try await gate.pass() : key
        }
        for key in 0..<100 { _ = try await places.request(key: "\(key)") }
        let lines = Lines()
        let metrics = TestMetrics()
        let service = MuxService(
            repository,
            metrics: [RepositoryMetrics(of: repository, factory: metrics)],
            drainingWithin: .seconds(30),
            logger: lines.logger(.info)
        )
        try await testGracefulShutdown { trigger in
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { try await service.run() }
                let slow = Task { try await places.request(key: "slow") }
                await gate.waitForCall()
                trigger.triggerGracefulShutdown()
                gate.open(returning: "slow")
                _ = try await slow.value
                try await group.waitForAll()
            }
        }
        #expect(lines.all == ["info saved failed=0 left-over=0 saved=101"])
        #expect(metrics.counterTotal(label: "mux.fetches") == 101)
        let health = await RepositoryHealth(of: repository)
        #expect(health.isHealthy && health.entries == 101 && health.unsaved == 0 && health.waiters == 0)

        // The next process fetches nothing.
        let next = MultiplexerMap<String, String>(
            cacheKey: "Places",
            repository: MuxRepository(directory: folder)
        ) { _ in throw Failed() }
        #expect(try await next.request(key: "slow") == "slow")
    }

    @Test func `FL-16 a service ends and saves despite an endless fetch or a cancelled task`()
        async throws
    {
        let repository = MuxRepository(store: MemoryStore())
        let gate = Gate<String>()
        let places = MultiplexerMap<String, String>(cacheKey: "Places", repository: repository) { key in
            key == "slow" ? try await gate.pass() : key
        }
        _ = try await places.request(key: "fast")
        let slow = Task { try await places.request(key: "slow") }
        await gate.waitForCall()
        let lines = Lines()
        let running = Task {
            try await MuxService(repository, drainingWithin: .milliseconds(20), logger: lines.logger(.info)).run()
        }
        running.cancel()
        try await running.value
        #expect(lines.all == ["info saved failed=0 left-over=0 saved=1"])
        gate.open(returning: "slow")
        _ = try await slow.value
    }

    @Test func `FL-16 a repository that cannot write is unhealthy, and requests succeed`() async throws {
        let file = FileManager.default.temporaryDirectory.appending(component: "mux-service-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: file) }
        try Data().write(to: file)
        // A file is at the path of the folder.
        let repository = MuxRepository(directory: file.appending(component: "cache"))
        let places = MultiplexerMap<String, String>(cacheKey: "Places", repository: repository) { $0 }
        #expect(try await places.request(key: "1") == "1")
        let lines = Lines()
        let running = Task { try await MuxService(repository, logger: lines.logger(.info)).run() }
        running.cancel()
        try await running.value
        #expect(lines.all.first?.hasPrefix("warning saved failed=") ?? false, "\(lines.all)")
        let health = await RepositoryHealth(of: repository)
        #expect(!health.isHealthy && health.entries == 1)
    }

    @Test func `FL-13 a group passes hits only to observers of hits`() async throws {
        final class Counting: MuxObserver {
            let observesHits: Bool
            let counts = Mutex<[MuxEvent.Kind: Int]>([:])
            init(hits: Bool) { self.observesHits = hits }
            func observe(_ event: MuxEvent) { self.counts.withLock { $0[event.kind, default: 0] += 1 } }
        }
        let (all, some) = (Counting(hits: true), Counting(hits: false))
        #expect(!ObserverGroup(some).observesHits)
        let repository = MuxRepository(store: .none, observer: ObserverGroup(all, some))
        let users = MultiplexerMap<Int, Int>(repository: repository) { $0 }
        for _ in 0..<3 { _ = try await users.request(key: 1) }
        #expect(all.counts.withLock { $0[.hit] } == 2 && some.counts.withLock { $0[.hit] } == nil)
        #expect(all.counts.withLock { $0[.fetched] } == 1 && some.counts.withLock { $0[.fetched] } == 1)
    }
}
