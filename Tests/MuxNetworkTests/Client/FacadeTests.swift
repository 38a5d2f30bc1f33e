import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// A client method that an app adds.
extension HTTPClient {
    fileprivate func fetchUserInfo(at base: HTTPEndpoint) async throws -> FacadeTests.User {
        try await self.output(of: FacadeTests.GetUserInfo(endpoint: base.appending("/me")))
    }
}

@Suite(.standard)
struct FacadeTests {
    fileprivate struct User: Decodable, Sendable {
        var user: String
    }

    fileprivate struct GetUserInfo: HTTPRequest {
        var endpoint: HTTPEndpoint
        var method: HTTPMethod { .get }
        typealias Output = User
    }

    private struct Nowhere: Encodable, Identifiable, Sendable {
        var id: Int
    }

    @Test func `K12 an app calls a real server through its own client method`() async throws {
        let oauth = FakeOAuthServer(users: ["alice": "p"])
        let backend = try LoopbackBackend(oauth: oauth, places: [Nowhere(id: 1)])
        let base = try HTTPEndpoint(try backend.goOnline())
        let runner = DependentRunner<String> { _ in
            .updatedDependency(try await oauth.signIn(user: "alice", password: "p").access)
        }

        let user = try await HTTPClient(authenticator: runner).fetchUserInfo(at: base)
        await backend.goOffline()

        #expect(user.user == "alice")
        #expect(oauth.statistics.signIns == 1)
    }
}
