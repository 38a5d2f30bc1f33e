import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// A response for one viewer is never returned to another viewer.
@Suite(.standard)
struct ViewerTests {
    private let world = CachingWorld()

    /// Responds with the token of the request as the version.
    private static func mirror(_ gate: Gate<Void>? = nil) -> ClosureTransport {
        ClosureTransport { call in
            try await gate?.pass()
            let token = call.headers["Authorization"]?.split(separator: " ").last ?? ""
            let body = Data("{\"version\":\(token)}".utf8)
            return HTTPReply(status: 200, headers: ["Cache-Control": "max-age=60", "ETag": "\"same\""], body: body)
        }
    }

    private func numbers(_ client: HTTPClient, in world: CachingWorld) -> Multiplexer<Number> {
        client.multiplexer(cacheKey: "Number", repository: world.repository, GetNumber())
    }

    @Test func `N05 two viewers at the same time have separate entries`() async throws {
        let transport = Self.mirror()
        let alice = self.world.client(transport, viewer: "alice", authenticator: DependentRunner("1"))
        let bob = self.world.client(transport, viewer: "bob", authenticator: DependentRunner("2"))
        let numbers = [alice, bob].map { self.numbers($0, in: self.world) }

        for (index, number) in numbers.enumerated() {
            #expect(try await number.request().version == index + 1)
            await number.save()
        }

        let next = self.world.relaunched()
        for (viewer, expected) in [("alice", 1), ("bob", 2)] {
            let client = next.client(transport, viewer: viewer, authenticator: DependentRunner("9"))
            #expect(try await self.numbers(client, in: next).request().version == expected)
        }
        let nobody = next.client(transport, authenticator: DependentRunner("7"))
        #expect(try await self.numbers(nobody, in: next).request().version == 7)
    }

    @Test func `N05 after a sign-out no value of the session is returned from memory, disk or a late fetch`()
        async throws
    {
        let gate = Gate<Void>()
        let runner = OAuthDependentRunner<String, String>(
            repository: self.world.repository,
            refreshAccess: { _ in throw CancellationError() },
            signIn: { OAuthSignIn(access: "2", refresh: "r") }
        )
        try await runner.set(access: "1", refresh: "r")
        let client = self.world.client(Self.mirror(gate), authenticator: runner)
        let map = client.multiplexerMap(cacheKey: "Numbers", repository: self.world.repository) { GetNumber(id: $0) }
        gate.open()
        #expect(try await map.request(key: "a").version == 1)
        await map.save()
        async let late = map.request(key: "b")
        await gate.waitForCall(2)

        await runner.signOut()
        gate.openForGood(returning: ())

        let answer = try? await late
        #expect(answer == nil)
        #expect(map.cachedValue(key: "a") == nil && map.cachedValue(key: "b") == nil)
        #expect(try await map.request(key: "a").version == 2)
        #expect(try await map.request(key: "b").version == 2)
    }

    @Test func `N05 an entity tag of another session is not sent`() async throws {
        let transport = Self.mirror()
        let client = self.world.client(transport, authenticator: DependentRunner("1"))
        let number = self.numbers(client, in: self.world)
        _ = try await number.request()
        await number.save()

        await self.world.repository.clearAll()
        _ = try await number.request()

        #expect(transport.calls.map { $0.headers["If-None-Match"] } == [nil, nil])
    }
}
