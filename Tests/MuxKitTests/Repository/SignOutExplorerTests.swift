import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Runs an operation at each step of a sign-out.
///
/// Afterwards no value of the session is served or saved.
@Suite(.standard)
struct SignOutExplorerTests {
    /// The operation at a step of a sign-out.
    enum Interjection: CaseIterable, Sendable {
        case makeAndRequest, makeAndStore, makeAndRequestMap, requestWhatIsThere, storeWhatIsThere
        case registerWhatHasAValue, makeRegisteredAndRequest, requestThatEndsLater, save, requestThroughRunner
        case makePlainAndRequest, makePlainAndStore, requestPlain, storePlain, requestPlainThatEndsLater
    }

    /// A user's session and its participants.
    private final class Session: Sendable {
        let hook = StepHook()
        let base = MemoryStore()
        let repository: MuxRepository
        let profile: Multiplexer<String>
        let unregistered: Multiplexer<String>
        let runner: OAuthDependentRunner<String, String>
        let user = Locked("alice")
        let gate = Gate<Void>()
        /// The multiplexers that operations have made during the sign-out.
        let made = Locked<[Multiplexer<String>]>([])
        let maps = Locked<[MultiplexerMap<Int, String>]>([])
        let tasks = Locked<[Task<Void, Never>]>([])

        init() async throws {
            let (user, signIns) = (self.user, Locked(0))
            let repository = MuxRepository(store: SteppedStore(base: self.base, hook: self.hook))
            self.repository = repository
            self.profile = Multiplexer(cacheKey: "Profile", repository: repository) { user.withLock { $0 } }
            self.unregistered = Multiplexer(repository: repository) { user.withLock { $0 } }
            self.runner = OAuthDependentRunner(
                store: SteppedTokenStore(hook: self.hook),
                repository: repository,
                refreshAccess: { OAuthRenewal(access: $0) },
                signIn: {
                    // Alice signs in first. All later sign-ins are bob's.
                    let name = signIns.next() == 1 ? "alice" : "bob"
                    return OAuthSignIn(access: name, refresh: name)
                }
            )
            _ = try await self.profile.request()
            _ = try await self.unregistered.request()
            _ = try await self.runner.run { .output($0) }
            await repository.saveAll()
        }

        private func make(_ name: String?, isGated: Bool = false, isKept: Bool = true) -> Multiplexer<String> {
            let (user, gate) = (self.user, self.gate)
            let fetch: @Sendable () async throws -> String = {
                let value = user.withLock { $0 }
                if isGated { try? await gate.pass(ignoringCancellation: true) }
                return value
            }
            let multiplexer =
                name.map { Multiplexer(cacheKey: .init($0), repository: self.repository, onFetch: fetch) }
                ?? Multiplexer(repository: self.repository, onFetch: fetch)
            if name == nil, isKept { multiplexer.register() }
            self.made.withLock { $0.append(multiplexer) }
            return multiplexer
        }

        private func later(_ work: @escaping @Sendable () async -> Void) {
            let task = Task { await work() }
            self.tasks.withLock { $0.append(task) }
        }

        func happens(_ what: Interjection) async {
            switch what {
            case .makeAndRequest: _ = try? await self.make("Made").request()
            case .makeAndStore: self.make("Made").store(self.user.withLock { $0 })
            case .makeAndRequestMap:
                let user = self.user
                let map = MultiplexerMap<Int, String>(cacheKey: "Map", repository: self.repository) { _ in
                    user.withLock { $0 }
                }
                self.maps.withLock { $0.append(map) }
                _ = try? await map.request(key: 1)
            case .requestWhatIsThere: _ = try? await self.profile.request()
            case .storeWhatIsThere: self.profile.store(self.user.withLock { $0 })
            case .registerWhatHasAValue: self.unregistered.register()
            case .makeRegisteredAndRequest: _ = try? await self.make(nil).request()
            case .requestThatEndsLater:
                let multiplexer = self.make("Later", isGated: true)
                self.later { _ = try? await multiplexer.request() }
                await self.gate.waitForCall(1)
            case .makePlainAndRequest: _ = try? await self.make(nil, isKept: false).request()
            case .makePlainAndStore: self.make(nil, isKept: false).store(self.user.withLock { $0 })
            case .requestPlain: _ = try? await self.unregistered.request()
            case .storePlain: self.unregistered.store(self.user.withLock { $0 })
            case .requestPlainThatEndsLater:
                let multiplexer = self.make(nil, isGated: true, isKept: false)
                self.later { _ = try? await multiplexer.request() }
                await self.gate.waitForCall(1)
            case .save: self.later { [repository] in await repository.saveAll() }
            case .requestThroughRunner:
                let runner = self.runner
                let multiplexer = Multiplexer(cacheKey: "Through", repository: self.repository) {
                    try await runner.run { .output($0) }
                }
                self.made.withLock { $0.append(multiplexer) }
                self.later { _ = try? await multiplexer.request() }
            }
        }

