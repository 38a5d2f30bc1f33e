import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

// Getting started.

struct City: Codable, Identifiable, Sendable {
    var id: Int
    var name: String
}

struct GetCity: HTTPRequest {
    var service: HTTPEndpoint
    var id: Int
    var endpoint: HTTPEndpoint { self.service.appending("/places/\(self.id)") }
    var method: HTTPMethod { .get }
    typealias Output = City
}

struct Weather {
    static func main() async throws {
        // The server signs Alice in, issues tokens, and has one city. Your server takes its place.
        let backend = try LoopbackBackend(
            oauth: FakeOAuthServer(users: ["alice": "secret"]),
            places: [City(id: 1, name: "Vienna")]
        )
        let service = try backend.goOnline()

        // The session: one sign-in and one token for all requests, kept between launches.
        let app = OAuthClient(id: "weather")
        let door = OAuthTokenEndpoint(url: service.appending(path: "sign-in"), client: app)
        let session = OAuthDependentRunner(
            endpoint: OAuthTokenEndpoint(url: service.appending(path: "token"), client: app),
            store: .protectedFile(named: "weather"),
            signIn: {
                try await door.tokens(grantType: "password", parameters: ["user": "alice", "password": "secret"])
            }
        )

        // The cities: fetched with the token, once for all callers, kept in memory and on disk.
        let place = try HTTPEndpoint(service)
        let client = HTTPClient(authenticator: session)
        let cities = client.multiplexerMap(cacheKey: "Cities") { id in GetCity(service: place, id: id) }.register()

        async let one = cities.request(key: 1)
        async let another = cities.request(key: 1)
        print(try await one.name, try await another.name)
        print("sign-ins:", backend.oauth.statistics.signIns)
        print("fetches:", backend.server.requestCount("GET /places/1"))

        await MuxRepository.shared.saveAll()
        await backend.goOffline()
    }
}

func whenTheTokenEnds(_ backend: LoopbackBackend, _ cities: MultiplexerMap<Int, City>) async throws {
    backend.oauth.expireAllAccessTokens()
    print(try await cities.refresh(key: 1).request(key: 1).name)
    print("renewals:", backend.oauth.statistics.refreshes)
    await MuxRepository.shared.clearAll()
}

#if compiler(>=6.3) && (os(macOS) || os(Linux))
@Suite(.standard(endsAtRest: false))
struct FirstStepsTests {
    @Test(.ownThreads) func `P-03 the program of the first steps prints the output in the article`() async throws {
        let home = FileManager.default.temporaryDirectory.appending(component: "MuxKit-home-\(UUID().uuidString)").path
        defer { try? FileManager.default.removeItem(atPath: home) }
        for count in [1, 0] {
            let result = await #expect(processExitsWith: .success, observing: [\.standardOutputContent]) {
                [home = home as String] in
                for name in ["HOME", "CFFIXED_USER_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"] { setenv(name, home, 1) }
                try await Weather.main()
            }
            let output = String(decoding: result?.standardOutputContent ?? [], as: UTF8.self)
            #expect(output.contains("Vienna Vienna\nsign-ins: \(count)\nfetches: \(count)\n"))
        }
    }
}
#endif

func gettingStartedValues() async throws {
    struct Forecast: Codable, Sendable { var degrees: Double }

    let forecast = Multiplexer<Forecast>(cacheKey: "Forecast") { try await Backend.forecast() }.register()

    let now = try await forecast.request()  // one fetch, however many callers
    let later = try await forecast.request()  // from memory, for the next 30 minutes

    await MuxRepository.shared.saveAll()  // when the app goes to the background
    await MuxRepository.shared.clearAll()  // removes all values and tokens, and ends running fetches
    _ = (now, later)

    enum Backend {
        static func forecast() async throws -> Forecast { Forecast(degrees: 20) }
    }
}

func gettingStartedKeys() async throws {
    let cities = MultiplexerMap<String, Forecast>(cacheKey: "Cities") { try await Backend.forecast(of: $0) }.register()

    let vienna = try await cities.request(key: "Vienna")
    let both = try await cities.request(keys: ["Vienna", "Graz"])
    _ = (vienna, both)
}

func gettingStartedTokens() {
    let session = OAuthDependentRunner<String, String>(
        store: .protectedFile(named: "session"),
        refreshAccess: { refresh in try await Backend.refresh(refresh) },
        signIn: { try await Backend.signIn() }
    )
    let profile = Multiplexer<Profile>(cacheKey: "Profile", dependency: session) { token in
        try await Backend.profile(token: token)
    }
    _ = profile
}
