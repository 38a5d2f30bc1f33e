import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct HTTPClientTests {
    private struct User: Codable, Sendable, Equatable {
        var user: String
    }

    private struct GetUserInfo: HTTPRequest {
        var endpoint: HTTPEndpoint
        var method: HTTPMethod { .get }
        typealias Output = User
    }

    @Test func `K01 a custom transport carries every request`() async throws {
        let transport = ScriptedTransport { call, number in .json(#"{"user":"\#(call.method) \#(number)"}"#) }
        let client = HTTPClient(transport: transport)

        let first = try await client.output(of: Ask(User.self, errors: Never.self))
        let second = try await client.output(of: Ask(User.self, errors: Never.self) { $0.method = .put })

        #expect([first.user, second.user] == ["GET 1", "PUT 2"])
        #expect(transport.calls.count == 2)
    }

    /// A value whose coding fails on the main thread.
    private struct Witness: Codable, Sendable {
        struct OnMainThread: Error {}

        init() {}
        init(from decoder: any Decoder) throws { if Thread.isMainThread { throw OnMainThread() } }
        func encode(to encoder: any Encoder) throws {
            if Thread.isMainThread { throw OnMainThread() }
            try [String: String]().encode(to: encoder)
        }
    }

    @MainActor @Test func `K01 the main actor's requests are encoded and decoded on another thread`() async throws {
        let base = URL(string: "https://example.com")
        let client = HTTPClient(baseURL: base, transport: ScriptedTransport { _, _ in .json("{}") })
        let output: Witness = try await client.post("/witness", body: Witness())
        let response = try await client.response(
            to: Ask {
                $0.method = .post
                $0.body = .json(output)
            }
        )
        #expect(response.status == .ok)
    }

    @Test func `K02 the defaults are JSON, 20 and 40 seconds, 10 connections and no headers`() {
        let configuration = HTTPClient.Configuration.default

        #expect(configuration.contentType == .json)
        #expect(configuration.transport.timeout == .seconds(20))
        #expect(configuration.transport.deadline == .seconds(40))
        #expect(configuration.transport.connectionsPerHost == 10)
        #expect(configuration.headers == [:])
        #expect(abs(configuration.wallTime().timeIntervalSinceNow) < 60)
    }

    @Test func `K02 the configured content type is sent in Accept, and for a body without a type`() async throws {
        var configuration = HTTPClient.Configuration()
        configuration.contentType = .xml
        let client = HTTPClient(configuration: configuration)

        let call = try client.call(
            for: Ask {
                $0.method = .post
                $0.body = .data(Data())
            }
        )

        #expect(call.headers[.accept] == "application/xml")
        #expect(call.headers[.contentType] == "application/xml")
    }

    @Test func `K02 the session has the connection limit of the options`() {
        var options = HTTPTransportConfiguration()
        #expect(URLSessionTransport(options).connectionsPerHost == 10)
        options.connectionsPerHost = 3
        #expect(URLSessionTransport(options).connectionsPerHost == 3)
    }

    @Test func `K03 shared headers are sent and can be overridden`() throws {
        var configuration = HTTPClient.Configuration()
        configuration.headers = ["X-App": "1", "Accept-Language": "de"]
        let client = HTTPClient(configuration: configuration)

        let call = try client.call(for: Ask { $0.headers = ["accept-language": "uk"] })

        #expect(call.headers["x-app"] == "1")
        #expect(call.headers[.acceptLanguage] == "uk")
        #expect(call.headers.fields.count == 3)
    }

    @Test func `K04 a request returns the value and the response`() async throws {
        let client = HTTPClient(transport: ScriptedTransport([], thereafter: .json(#"{"user":"A"}"#, status: 203)))

        let (user, response) = try await client.execute(Ask(User.self, errors: Never.self))

        #expect(user == User(user: "A"))
        #expect(response.status == .nonAuthoritativeInformation && response.body.count == 12)
    }

    @Test func `K05 a token becomes headers`() async throws {
        struct Key: HTTPToken {
            var headers: HTTPHeaders { ["X-Api-Key": "k"] }
        }
        let transport = ScriptedTransport([], thereafter: HTTPReply(status: 200))
        let client = HTTPClient(transport: transport)

        _ = try await client.execute(Ask(), token: "t")
        _ = try await client.execute(Ask(), token: HTTPCredentials.basic(user: "Aladdin", password: "open sesame"))
        _ = try await client.execute(Ask(), token: Key())
        _ = try await client.output(of: Ask(), token: "u")
        _ = try await client.response(to: Ask(), token: "v")
        _ = try await client.execute(Ask())

        let sent = transport.calls.map(\.headers)
        #expect(
            sent.map { $0[.authorization] } == [
                "Bearer t", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", nil, "Bearer u", "Bearer v", nil,
            ]
        )
        #expect(sent[2]["x-api-key"] == "k")
    }

    @Test func `K11 a client works without an authenticator`() async throws {
        let transport = ScriptedTransport([], thereafter: HTTPReply(status: 401))

        let error = await #expect(throws: HTTPError.self) { try await HTTPClient(transport: transport).execute(Ask()) }

        #expect(error?.isBadDependency == true && transport.calls.count == 1)
        #expect(transport.calls.first?.headers["Authorization"] == nil)
    }

    @Test func `K13 a cancelled call cancels the exchange of the transport`() async {
        let gate = Gate<HTTPReply>()
        let transport = ScriptedTransport { _, _ in try await gate.pass() }
        let client = HTTPClient(transport: transport)

        let call = Task { _ = try await client.execute(Ask()) }
        await gate.waitForCall(1)
        call.cancel()

        await #expect(throws: CancellationError.self) { try await call.value }
        #expect(transport.cancelledCount == 1 && gate.heldCount == 0)
    }

    @Test func `K13 a cancelled call ends the connection`() async throws {
        let gate = Gate<Void>()
        let server = LoopbackServer { _ in
            try? await gate.pass()
            return .text("late")
        }
        let base = try HTTPEndpoint(try server.start())
        let client = HTTPClient()

        let call = Task { _ = try await client.execute(Ask { $0.endpoint = base }) }
        await gate.waitForCall(1)
        call.cancel()

        await #expect(throws: CancellationError.self) { try await call.value }
        await server.stop()
    }

    @Test func `K15 no more than ten exchanges with a host run at the same time`() async throws {
        let gate = Gate<Void>()
        let counts = Locked((running: 0, maximum: 0))
        let server = LoopbackServer { _ in
            counts.withLock { counts in
                counts.running += 1
                counts.maximum = max(counts.maximum, counts.running)
            }
            try? await gate.pass()
            counts.withLock { $0.running -= 1 }
            return .text("x")
        }
        let base = try HTTPEndpoint(try server.start())
        let client = HTTPClient()

        try await withThrowingTaskGroup(of: Void.self) { group in
            for _ in 0..<40 { group.addTask { _ = try await client.execute(Ask { $0.endpoint = base }) } }
            await gate.waitForCall(10)
            gate.openForGood(returning: ())
            try await group.waitForAll()
        }
        await server.stop()

        #expect(counts.withLock { $0.maximum } == 10)
        #expect(server.requestCount == 40)
    }
}
