import Foundation
import MuxKit
import MuxNetwork
import MuxTesting
import Testing

// A sign-out, seen from an app: no kind of cache serves a user's values to the next user.

/// The user whose values the backend returns.
actor SignedInUser {
    private(set) var name = "alice"

    func becomes(_ name: String) { self.name = name }
}

struct GetWho: HTTPRequest {
    typealias Output = String
    var endpoint: HTTPEndpoint { .init(scheme: .https, host: "example.com", path: "/who") }
    var method: HTTPMethod { .get }
}

/// The multiplexers of an app, without a `cacheKey`, a dependency or `register()`.
struct Screens: Sendable {
    let one: Multiplexer<String>
    let fetched: Multiplexer<String>
    let map: MultiplexerMap<String, String>
    let batches: MultiplexerMap<String, String>
    let resource: Multiplexer<String>
    let resources: MultiplexerMap<String, String>
    let pictures: DecodedMedia<String>

    static let names = ["one", "fetched", "map", "batches", "resource", "resources", "pictures"]
    static let picture = "https://example.com/picture"

    init(_ repository: MuxRepository, _ account: SignedInUser, _ folder: URL) {
        let transport = ScriptedTransport { call, _ in
            let body = Data("\"\(await account.name)\"".utf8)
            return HTTPReply(status: 200, headers: ["Cache-Control": "max-age=600"], body: body, url: call.url)
        }
        let client = HTTPClient(transport: transport)
        self.one = Multiplexer(repository: repository) { await account.name }
        self.fetched = Multiplexer(repository: repository) { _ in Fetched(await account.name) }
        self.map = MultiplexerMap(repository: repository) { (_: String) in await account.name }
        self.batches = MultiplexerMap(repository: repository) { (keys: [String]) in
            let name = await account.name
            return Dictionary(uniqueKeysWithValues: keys.map { ($0, name) })
        }
        self.resource = client.multiplexer(repository: repository, GetWho())
        self.resources = client.multiplexerMap(repository: repository) { (_: String) in GetWho() }
        let media = AsyncMedia(directory: folder, transport: transport, repository: repository)
        self.pictures = DecodedMedia(media: media) { file in
            (try JSONDecoder().decode(String.self, from: Data(contentsOf: file)), cost: 1)
        }
    }

    /// Requests each value; `nil` after an error.
    func requests() async -> [String?] {
        guard let picture = URL(string: Self.picture) else { return [] }
        return [
            try? await self.one.request(), try? await self.fetched.request(), try? await self.map.request(key: "k"),
            try? await self.batches.request(key: "k"), try? await self.resource.request(),
            try? await self.resources.request(key: "k"), try? await self.pictures.request(url: picture),
        ]
    }

    /// The values in memory.
    var cached: [String?] {
        guard let picture = URL(string: Self.picture) else { return [] }
        return [
            self.one.cachedValue, self.fetched.cachedValue, self.map.cachedValue(key: "k"),
            self.batches.cachedValue(key: "k"), self.resource.cachedValue, self.resources.cachedValue(key: "k"),
            self.pictures.cachedValue(url: picture),
        ]
    }
}

@Suite(.standard(endsAtRest: false))
struct SignOutTests {
    private let folder = FileManager.default.temporaryDirectory.appending(component: "mux-\(UUID().uuidString)")

    private func screens(_ repository: MuxRepository, _ account: SignedInUser, _ name: String) -> Screens {
        Screens(repository, account, self.folder.appending(component: name))
    }

    @Test func `AC-01 no multiplexer created before, during or after a sign-out serves an earlier value`()
        async throws
    {
        defer { try? FileManager.default.removeItem(at: self.folder) }
        let (repository, account) = (MuxRepository(store: MemoryStore()), SignedInUser())
        let before = self.screens(repository, account, "before")
        let values = await before.requests()
        #expect(values == Array(repeating: "alice", count: Screens.names.count))

        async let report = repository.signOut()
        let during = self.screens(repository, account, "during")
        _ = await during.requests()
        #expect(await report.isComplete)
        await account.becomes("bob")
        let after = self.screens(repository, account, "after")

        let nothing = Array(repeating: String?.none, count: Screens.names.count)
        #expect(before.cached == nothing, "\(Screens.names)")
        let all = await [before.requests(), after.requests()]
        for values in all { #expect(values == Array(repeating: "bob", count: Screens.names.count)) }
        // The requests during the sign-out may have ended after the sign-out. After another sign-out no
        // earlier value is found.
        await repository.clearAll()
        #expect(during.cached == nothing, "\(Screens.names)")
        #expect(await during.requests() == Array(repeating: "bob", count: Screens.names.count))
    }

    @Test func `AC-01 a fetch that was running at the sign-out is not served afterwards`() async throws {
        defer { try? FileManager.default.removeItem(at: self.folder) }
        let (repository, gate) = (MuxRepository(store: MemoryStore()), Gate<String>())
        let name = Multiplexer<String>(policy: .init(whenAbandoned: .finish), repository: repository) {
            try await gate.pass(ignoringCancellation: true)
        }
        let caller = Task { try await name.request() }
        await gate.waitForCall(1)

        await repository.clearAll()
        await #expect(throws: MuxError.sessionEnded) { try await caller.value }
        let next = Task { try await name.request() }
        await gate.waitForCall(2)
        gate.open(1, returning: "alice")
        gate.open(2, returning: "bob")

        #expect(try await next.value == "bob")
        #expect(name.cachedValue == "bob")
    }
}
