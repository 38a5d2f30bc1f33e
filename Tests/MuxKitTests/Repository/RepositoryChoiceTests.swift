import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Values belong to the session of their dependency.
@Suite(.standard)
struct RepositoryChoiceTests {
    private func runner(_ repository: MuxRepository) -> OAuthDependentRunner<String, String> {
        OAuthDependentRunner(
            repository: repository,
            refreshAccess: { OAuthRenewal(access: $0) },
            signIn: { OAuthSignIn(access: "alice", refresh: "alice") }
        )
    }

    @Test func `CO-09 a sign-out reaches values that were fetched with the runner's token`() async throws {
        let world = World()
        let runner = self.runner(world.repository)
        let name = Multiplexer<String>(cacheKey: "Name", dependency: runner) { $0 }
        let names = MultiplexerMap<Int, String>(cacheKey: "Names", dependency: runner) { "\($0) \($1)" }
        #expect(try await name.request() == "alice")
        #expect(try await names.request(key: 1) == "1 alice")
        #expect(await world.repository.saveAll().saved == 2)

        await runner.signOut()

        #expect(name.cachedValue == nil)
        #expect(names.cachedValue(key: 1) == nil)
        #expect(await names.loadCachedValue(key: 1) == nil)
    }

    @Test func `CO-09 a sign-out reaches memory-only values that were fetched with the runner's token`() async throws {
        let world = World()
        let runner = self.runner(world.repository)
        let name = Multiplexer<String>(dependency: runner) { $0 }
        let names = MultiplexerMap<Int, String>(dependency: runner) { "\($0) \($1)" }
        #expect(try await name.request() == "alice")
        #expect(try await names.request(key: 1) == "1 alice")
        #expect(await world.repository.saveAll().saved == 0)
        name.register().unregister()

        await runner.signOut()

        #expect(name.cachedValue == nil)
        #expect(names.cachedValue(key: 1) == nil)
    }

    @Test func `CO-09 a repository other than the runner's is an error at the first request and an event`() async throws
    {
        let (world, other) = (World(), World())
        let runner = self.runner(world.repository)
        let name = Multiplexer<String>(cacheKey: "Name", dependency: runner, repository: other.repository) { $0 }
        let names = MultiplexerMap<Int, String>(
            cacheKey: "Names",
            dependency: runner,
            repository: other.repository
        ) { "\($0) \($1)" }

        for _ in 0..<2 {
            await #expect(throws: MuxError.repositoryMismatch) { try await name.request() }
            await #expect(throws: MuxError.repositoryMismatch) { try await names.request(key: 1) }
        }

        #expect(world.events.count(of: .repositoryMismatch) == 2, "once each")
        #expect(other.events.count(of: .repositoryMismatch) == 2)
        #expect(await other.repository.saveAll().saved == 0)
    }

    @Test func `CO-09 the runner's own repository can be passed explicitly`() async throws {
        let world = World()
        let runner = self.runner(world.repository)
        let name = Multiplexer<String>(cacheKey: "Name", dependency: runner, repository: world.repository) { $0 }

        #expect(try await name.request() == "alice")
        #expect(world.events.count(of: .repositoryMismatch) == 0)
    }

    @Test func `CO-09 a runner without a session works with any repository`() async throws {
        let world = World()
        let runner = DependentRunner("token")
        let name = Multiplexer<String>(cacheKey: "Name", dependency: runner, repository: world.repository) { $0 }
        #expect(try await name.request() == "token")
    }

    /// A value that counts its encodings.
    private struct Counted: Codable, Sendable {
        static let encodings = Locked(0)

        init() {}
        init(from decoder: any Decoder) throws {}
        func encode(to encoder: any Encoder) throws {
            Self.encodings.withLock { $0 += 1 }
            var container = encoder.singleValueContainer()
            try container.encode(1)
        }
    }

    @Test func `CO-46 without a store nothing is saved and nothing is encoded`() async throws {
        let repository = MuxRepository(store: .none)
        let value = Multiplexer<Counted>(cacheKey: "Value", repository: repository) { Counted() }
        let map = MultiplexerMap<Int, Counted>(
            cacheKey: "Map",
            policy: .init(maximumCount: 100),
            repository: repository
        ) { _ in Counted() }
        _ = try await value.request()
        for key in 0..<1_000 { _ = try await map.request(key: key) }

        let report = await repository.saveAll()

        #expect(report.isComplete)
        #expect(report.saved == 0)
        #expect(map.statistics.evictions == 900)
        #expect(Counted.encodings.withLock { $0 } == 0)
        #expect(await repository.clearAll().isComplete)
        #expect(value.cachedValue == nil, "a sign-out reaches it nevertheless")
    }

    @Test func `CS-03 cache keys that differ only in their Unicode form are different`() async throws {
        let world = World()
        let composed = Multiplexer<Int>(cacheKey: "caf\u{e9}", repository: world.repository) { 1 }
        let decomposed = Multiplexer<Int>(cacheKey: "cafe\u{301}", repository: world.repository) { 2 }
        _ = (try await composed.request(), try await decomposed.request())

        await composed.clear()

        #expect(composed.cachedValue == nil)
        #expect(decomposed.cachedValue == 2)
        #expect(world.events.count(of: .cacheKeyShared) == 0)
    }

    /// A participant that counts the reads of its domain.
    private final class Named: SessionParticipant {
        static let questions = Locked(0)
        private let name: String

        init(_ name: String) { self.name = name }

        var domain: String? {
            Self.questions.withLock { $0 += 1 }
            return self.name
        }

        func sessionEnded(sendsEvent: Bool) -> @Sendable () -> Void { {} }
    }

    @Test func `CO-17 the creation of many multiplexers with an observer reads each domain a few times`() {
        let world = World()
        let count = 4_000
        let all = (0..<count).map { Named("Name \($0)") }
        for named in all { world.repository.attach(named) }
        #expect(world.events.count(of: .cacheKeyShared) == 0)

        let again = Named("Name 7")
        world.repository.attach(again)

        #expect(world.events.count(of: .cacheKeyShared) == 1)
        #expect(Named.questions.withLock { $0 } < 4 * count)
        withExtendedLifetime((all, again)) {}
    }
}
