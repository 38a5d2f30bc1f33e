import Foundation
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct LoopbackBackendTests {
    private struct Place: Codable, Identifiable, Equatable {
        var id: String
        var name: String
    }

    private struct Profile: Decodable {
        var user: String
    }

    private struct Tokens: Decodable {
        enum CodingKeys: String, CodingKey {
            case access = "access_token"
            case refresh = "refresh_token"
            case lifetime = "expires_in"
        }

        var access: String
        var refresh: String
        var lifetime: Int
    }

    private struct Ask<Output: Decodable & Sendable>: HTTPRequest {
        var endpoint: HTTPEndpoint
        var method = HTTPMethod.get
        var body: HTTPBody?

        init(_ base: URL, _ path: HTTPPath, as type: Output.Type = Output.self) throws {
            self.endpoint = try HTTPEndpoint(base).appending(path)
        }

        init(_ base: URL, _ path: HTTPPath, json fields: [String: String], as type: Output.Type = Output.self) throws {
            try self.init(base, path)
            self.method = .post
            self.body = .json(fields)
        }
    }

    private let client = HTTPClient()
    private let places = [Place(id: "1", name: "Oslo"), Place(id: "a/b?c", name: "Nowhere")]

    private func backend() throws -> LoopbackBackend {
        try LoopbackBackend(oauth: FakeOAuthServer(users: ["alice": "a"]), places: self.places)
    }

    @Test func `P-04 the backend signs in and serves the resources of the token's user`() async throws {
        let backend = try self.backend()
        let url = try backend.goOnline()

        let signIn = try Ask(url, "/sign-in", json: ["user": "alice", "password": "a"], as: Tokens.self)
        let tokens = try await self.client.output(of: signIn)
        let profile = try await self.client.output(of: try Ask(url, "/me", as: Profile.self), token: tokens.access)
        let place = try await self.client.output(
            of: try Ask(url, "/places/\("a/b?c")", as: Place.self),
            token: tokens.access
        )

        #expect(profile.user == "alice")
        #expect(place == self.places[1])
        #expect(tokens.lifetime == 300)
        #expect(backend.server.requestCount("GET /me") == 1)
        #expect(backend.server.requestCount("GET /places/a%2Fb%3Fc") == 1)
        #expect(backend.server.connectionCount == 1)
        await #expect(throws: HTTPError.self) {
            try await self.client.output(of: try Ask(url, "/places/2", as: Place.self), token: tokens.access)
        }
        await backend.goOffline()
    }

    @Test func `P-04 the backend refuses a bad token with an error that counts as a bad dependency`() async throws {
        let backend = try self.backend()
        let url = try backend.goOnline()

        for token in [nil, "bad"] {
            let error = await #expect(throws: HTTPError.self) {
                try await self.client.output(of: try Ask(url, "/me", as: Profile.self), token: token)
            }
            #expect(error?.isBadDependency == true)
        }
        #expect(backend.oauth.statistics.refusals == 2)
        await backend.goOffline()
    }

    @Test func `P-04 the backend refreshes tokens as RFC 6749 requires, with JSON and with a form`() async throws {
        let backend = try self.backend()
        let transport = SystemTransport()
        let url = try backend.goOnline()
        let signIn = try Ask(url, "/sign-in", json: ["user": "alice", "password": "a"], as: Tokens.self)
        let first = try await self.client.output(of: signIn)

        let fields = ["grant_type": "refresh_token", "refresh_token": first.refresh]
        let second = try await self.client.output(of: try Ask(url, "/token", json: fields, as: Tokens.self))
        var form = HTTPCall(method: "POST", url: url.appending(path: "token"))
        form.headers["Content-Type"] = "application/x-www-form-urlencoded"
        form.body = .data(Data("grant_type=refresh_token&refresh_token=\(second.refresh)".utf8))
        let granted = try await transport.send(form)
        let refused = try await transport.send(form)

        #expect(granted.status == 200)
        #expect(refused.status == 400)
        #expect(String(decoding: refused.body, as: UTF8.self) == #"{"error":"invalid_grant"}"#)
        #expect(backend.oauth.statistics.reusesDetected == 1)

        backend.oauth.failNextRefreshes(with: .unavailable)
        #expect(try await transport.send(form).status == 503)
        await backend.goOffline()
    }

    @Test func `P-04 the backend goes offline and returns at the same URL`() async throws {
        let backend = try self.backend()
        let url = try backend.goOnline()
        let ask = { try await self.client.output(of: try Ask(url, "/me", as: Profile.self)) }
        #expect((await #expect(throws: HTTPError.self) { try await ask() })?.isBadDependency == true)

        await backend.goOffline()
        #expect((await #expect(throws: HTTPError.self) { try await ask() })?.isBadDependency == false)

        #expect(try backend.goOnline() == url)
        #expect((await #expect(throws: HTTPError.self) { try await ask() })?.isBadDependency == true)
        #expect(throws: LoopbackServer.Failure.alreadyRunning) { try backend.goOnline() }
        await backend.goOffline()
        #expect(backend.server.requestCount("GET /me") == 2)
    }
}
