import MuxKit

// Lines that the compiler rejects; each comment is a part of the error.

struct Unsaved: Sendable {}
struct Saved: Codable, Sendable {}
struct Odd: Hashable, Sendable {}

func unsaved() async throws -> Unsaved { Unsaved() }

func refused() {
    _ = Multiplexer<Unsaved>(cacheKey: "a") { Unsaved() }  // 'Unsaved' conform to 'Encodable'
    _ = Multiplexer<Unsaved>(cacheKey: "b") { Unsaved() }  // 'Unsaved' conform to 'Decodable'
    _ = Multiplexer(cacheKey: "c", onFetch: unsaved)  // 'Unsaved' conform to 'Encodable'
    _ = MultiplexerMap<Int, Unsaved>(cacheKey: "d") { _ in Unsaved() }  // 'Unsaved' conform to 'Encodable'
    _ = MultiplexerMap<Odd, Saved>(cacheKey: "e") { _ in Saved() }  // 'Odd' conform to 'MuxKey'
    _ = Multiplexer<Unsaved> { Unsaved() }
    _ = MultiplexerMap<Odd, Saved> { _ in Saved() }
}
