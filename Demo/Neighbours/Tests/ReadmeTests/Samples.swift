import Foundation
import GRDB
import HTTPTypes
import MuxGRDB
import MuxHTTPTypes
import MuxKit
import MuxNetwork

/// The samples of README.md, line by line.
enum Samples {
    struct Profile: Codable, Sendable, Equatable { var name: String }

    struct API: Sendable {
        func profile() async throws -> Profile { Profile(name: "Ada") }
    }

    static func store(at path: String) async throws -> Profile {
        let api = API()

        let database = try DatabasePool(path: path)
        let repository = MuxRepository(store: GRDBStore(database))

        let profile = Multiplexer<Profile>(cacheKey: "Profile", repository: repository) { try await api.profile() }
        let me = try await profile.request()
        await repository.saveAll()
        await repository.signOut()

        return me
    }

    static func transport() async throws -> String? {
        let request = HTTPTypes.HTTPRequest(method: .get, scheme: "https", authority: "api.example", path: "/places")
        let reply = try await SystemTransport().send(HTTPCall(request))
        let response = try HTTPTypes.HTTPResponse(reply)
        let tags = response.headerFields[.eTag]

        return tags
    }
}
