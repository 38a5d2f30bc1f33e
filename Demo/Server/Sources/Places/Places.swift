import Foundation
import Hummingbird
import MuxKit
import Synchronization

/// A place of GeoNames.
struct Place: Codable, Sendable, ResponseEncodable {
    let id: Int
    let name: String
    let country: String
    let latitude: Double
    let longitude: Double
    let population: Int
    let timezone: String
}

/// An error for an unknown place.
struct NoSuchPlace: Error {}

/// The slow server behind the service: searches all places for each call, and counts the calls.
final class Origin: Sendable {
    private let places: [Place]
    private let byID: [Int: Place]
    private let delay: Duration
    private let count = Atomic(0)

    var callCount: Int { self.count.load(ordering: .relaxed) }

    /// - Throws: The reason of a failed read of the places.
    init(delay: Duration) throws {
        let file = Bundle.module.url(forResource: "Resources/places", withExtension: "json")
        guard let file else { throw CocoaError(.fileReadNoSuchFile) }
        self.places = try JSONDecoder().decode([Place].self, from: Data(contentsOf: file))
        self.byID = Dictionary(self.places.map { ($0.id, $0) }) { first, _ in first }
        self.delay = delay
    }

    private func answer<Value>(_ find: () throws -> Value) async throws -> Value {
        self.count.add(1, ordering: .relaxed)
        try await Task.sleep(for: self.delay)
        return try find()
    }

    func place(_ id: Int) async throws -> Place {
        try await self.answer {
            guard let place = self.byID[id] else { throw NoSuchPlace() }
            return place
        }
    }

    /// The most populous places whose names begin with `text`.
    func search(_ text: String) async throws -> [Place] {
        try await self.answer {
            let found = self.places.filter { $0.name.lowercased().hasPrefix(text) }
            return Array(found.sorted { $0.population > $1.population }.prefix(10))
        }
    }

    func nearest(_ spot: Spot) async throws -> Place {
        try await self.answer {
            guard let place = self.places.min(by: { spot.distance(to: $0) < spot.distance(to: $1) }) else {
                throw NoSuchPlace()
            }
            return place
        }
    }
}

/// A location with a precision of a tenth of a degree, so that neighbours share an entry.
struct Spot: MuxKey {
    /// The latitude in tenths of a degree.
    let latitude: Int
    let longitude: Int

    /// - Returns: `nil` for coordinates out of range.
    init?(latitude: Double, longitude: Double) {
        guard abs(latitude) <= 90, abs(longitude) <= 180 else { return nil }
        self.latitude = Int((latitude * 10).rounded())
        self.longitude = Int((longitude * 10).rounded())
    }

    var keyText: String { "\(self.latitude),\(self.longitude)" }

    /// The haversine, which grows with the distance.
    func distance(to place: Place) -> Double {
        let radian = Double.pi / 180
        let (a, b) = (Double(self.latitude) / 10 * radian, place.latitude * radian)
        let (x, y) = ((b - a) / 2, (place.longitude - Double(self.longitude) / 10) * radian / 2)
        return sin(x) * sin(x) + cos(a) * cos(b) * sin(y) * sin(y)
    }
}

/// The cached values of the service.
struct Caches: Sendable {
    let repository: MuxRepository
    let places: MultiplexerMap<Int, Place>
    let searches: MultiplexerMap<String, [Place]>
    let nearest: MultiplexerMap<Spot, Place>

    init(_ repository: MuxRepository, _ origin: Origin, policy: MuxPolicy) {
        self.repository = repository
        self.places = MultiplexerMap(
            cacheKey: .init("Places") { ["place \($0)"] },
            policy: policy,
            repository: repository
        ) {
            try await origin.place($0)
        }
        self.searches = MultiplexerMap(cacheKey: "Searches", policy: policy, repository: repository) {
            try await origin.search($0)
        }
        self.nearest = MultiplexerMap(cacheKey: "Nearest", policy: policy, repository: repository) {
            try await origin.nearest($0)
        }
    }
}
