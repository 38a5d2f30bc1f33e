import Foundation
import MuxKit
import MuxTesting

/// The state of the page at one moment.
struct Snapshot: Encodable, Sendable {
    /// The app's requests by source of the value.
    struct Asked: Encodable, Sendable {
        var requests, hits, joins, diskHits, fetches, stale, failures, waiting, flights: Int
    }

    /// The server's counts.
    struct Seen: Encodable, Sendable {
        var requests, resources, refusals, signIns, refreshes, reuses, connections: Int
    }

    /// One key of the app's caches.
    struct Key: Encodable, Sendable {
        var id: String
        var name: String
        var hits, joins, fetches, waiting: Int
        var flight: KeyActivity.Flight?
        /// In seconds, as is the time to live.
        var age: Double?
        var timeToLive: Double?
        var isStale: Bool
        var isOnDisk: Bool
    }

    /// The store on disk; `entries` does not count the library's marks of a refresh.
    struct Disk: Encodable, Sendable {
        var entries, bytes: Int
        var epoch: UInt64
    }

    var isOnline: Bool
    var user: String
    var isSignedIn: Bool
    var app: Asked
    var server: Seen
    var keys: [Key]
    var tokens: [LiveStage.Token]
    var disk: Disk
    var film: Film.State
    var worker: Worker.State
    var writer: Writer.State
    var screen: PlaceScreen.State
    var running: [PageAct]
    /// The acts that cannot begin now.
    var blocked: [PageAct]
    var outcomes: [ActJournal.Outcome]

    init(of stage: LiveStage) {
        let (app, oauth) = (stage.app, stage.backend.oauth.statistics)
        let (me, places) = (app.profile.occupancy, app.places.occupancy)
        let statistics = app.statistics
        self.isOnline = stage.isOnline
        self.user = stage.user
        self.isSignedIn = stage.isSignedIn
        self.app = Asked(
            requests: statistics.requests,
            hits: statistics.hits,
            joins: statistics.joins,
            diskHits: statistics.diskHits,
            fetches: statistics.fetches,
            stale: statistics.staleServed,
            failures: statistics.failures,
            waiting: me.waiters + places.waiters,
            flights: me.keys + places.keys
        )
        self.server = Seen(
            requests: stage.backend.server.requestCount,
            resources: oauth.resourceHits,
            refusals: oauth.refusals,
            signIns: oauth.signIns,
            refreshes: oauth.refreshes,
            reuses: oauth.reusesDetected,
            connections: stage.backend.server.openConnectionCount
        )
        let profile = Key(
            name: app.profile.cachedValue.map { "Me, \($0.user.capitalized)" } ?? "Me",
            told: stage.activity.key("Me"),
            isFlying: me.keys > 0,
            entry: app.profile.cachedEntry,
            isOnDisk: stage.store.size(MuxStoreKey(domain: "Me")) != nil
        )
        self.keys =
            [profile]
            + stage.places.map { place in
                Key(
                    name: place.name,
                    id: String(place.id),
                    told: stage.activity.key("Places", String(place.id)),
                    isFlying: places.keys > 0,
                    entry: app.places.cachedEntry(key: place.id),
                    isOnDisk: stage.store.size(MuxStoreKey(domain: "Places", key: String(place.id))) != nil
                )
            }
        self.tokens = stage.tokens.suffix(8)
        let saved = self.keys.count { $0.isOnDisk }
        self.disk = Disk(entries: saved, bytes: stage.store.totals.bytes, epoch: stage.store.epoch)
        self.film = stage.film.state
        self.film.isComplete = stage.hasFilm
        self.worker = stage.worker.state
        self.worker.rounds = self.worker.rounds.suffix(4)
        self.writer = stage.writer.state
        self.screen = stage.screen.state
        self.running = stage.journal.running
        self.blocked = stage.journal.blocked
        self.outcomes = stage.journal.latest
    }
}

extension Snapshot.Key {
    /// A key with its activity and its cache entry.
    ///
    /// `isFlying` comes from the library, because events of several threads may arrive out of order.
    fileprivate init<Value>(
        name: String,
        id: String = "me",
        told: KeyActivity.Key,
        isFlying: Bool,
        entry: MuxEntry<Value>?,
        isOnDisk: Bool
    ) {
        self.id = id
        self.name = name
        self.hits = told.hits
        self.joins = told.joins
        self.fetches = told.fetches
        self.flight = isFlying ? told.flight : nil
        self.waiting = self.flight == nil ? 0 : told.waiting
        self.age = entry?.age.secondsValue
        self.timeToLive = entry?.timeToLive.secondsValue
        self.isStale = entry?.isStale ?? false
        self.isOnDisk = isOnDisk
    }
}
