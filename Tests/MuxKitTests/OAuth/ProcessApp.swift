import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting

/// An app in a separate process, with tokens and repository in a folder and a server at a port.
struct ProcessApp: Sendable {
    let folder: URL
    let client: LoopbackClient
    /// Run before a refresh is sent, and after its reply has arrived.
    var beforeSend: @Sendable () async throws -> Void = {}
    var afterReply: @Sendable () async throws -> Void = {}
    let signIns = Locked(0)
    let events = EventTally()

    init(_ path: String, port: Int) {
        self.folder = URL(filePath: path, directoryHint: .isDirectory)
        self.client = LoopbackClient(port: port)
    }

    private struct Tokens: Decodable {
        var access: String
        var refresh: String

        private enum CodingKeys: String, CodingKey {
            case access = "access_token"
            case refresh = "refresh_token"
        }
    }

    private struct Problem: Error {}

    var store: ProtectedFileTokenStore { .protectedFile(named: "session", directory: self.folder) }

    func runner(
        store: (any TokenStore)? = nil,
        policy: RunnerPolicy = .onePerCall,
        clock: any Clock<Duration> = ContinuousClock()
    ) -> OAuthDependentRunner<String, String> {
        OAuthDependentRunner(
            store: store ?? self.store,
            repository: MuxRepository(
                directory: self.folder.appending(component: "caches"),
                observer: self.events,
                clock: clock
            ),
            policy: policy,
            refreshAccess: { refresh in
                try await self.beforeSend()
                let fields = ["grant_type": "refresh_token", "refresh_token": refresh]
                let reply = try await self.client.send("POST", "/token", fields: fields)
                try await self.afterReply()
                guard reply.status != 400 else { throw BadDependency() }
                guard reply.status == 200 else { throw Problem() }
                let tokens = try JSONDecoder().decode(Tokens.self, from: reply.body)
                return OAuthRenewal(access: tokens.access, refresh: tokens.refresh)
            },
            signIn: {
                self.signIns.withLock { $0 += 1 }
                let fields = ["user": "alice", "password": "a"]
                let reply = try await self.client.send("POST", "/sign-in", fields: fields)
                let tokens = try JSONDecoder().decode(Tokens.self, from: reply.body)
                return OAuthSignIn(access: tokens.access, refresh: tokens.refresh)
            }
        )
    }

    /// Sends a request with a token.
    ///
    /// - Returns: Whether the response has status 200.
    func me(_ runner: OAuthDependentRunner<String, String>) async throws -> Bool {
        try await runner.run { access in
            let reply = try await self.client.send("GET", "/me", bearer: access)
            return reply.status == 401 ? .badDependency : .output(reply.status == 200)
        }
    }
}

/// A server in the test's process, shared by the processes of an app.
struct ProcessServer: Sendable {
    private struct Place: Encodable, Identifiable, Sendable { var id = 1 }

    let oauth: FakeOAuthServer
    let backend: LoopbackBackend
    let port: Int

    init(
        _ configuration: FakeOAuthServer.Configuration = .init(),
        beforeToken: @escaping @Sendable () async -> Void = {}
    ) throws {
        self.oauth = FakeOAuthServer(users: ["alice": "a"], configuration: configuration)
        self.backend = try LoopbackBackend(oauth: self.oauth, places: [Place]()) { request in
            if request.path == "/token" { await beforeToken() }
            return nil
        }
        self.port = try self.backend.goOnline().port ?? 0
    }

    var statistics: FakeOAuthServer.Statistics { self.oauth.statistics }
}
