public import Foundation

/// Keeps the entries that several machines share, and says which of them fetches.
///
/// An engine such as Valkey behind these members makes one cache of what would be many: one fetch for each name, and one
/// invalidation for all. A repository uses it in place of a disk:
///
/// ```swift
/// let repository = MuxRepository(sharedStore: store)
/// let places = MultiplexerMap<String, Place>(cacheKey: "Places", repository: repository) { id in try await api.place(id) }
/// ```
///
/// `MemorySharedStore` of `MuxTesting` is one in memory, with failures, and `MuxSharedStoreConformance` checks the rules below on a
/// store of your own. See <doc:SeveralMachines>.
///
/// **Time** is that of the store's own clock, and given as durations: an age, or what is left of a claim. The clocks of machines may
/// differ by any amount.
///
/// **Claims.** At most one claim of a name stands at a time. It ends with a put or ``giveUp(_:)``, with an invalidation that concerns
/// the name, or by itself when its time is over; nothing can be put with it afterwards. So what a machine writes that was stopped
/// in the meantime is refused, without comparing clocks. A store may grant a claim to another machine when the holder's connection has ended.
///
/// **Failures.** Every member may throw, and what it should have done may have happened all the same. A claim whose answer was lost
/// ends by itself. A put that threw may be stored: it is as good as any. An invalidation that threw has to be repeated until
/// it does not: what others read meanwhile may be old. A caller limits how long it waits.
///
/// After a connectivity failure (``ConnectivityError``), such as a lost connection or a refused password, a repository does without the
/// store for a ``MuxShared/Policy/pause``. Any other error, such as the refusal of a large value, concerns the entry or scope of the call
/// alone. Conform errors to ``MuxShared/Failure`` to give events a reason.
///
/// **Concurrent calls.** Members may be called at any time from any task, and each takes effect at one point in time between its
/// call and its return.
public protocol MuxSharedStore: Sendable {
    /// Loads entries, or checks the connection.
    ///
    /// - Parameter names: The names; an empty array to check the connection.
    /// - Returns: The entries in the order of `names`; `nil` for a missing, invalidated or unreadable entry.
    /// - Throws: A failure of the store.
    func load(_ names: [MuxShared.Name]) async throws -> [MuxShared.Entry?]

    /// The entry if it is good enough, or else the right to fetch it: in one trip.
    ///
    /// - Parameters:
    ///   - name: The entry's name.
    ///   - maximumAge: How old the entry may be at most, at most its own time to live; `nil` for that. Zero for none at all.
    ///   - digest: The digest of the payload that the caller has; an entry with that payload comes without it.
    ///   - duration: For how long the claim stands at most.
    /// - Returns: What the store has, and who fetches. An entry past its time to live may be gone.
    /// - Throws: The failure. A claim may have been granted all the same, and ends by itself.
    func claim(
        _ name: MuxShared.Name,
        maximumAge: Duration?,
        digest: String?,
        for duration: Duration
    ) async throws -> MuxShared.Claim

    /// Stores what was fetched with a claim, and ends the claim.
    ///
    /// - Parameters:
    ///   - entry: What was fetched; ``MuxShared/Entry/age`` is how long ago. Without a payload it says that the entry which the store
    ///     has with that digest is still the one, as a server does with the status 304.
    ///   - ticket: The claim.
    /// - Returns: Whether it is stored. If not, the claim did not stand any more, and the value may be older than an invalidation, or
    ///   the store has no entry with that digest; nothing but the claim has changed.
    /// - Throws: The failure; the entry may be stored all the same.
    func put(_ entry: MuxShared.Entry, with ticket: MuxShared.Ticket) async throws -> Bool

    /// Ends a claim without an entry, so that another caller can fetch; one that does not stand any more is left alone.
    ///
    /// - Throws: The failure; the claim ends by itself.
    func giveUp(_ ticket: MuxShared.Ticket) async throws

    /// Removes entries, and voids the claims that stand for them: nothing whose claim was granted before this was called is there
    /// afterwards.
    ///
    /// - Parameter scopes: What to remove.
    /// - Complexity: O(1) for each scope, however many entries it has.
    /// - Throws: The failure; has to be repeated, as some may not be removed.
    func invalidate(_ scopes: [MuxShared.Scope]) async throws

    /// What changes for this machine, from now on; the stream ends with the store.
    ///
    /// What others do is told to all that are connected, in the order in which it took effect. What a machine puts or gives up may be
    /// told to it, too; what it invalidates is not. One that was not connected is told ``MuxShared/Change/unknown`` or
    /// ``MuxShared/Change/emptied`` before anything else, and a store may tell the first at any time.
    func changes() -> AsyncStream<MuxShared.Change>
}

/// The types of a ``MuxSharedStore``.
public enum MuxShared: Sendable {
    /// An error of a ``MuxSharedStore`` with a reason for events and metrics.
    public protocol Failure: ConnectivityError {
        /// The reason in a word or two, such as `WRONGPASS`; from a small set of texts, without secrets and keys.
        var reason: String { get }
    }

    /// The name of an entry, and what it belongs to.
    ///
    /// Names with equal ``key`` have to have equal ``tags``: an entry that was put with others is a miss.
    public struct Name: Sendable, Hashable {
        /// The domain and the key.
        public var key: MuxStoreKey

        /// What it can be invalidated with, beside its key and its domain, such as a city for its places, or a viewer.
        public var tags: [String]

