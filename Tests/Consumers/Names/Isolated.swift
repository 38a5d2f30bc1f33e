import MuxKit

// With the main actor as default isolation, the compiler rejects some lines without a required
// `nonisolated`; each comment is a part of the error. The article "Pitfalls" names the lines without an
// error.

struct City: Codable, Sendable {}
struct CityID: Hashable, Sendable {}
nonisolated struct Place: Codable, Sendable {}

enum Server {
    static func city() async throws -> City { City() }
    nonisolated static func place() async throws -> Place { Place() }
    static func place(of city: CityID) async throws -> Place { Place() }
}

func isolated(_ name: String) {
    _ = Multiplexer<City>(cacheKey: .init(name), onFetch: Server.city)  // conformance of 'City' to 'Encodable'
    _ = MultiplexerMap<CityID, Place>(onFetch: Server.place(of:))  // conformance of 'CityID' to 'Hashable'
    _ = Multiplexer<City>(cacheKey: "a", onFetch: Server.city)
    _ = Multiplexer<City>(cacheKey: name, onFetch: Server.city)  // conformance of 'City' to 'Encodable'
    _ = Multiplexer<Place>(cacheKey: "b", onFetch: Server.place)
}
