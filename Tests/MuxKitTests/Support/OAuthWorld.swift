import Foundation
import MuxKit
import MuxTesting

/// A fake authorisation server, and the objects of an app with one account.
struct OAuthWorld: Sendable {
    let world: World
    let server: FakeOAuthServer
    let tokens: any TokenStore
    /// The number of sign-ins and refreshes that the app has begun.
    let signIns = Locked(0)
    let refreshes = Locked(0)
    /// The reasons of the sign-ins.
    let reasons = Locked<[OAuthStatus.SignInReason]>([])
    /// Run before the reply to a refresh reaches the app.
    let beforeRefreshReply = Locked<@Sendable () async throws -> Void>({})
    let beforeSignInReply = Locked<@Sendable () async throws -> Void>({})

    init(
        _ configuration: FakeOAuthServer.Configuration = .init(),
        tokens: any TokenStore = UnreliableTokenStore(),
        store: any MuxStore = MemoryStore(),
        spawn: TaskLauncher = TaskLauncher(),
        clock: VirtualClock = VirtualClock()
    ) {
        let world = World(store: store, spawn: spawn, clock: clock)
        self.init(
            world: world,
            server: FakeOAuthServer(
                users: ["alice": "a", "bob": "b"],
                configuration: configuration,
                clock: world.clock
            ),
            tokens: tokens
        )
    }

    init(world: World, server: FakeOAuthServer, tokens: any TokenStore) {
        self.world = world
        self.server = server
        self.tokens = tokens
    }

    /// The next process of the same app, with the same server; by default with a new clock.
    func relaunched(clock: VirtualClock? = nil) -> OAuthWorld {
        let world = clock.map { World(store: self.world.store, clock: $0) } ?? self.world.relaunched()
        return OAuthWorld(world: world, server: self.server, tokens: self.tokens)
    }

    /// The app's runner.
    func runner(
        user: String = "alice",
        policy: RunnerPolicy = .onePerCall,
        signInGivesAccess: Bool = false
    ) -> OAuthDependentRunner<String, String> {
        OAuthDependentRunner(
            store: self.tokens,
            repository: self.world.repository,
            policy: policy,
            refreshAccess: { refresh in
                self.refreshes.withLock { $0 += 1 }
                do {
                    let tokens = try await self.server.refresh(refresh)
                    try await self.beforeRefreshReply.withLock { $0 }()
                    return OAuthRenewal(access: tokens.access, refresh: tokens.refresh)
                } catch FakeOAuthServer.Failure.invalidGrant {
                    throw BadDependency()
                }
            },
            signIn: { reason in
                self.signIns.withLock { $0 += 1 }
                self.reasons.withLock { $0.append(reason) }
                let tokens = try await self.server.signIn(user: user, password: String(user.prefix(1)))
                try await self.beforeSignInReply.withLock { $0 }()
                return OAuthSignIn(access: signInGivesAccess ? tokens.access : nil, refresh: tokens.refresh)
            }
        )
    }

    /// Makes a call that needs a token, and returns the token's user.
    func call(_ runner: OAuthDependentRunner<String, String>) async throws -> String {
        try await runner.run { access in
            guard let user = self.server.authorize(access) else { return .badDependency }
            return .output(user)
        }
    }

    var statistics: FakeOAuthServer.Statistics { self.server.statistics }
}

extension FileLease {
    /// A lease of `fileSystem`.
    init(
        named name: String,
        directory: URL,
        fileSystem: any FileSystem,
        wallTime: @escaping @Sendable () -> Date = { Date() },
        time: TimeSource = TimeSource(ContinuousClock())
    ) {
        self.init(
            OwnedName(.lease, [name]),
            in: StoreFolder(directory),
            fileSystem: fileSystem,
            wallTime: wallTime,
            time: time
        )
    }
}