        /// Makes a name.
        public init(_ key: MuxStoreKey, tags: [String] = []) {
            self.key = key
            self.tags = tags
        }

        /// The scopes with more than this entry that it belongs to.
        public var scopes: [MuxShared.Scope] {
            [.everything, .domain(self.key.domain)] + self.tags.map { .tag($0) }
        }
    }

    /// What can be invalidated in one step.
    @nonexhaustive public enum Scope: Sendable, Hashable {
        /// One entry.
        case entry(MuxStoreKey)
        /// All that have this tag.
        case tag(String)
        /// All of a domain.
        case domain(String)
        /// All.
        case everything

        /// Compares UTF-8 bytes: texts that differ only in Unicode normalization are two.
        public static func == (a: MuxShared.Scope, b: MuxShared.Scope) -> Bool {
            switch (a, b) {
            case (.entry(let a), .entry(let b)): a == b
            case (.tag(let a), .tag(let b)), (.domain(let a), .domain(let b)): a.utf8.elementsEqual(b.utf8)
            case (.everything, .everything): true
            case (.entry, _), (.tag, _), (.domain, _), (.everything, _): false
            }
        }
    }

    /// A value with its facts.
    public struct Entry: Sendable, Hashable {
        /// The encoded value; `nil` if it is the one that the receiver has, which has the ``digest``.
        public var payload: Data?

        /// A digest of the payload, by which equal ones are recognised.
        public var digest: String

        /// How long ago it was fetched, by the store's clock.
        public var age: Duration

        /// How long it is fresh.
        public var timeToLive: Duration

        /// The version of the value's own format.
        public var schemaVersion: Int

        /// What the server calls this version of the value, such as an `ETag`.
        public var validator: String?

        /// How long after that it answers at once while it is renewed; `nil` for the policy's limit.
        public var staleWhileRevalidate: Duration?

        /// How long after its time to live it may answer for a failed fetch; `nil` for the policy's limit.
        public var staleIfError: Duration?

        /// Makes an entry of a value that was fetched now.
        public init(
            payload: Data?,
            digest: String,
            timeToLive: Duration,
            age: Duration = .zero,
            schemaVersion: Int = 1,
            validator: String? = nil,
            staleWhileRevalidate: Duration? = nil,
            staleIfError: Duration? = nil
        ) {
            self.payload = payload
            self.digest = digest
            self.age = age
            self.timeToLive = timeToLive
            self.schemaVersion = schemaVersion
            self.validator = validator
            self.staleWhileRevalidate = staleWhileRevalidate
            self.staleIfError = staleIfError
        }

        /// Whether it is younger than `maximumAge` and than its time to live.
        public func isFresh(_ maximumAge: Duration?) -> Bool {
            self.age < min(maximumAge ?? self.timeToLive, self.timeToLive)
        }
    }

    /// A standing claim: the right to put one entry.
    public struct Ticket: Sendable, Hashable {
        /// The entry's name.
        public var name: MuxShared.Name

        /// What no other claim has.
        public var nonce: String

        /// Makes a ticket.
        public init(_ name: MuxShared.Name, nonce: String) {
            self.name = name
            self.nonce = nonce
        }
    }

    /// The answer to a claim.
    public enum Claim: Sendable, Hashable {
        /// The entry is good enough.
        case entry(MuxShared.Entry)
        /// The caller fetches, and puts what it gets or gives up. An entry that is not good enough may serve meanwhile.
        case granted(MuxShared.Ticket, MuxShared.Entry?)
        /// Another machine fetches, for so long at most: ask again when a change of the name is told, or when the time is over.
        case taken(for: Duration, MuxShared.Entry?)
    }

    /// A change that this machine has to know.
    public enum Change: Sendable, Hashable {
        /// An entry was put.
        case stored(MuxStoreKey)
        /// A claim ended without an entry: a machine that waits may ask again.
        case released(MuxStoreKey)
        /// What belongs to this is over, wherever it is kept.
        case invalidated(MuxShared.Scope)
        /// Changes may have been missed: nothing that is kept is to be believed before it was verified.
        case unknown
        /// The store has lost its entries, and changes may have been missed: what is kept may be put again.
        case emptied
    }

    /// How much a repository expects of its shared store.
    public struct Policy: Sendable, Hashable {
        /// How long a request waits for the store, all its calls together; 250 milliseconds.
        ///
        /// After a connectivity failure or the end of the budget, the store is not called for a ``pause``; memory alone keeps values fetched meanwhile.
        public var budget: Duration

        /// How long a request waits for another machine's fetch before it fetches by itself; 5 seconds, and at most half of
        /// ``MuxPolicy/fetchTimeout``.
        ///
        /// Afterwards, a machine with its own value in memory does not wait for the same claim again.
        public var patience: Duration

        /// How long the store is not asked after a failure; 1 second, shortened at random by up to a half, doubled with each failure that
        /// follows, and ended when the store is back.
        public var pause: Duration

        /// The longest pause; 30 seconds.
        public var maximumPause: Duration

        /// Makes a policy.
        public init(
            budget: Duration = .milliseconds(250),
            patience: Duration = .seconds(5),
            pause: Duration = .seconds(1),
            maximumPause: Duration = .seconds(30)
        ) {
            self.budget = budget
            self.patience = patience
            self.pause = pause
            self.maximumPause = maximumPause
        }
    }
}