        /// A description of each of alice's values that is still served or saved.
        func traces() async throws -> [String] {
            var traces: [String] = []
            self.gate.openForGood(returning: ())
            for task in self.tasks.withLock({ $0 }) { await task.value }
            await self.repository.saveAll()
            let all = self.made.withLock { $0 } + [self.profile, self.unregistered]
            for (number, multiplexer) in all.enumerated() {
                if multiplexer.cachedValue == "alice" { traces.append("\(number) has it") }
                if await multiplexer.loadCachedValue() == "alice" { traces.append("\(number) reads it") }
                if try await multiplexer.request() == "alice" { traces.append("\(number) serves it") }
            }
            for map in self.maps.withLock({ $0 }) where try await map.request(key: 1) == "alice" {
                traces.append("a map serves it")
            }
            if try await self.runner.run({ .output($0) }) == "alice" { traces.append("the runner has her token") }
            await self.repository.saveAll()
            for name in ["Made", "Later", "Profile", "Through"] {
                let entry = await self.base.load(MuxStoreKey(domain: name))
                if entry?.payload == Data("\"alice\"".utf8) { traces.append("\(name) is saved") }
            }
            return traces
        }
    }

    @Test(arguments: Interjection.allCases)
    func `CO-06 an operation between two steps of a sign-out is signed out, too`(_ what: Interjection) async throws {
        var step = 0
        var steps = 1
        while step < steps {
            step += 1
            let session = try await Session()
            session.hook.arm { [step] number in
                // The operation runs at a single step, and not at its own calls of the store.
                guard number == step else { return }
                await session.happens(what)
            }

            await session.repository.clearAll()
            steps = max(steps, session.hook.count)
            session.hook.disarm()
            session.user.withLock { $0 = "bob" }

            #expect(try await session.traces() == [], "at step \(step) of \(steps)")
            session.unregistered.unregister()
            for multiplexer in session.made.withLock({ $0 }) { multiplexer.unregister() }
        }
        #expect(steps >= 8)
    }

    @Test func `CO-06 a multiplexer that is registered after a sign-out has no value of the old session`() async throws
    {
        let world = World()
        let user = Locked("alice")
        let name = Multiplexer<String>(repository: world.repository) { user.withLock { $0 } }
        #expect(try await name.request() == "alice")
        await world.repository.clearAll()
        user.withLock { $0 = "bob" }

        name.register()

        #expect(name.cachedValue == nil)
        #expect(try await name.request() == "bob")
        #expect(name.register().cachedValue == "bob", "a second registration changes nothing")
        name.unregister()
    }

    @Test func `CO-06 lazy globals that are first used during sign-outs are signed out`() async throws {
        let store = UnreliableStore()
        let repository = MuxRepository(store: store, durability: .relaxed)
        var (made, served, saved) = (0, 0, 0)
        for round in 0..<400 {
            // Simulates other threads that show a screen for the first time.
            let screens = (0..<2).map { thread in
                Task {
                    var globals: [Multiplexer<Int>] = []
                    for number in 0..<2 {
                        let name = "\(round) \(thread) \(number)"
                        let global = Multiplexer<Int>(cacheKey: .init(name), repository: repository) { round }
                        globals.append(global)
                        _ = try? await global.request()
                    }
                    return globals
                }
            }
            // All screens end before the sign-out ends.
            store.beforeRemoval.withLock { $0 = { for screen in screens { _ = await screen.value } } }

            await repository.clearAll()

            for screen in screens {
                let globals = await screen.value
                made += globals.count
                served += globals.count { $0.cachedValue != nil }
            }
            saved += await repository.saveAll().saved
        }
        #expect(made == 1_600)
        #expect(served == 0)
        #expect(saved == 0)
    }
}
