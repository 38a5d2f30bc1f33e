import MuxKit
import MuxTesting

/// The observed activity of each key.
final class KeyActivity: MuxObserver {
    /// The phase of a flight.
    enum Flight: String, Codable, Sendable {
        case disk
        case network
    }

    /// The activity of one key.
    struct Key: Sendable {
        var hits = 0
        var joins = 0
        var fetches = 0
        var stale = 0
        /// Callers that wait for the flight; kept after a load from disk, which may be followed by a fetch.
        var waiting = 0
        var flight: Flight?

        mutating func note(_ kind: MuxEvent.Kind) {
            switch kind {
            case .hit: self.hits += 1
            case .joined:
                self.joins += 1
                self.waiting += 1
            case .missed:
                self.waiting = self.flight == nil ? 1 : self.waiting + 1
                self.flight = self.flight ?? .disk
            case .loaded: self.flight = nil
            case .fetchStarted:
                self.fetches += 1
                self.flight = .network
            case .fetched, .fetchFailed, .sessionEnded:
                self.flight = nil
                self.waiting = 0
            case .servedStale: self.stale += 1
            default: break
            }
        }
    }

    private let changes: Tally
    private let keys = Locked<[String: Key]>([:])

    /// An observer that increments `changes` for every event.
    init(changes: Tally) { self.changes = changes }

    func observe(_ event: MuxEvent) {
        if let cacheKey = event.cacheKey {
            self.keys.withLock { keys in
                if event.kind == .sessionEnded {
                    for name in keys.keys where name.hasPrefix(cacheKey + "/") { keys[name]?.note(event.kind) }
                } else {
                    keys[cacheKey + "/" + (event.key ?? ""), default: Key()].note(event.kind)
                }
            }
        }
        self.changes.add()
    }

    /// The activity of a key.
    func key(_ cacheKey: String, _ key: String = "") -> Key {
        self.keys.withLock { $0[cacheKey + "/" + key] ?? Key() }
    }
}
