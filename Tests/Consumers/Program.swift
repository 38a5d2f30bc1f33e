import MuxKit

struct Profile: Codable, Sendable { var name: String }

enum Backend {
    static func fetchMyProfile() async throws -> Profile { Profile(name: "Alice") }
    static func fetchUserProfile(id: String) async throws -> Profile { Profile(name: id) }
}

let profile = Multiplexer(cacheKey: "profile", onFetch: Backend.fetchMyProfile)
let users = MultiplexerMap(onFetch: Backend.fetchUserProfile)

print(try await profile.request().name, try await users.request(key: "Bob").name)
