import Foundation
import MuxKit

/// The time of the last removal of all stored responses, for each origin: W3C Clear Site Data.
///
/// Responses in memory are removed at once. A response that is only on disk can be found only by the URL.
/// Therefore the time of the removal is recorded, and an older response is removed at the next use of the
/// URL.
final class ClearedOrigins: Sendable {
    private struct State: Sendable {
        /// The times by origin.
        var times: [String: Date] = [:]
        /// The origins for which the disk has no time.
        var unaffected: Set<String> = []
    }

    /// The maximum size of ``State/unaffected``; a dropped origin is read from disk again.
    private static let mostUnaffected = 1_000

    private let state = Locked(State())
    /// The times on disk; `nil` if the cache stores no responses on disk.
    private let saved: MultiplexerMap<String, Date>?

    init(_ cacheKey: String?, _ repository: MuxRepository) {
        self.saved = cacheKey.map { cacheKey in
            MultiplexerMap(
                policy: MuxPolicy(timeToLive: .longest),
                repository: repository,
                persistence: MultiplexerMap<String, Date>.CacheKey(cacheKey + "\u{1f}cleared").persistence,
                fetch: .value { _ in throw CancellationError() }
            )
        }
    }

    /// The origin of a URL in the form of ``HTTPResourceName/text``.
    static func origin(of resource: String) -> String {
        resource.split(separator: "/", maxSplits: 3, omittingEmptySubsequences: false).prefix(3).joined(separator: "/")
    }

    /// Whether the field `Clear-Site-Data` requests the removal of stored responses.
    static func isRequested(by headers: HTTPHeaders) -> Bool {
        headers.values(of: "Clear-Site-Data").flatMap { HTTPDirective.elements(of: $0) }
            .contains { $0 == #""cache""# || $0 == #""*""# }
    }

    /// Reads the time of an origin from disk, unless known; called before a read of the origin's responses.
    nonisolated(nonsending) func load(_ origin: String) async {
        let isKnown = self.state.withLock { $0.times[origin] != nil || $0.unaffected.contains(origin) }
        guard let saved, !isKnown else { return }
        let time = await saved.loadCachedValue(key: origin)
        self.state.withLock { state in
            if let time {
                state.times[origin] = max(state.times[origin] ?? time, time)
            } else {
                if state.unaffected.count >= Self.mostUnaffected { state.unaffected = [] }
                state.unaffected.insert(origin)
            }
        }
    }

    /// The recorded time of the last removal for an origin; `nil` without a record.
    func time(of origin: String) -> Date? {
        self.state.withLock { $0.times[origin] }
    }

    /// Records a removal.
    func recordRemoval(of origin: String, at now: Date) { self.state.withLock { $0.times[origin] = now } }

    /// Writes the time of an origin to disk.
    nonisolated(nonsending) func save(_ origin: String, at now: Date) async {
        guard let saved else { return }
        saved.store(now, key: origin)
        await saved.save(key: origin)
    }

    /// Removes all times, because the end of a session also removes all stored responses.
    func sessionEnded() { self.state.withLock { $0 = State() } }
}

extension ResponseCache {
    /// Removes all stored responses of an origin, unless the session of `own` has ended.
    ///
    /// Responses that are only on disk are removed at the next use of their URL. Running exchanges of the
    /// origin cannot store their responses.
    ///
    /// - Parameters:
    ///   - resource: A URL of the origin.
    ///   - own: The flight of the response with `Clear-Site-Data`; this response may be stored.
    nonisolated(nonsending) func clearOrigin(of resource: String, by own: FlightName) async {
        guard self.session == own.session else { return }
        let (origin, now) = (ClearedOrigins.origin(of: resource), self.now.date)
        self.cleared.recordRemoval(of: origin, at: now)
        let prefix = origin + "/"
        for _ in 0..<2 {
            // Twice: see ``remove(_:)``.
            self.runningExchanges.withLock { _ in self.fence(except: own) { $0.hasPrefix(prefix) } }
            for key in self.responses.keysInMemory() where key.hasPrefix(prefix) {
                let gone = self.responses.cachedValue(key: key)?.responses ?? []
                await self.responses.clear(key: key)
                await self.removeFiles(of: gone)
            }
        }
        await self.cleared.save(origin, at: now)
    }
}
