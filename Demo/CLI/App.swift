import Foundation
import MuxKit
import MuxNetwork

/// An app that uses the library as the README shows, independent of the demo.
struct App: Sendable {
    struct Profile: Codable, Sendable {
        var user: String
    }

    private let api: API
    let repository: MuxRepository
    let oauth: OAuthDependentRunner<String, String>
    let profile: Multiplexer<Profile>
    let places: MultiplexerMap<Int, Place>
    /// The same places, fetched in batches.
    let batchedPlaces: MultiplexerMap<Int, Place>

    /// Launches the app; `user` returns name and password for a sign-in.
    init(backend: URL, folder: URL, user: @escaping @Sendable () -> (name: String, password: String)) throws {
        let repository = MuxRepository(directory: folder.appending(component: "caches"))
        let policy = MuxPolicy(errorBackoff: .zero)
        try self.init(backend: backend, folder: folder, repository: repository, policy: policy, user: user)
    }

    /// Launches the app with this repository and policy.
    init(
        backend: URL,
        folder: URL,
        repository: MuxRepository,
        policy: MuxPolicy,
        user: @escaping @Sendable () -> (name: String, password: String)
    ) throws {
        let api = try API(backend)
        let oauth = OAuthDependentRunner<String, String>(
            store: .protectedFile(named: "session", directory: folder.appending(component: "tokens")),
            repository: repository,
            refreshAccess: { refresh in try await api.refresh(refresh) },
            signIn: { try await api.signIn(user()) }
        )
        self.api = api
        self.repository = repository
        self.oauth = oauth
        self.profile = Multiplexer(cacheKey: "Me", dependency: oauth, policy: policy, repository: repository) { token in
            try await api.fetchUserInfo(token)
        }
        self.places = MultiplexerMap(cacheKey: "Places", dependency: oauth, policy: policy, repository: repository) {
            id,
            token in try await api.fetchPlace(id, token)
        }
        // The stage's 50 places fill a batch, so the batch starts before the window ends, even on a slow
        // machine.
        let batching = MuxPolicy.Batching(window: .milliseconds(500), maximumSize: 50)
        self.batchedPlaces = MultiplexerMap(policy: policy, batching: batching, repository: repository) { ids in
            let places = try await oauth.run { .output(try await api.fetchPlaces(ids, $0)) }
            return Dictionary(places.map { ($0.id, $0) }) { $1 }
        }
    }

    /// Sends a new name of a place to the server.
    func rename(_ id: Int, to name: String) async throws {
        try await self.oauth.run { .output(try await self.api.renamePlace(id, name, $0)) }
    }

    var statistics: MuxRepository.Statistics { self.profile.statistics + self.places.statistics }
}

/// A place of the backend; from GeoNames.
struct Place: Codable, Sendable, Identifiable {
    var id: Int
    var name: String
    var country: String
    var latitude: Double
    var longitude: Double
    var population: Int
    var timezone: String
    var aliases: [String]

    /// The thousand most populous places, shipped with the demo.
    static func all() throws -> [Place] {
        guard let file = Bundle.module.url(forResource: "places", withExtension: "json", subdirectory: "Resources")
        else { throw CocoaError(.fileNoSuchFile) }
        return try JSONDecoder().decode([Place].self, from: Data(contentsOf: file))
    }
}
