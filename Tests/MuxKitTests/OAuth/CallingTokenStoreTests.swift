import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// A token store whose members call the runner or the repository.
@Suite(.standard)
struct CallingTokenStoreTests {
    enum Member: CaseIterable, Sendable {
        case load
        case save
        case delete
    }

    enum Call: CaseIterable, Sendable {
        case run
        case runForAWhile
        case renew
        case setRefresh
        case setBoth
        case setAccess
        case signOut
        case saveAll

        /// Whether the call does not need the repository, which a sign-out uses exclusively.
        var isOfRunner: Bool { self != .signOut && self != .saveAll }
    }

    /// Runs each closure of `calls` once, inside its member.
    private struct CallingTokenStore: TokenStore {
        let memory = InMemoryTokenStore()
        let calls = Locked<[Member: @Sendable () async -> Void]>([:])

        private func call(_ member: Member) async {
            let call = self.calls.withLock { $0.removeValue(forKey: member) }
            await call?()
        }

        func load() async -> Data? {
            await self.call(.load)
            return await self.memory.load()
        }

        func save(_ data: Data) async {
            await self.call(.save)
            await self.memory.save(data)
        }

        func remove() async {
            await self.call(.delete)
            await self.memory.remove()
        }
    }

    private func make(_ call: Call, _ oauth: OAuthWorld, _ runner: OAuthDependentRunner<String, String>) async {
        switch call {
        case .run: _ = try? await oauth.call(runner)
        case .runForAWhile: _ = try? await runner.run(timeout: .seconds(1)) { .output($0) }
        case .renew: _ = try? await runner.renew()
        case .setRefresh, .setBoth:
            guard let tokens = try? await oauth.server.signIn(user: "bob", password: "b") else { return }
            try? await runner.set(access: call == .setBoth ? tokens.access : nil, refresh: tokens.refresh)
        case .setAccess: runner.set(access: "bad")
        case .signOut: await runner.signOut()
        case .saveAll: await oauth.world.repository.saveAll()
        }
    }

    /// Makes each call from each member, while tokens are made, renewed or set, and at a sign-out.
    @Test(arguments: Member.allCases, Call.allCases)
    func `CO-18 a token store that calls its runner gets a result and blocks no later call`(
        member: Member,
        call: Call
    ) async throws {
        for use in 0..<5 {
            if use == 4, !call.isOfRunner { continue }
            let tokens = CallingTokenStore()
            let oauth = OAuthWorld(tokens: tokens)
            let runner = oauth.runner(policy: .init(maximumUpdatesPerCall: 3))
            if use > 0 { _ = try await oauth.call(runner) }
            let isCalled = Locked(false)
            tokens.calls.withLock { calls in
                calls[member] = {
                    await self.make(call, oauth, runner)
                    isCalled.withLock { $0 = true }
                }
            }
            switch use {
            case 0: _ = try? await oauth.call(runner)
            case 1:
                oauth.server.expireAllAccessTokens()
                _ = try? await oauth.call(runner)
            case 2: _ = try? await runner.renew()
            case 3:
                let tokens = try await oauth.server.signIn(user: "bob", password: "b")
                try? await runner.set(access: tokens.access, refresh: tokens.refresh)
            default: await runner.signOut()
            }

            tokens.calls.withLock { $0 = [:] }
            let user = try await oauth.call(runner)
            #expect(["alice", "bob"].contains(user), "\(use)")
            if member == .save, use < 4 { #expect(isCalled.withLock { $0 }, "\(use)") }
            #expect(oauth.statistics.reusesDetected == 0, "\(use)")
            _ = await runner.signOut()
        }
    }

    @Test func `CO-18 a call inside a save that would have to wait for the store fails with an error`() async throws {
        let tokens = CallingTokenStore()
        let oauth = OAuthWorld(tokens: tokens)
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        let code = Locked<RunnerError.Code?>(nil)
        tokens.calls.withLock { calls in
            calls[.save] = {
                let error = await #expect(throws: RunnerError.self) { try await oauth.call(runner) }
                code.withLock { $0 = error?.code }
            }
        }
        try await runner.set(refresh: try await oauth.server.signIn(user: "bob", password: "b").refresh)

        #expect(code.withLock { $0 } == .wouldDeadlock)
        #expect(try await oauth.call(runner) == "bob")
    }

    /// A sign-out holds the repository and needs the token store.
    ///
    /// The store's call needs the repository. Repeated: the scheduler decides which side waits for the other.
    @Test(arguments: Array(0..<50), [Call.signOut, .saveAll])
    func `CO-18 a token store that calls its repository during a sign-out does not deadlock`(
        _: Int,
        call: Call
    ) async throws {
        let tokens = CallingTokenStore()
        let oauth = OAuthWorld(tokens: tokens)
        let runner = oauth.runner()
        _ = try await oauth.call(runner)
        let gate = Gate<Void>()
        let isBack = Locked(false)
        tokens.calls.withLock { calls in
            calls[.save] = {
                try? await gate.pass()
                await self.make(call, oauth, runner)
                isBack.withLock { $0 = true }
            }
        }
        let next = try await oauth.server.signIn(user: "bob", password: "b").refresh
        let set = Task { try await runner.set(refresh: next) }
        await gate.waitForCall(1)
        let signOut = Task { await oauth.world.repository.clearAll() }
        gate.openForGood(returning: ())

        _ = await signOut.value
        _ = try? await set.value
        #expect(isBack.withLock { $0 })
        #expect(await tokens.memory.load() == nil)
    }
}
