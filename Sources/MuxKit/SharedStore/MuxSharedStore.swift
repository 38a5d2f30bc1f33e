public import Foundation

/// A store of entries that several machines share.
///
/// All machines use one cache, such as a Valkey server behind this protocol. The store also decides which
/// machine fetches an entry: as a rule, one machine fetches for all machines. A repository uses the store in
/// place of a disk:
///
/// ```swift
/// let repository = MuxRepository(sharedStore: store)
/// let places = MultiplexerMap<String, Place>(cacheKey: "Places", repository: repository) { id in try await api.place(id) }
/// ```
///
/// `MemorySharedStore` of `MuxTesting` is an implementation in memory with simulated failures, and
/// `MuxSharedStoreConformance` checks a custom store against the rules below. See <doc:SeveralMachines>.
///
/// **Time.** All times are given as durations: an age, or the remaining duration of a claim. The clocks of
/// machines may differ by any amount.
///
/// **Claims.** A name has at most one valid claim at a time. A claim ends with a put or ``giveUp(_:)``, with
/// an invalidation of a scope that contains the name, or after its duration. The store refuses a put with an
/// ended claim: a machine that was suspended in the meantime cannot write, and no clocks are compared. A
/// store may grant a claim to another machine when the holder's connection has ended.
///
/// **Failures.** Every member except ``changes()`` may throw. A call that throws may have taken effect:
///
/// - If the reply to a claim is lost, the claim ends after its duration.
/// - A put with an error may have stored the entry, which is then as valid as any other entry.
/// - An invalidation with an error has to be repeated until a call succeeds: other machines may read old
///   values until then.
///
/// The caller limits the duration of each call.
///
/// After a connectivity failure (``SilenceableError/isSilenceable(_:)``), or a call beyond the time limit, a
/// repository works without the store for a ``MuxShared/Policy/pause``. Examples of connectivity failures are
/// a lost connection and a refused password. Any other error, such as the refusal of a large value, concerns
/// only the entry or scope of the call. An error that conforms to ``MuxShared/Failure`` gives events a
/// reason; a refusal must then set ``ConnectivityError/isConnectivityFailure`` to `false`.
///
/// **Concurrent calls.** Members may be called at any time from any task. Each call takes effect at one point
/// in time between the call and the return.
public protocol MuxSharedStore: Sendable {
    /// Loads entries, or checks the connection.
    ///
    /// - Parameter names: The names; an empty array to check the connection.
    /// - Returns: The entries in the order of `names`; `nil` for a missing, invalidated or unreadable entry.
    /// - Throws: A failure of the store.
    func load(_ names: [MuxShared.Name]) async throws -> [MuxShared.Entry?]

    /// Returns the entry if fresh enough, and otherwise claims the right to fetch, in one round trip.
    ///
    /// - Parameters:
    ///   - name: The entry's name.
    ///   - maximumAge: An entry is fresh if its age is less than this duration, and less than its time to
    ///     live; `nil` for the time to live alone. With zero, no entry is fresh.
    ///   - digest: The digest of the caller's payload, or `nil`; the store omits an equal payload from the
    ///     returned entry.
    ///   - duration: The maximum duration of the claim.
    /// - Returns: A fresh entry, the granted claim, or the remaining duration of another claim. A store may
    ///   delete an entry after its time to live.
    /// - Throws: The failure. The store may have granted a claim, which ends after its duration.
    func claim(
        _ name: MuxShared.Name,
        maximumAge: Duration?,
        digest: String?,
        for duration: Duration
    ) async throws -> MuxShared.Claim

    /// Stores a fetched entry, and ends the claim.
    ///
    /// - Parameters:
    ///   - entry: The fetched entry; ``MuxShared/Entry/age`` is the time since the fetch. An entry without a
    ///     payload confirms the stored entry with the same digest, as the status 304 of a server does.
    ///   - ticket: The claim.
    /// - Returns: Whether the entry is stored. `false` if the claim had ended, because the value may be older
    ///   than an invalidation. Also `false` for an entry without a payload if the store has no entry, or an
    ///   entry with another digest. The store then ends the claim and changes nothing else.
    /// - Throws: The failure; the entry may be stored.
    func put(_ entry: MuxShared.Entry, with ticket: MuxShared.Ticket) async throws -> Bool

    /// Ends a claim without an entry, so that another caller can fetch; an ended claim is ignored.
    ///
    /// - Throws: The failure; the claim ends after its duration.
    func giveUp(_ ticket: MuxShared.Ticket) async throws

    /// Removes entries, and ends the valid claims of their names.
    ///
    /// After the call, the store contains no entry of the scopes from a claim that was granted before the
    /// call.
    ///
    /// - Parameter scopes: The scopes to remove.
    /// - Complexity: O(1) for each scope, for any number of entries.
    /// - Throws: The failure. The call has to be repeated, because some entries may remain.
    func invalidate(_ scopes: [MuxShared.Scope]) async throws

    /// A stream of the changes after this call, for this machine; ends with the store.
    ///
    /// The store sends the changes of each machine to all other connected machines, in the order of their
    /// effects. A machine may also receive its own puts and ended claims, but not its own invalidations.
    /// After an interruption of its connection, a machine first receives ``MuxShared/Change/unknown`` or
    /// ``MuxShared/Change/emptied``. A store may send ``MuxShared/Change/unknown`` at any time.
    func changes() -> AsyncStream<MuxShared.Change>
}

/// The types of a ``MuxSharedStore``.
public enum MuxShared: Sendable {
    /// An error of a ``MuxSharedStore`` with a reason for events and metrics.
    public protocol Failure: ConnectivityError {
        /// The reason in a word or two, such as `WRONGPASS`; from a small set of texts, without secrets and
        /// keys.
        var reason: String { get }
    }

    /// The name of an entry, with its tags.
    ///
    /// Names with an equal ``key`` must have equal ``tags``: an entry that was put with other tags is a miss.
    public struct Name: Sendable, Hashable {
        /// The domain and the key.
        public var key: MuxStoreKey

        /// Groups for invalidation, in addition to the domain, such as the city of a place, or a user.
        public var tags: [String]

        /// Makes a name.
        public init(_ key: MuxStoreKey, tags: [String] = []) {
            self.key = key
            self.tags = tags
        }

        /// The scopes that contain this entry and others: everything, the domain and the tags.
        public var scopes: [MuxShared.Scope] {
            [.everything, .domain(self.key.domain)] + self.tags.map { .tag($0) }
        }
    }

    /// The entries that one invalidation removes.
    #if hasAttribute(nonexhaustive)
    @nonexhaustive
    #endif
    public enum Scope: Sendable, Hashable {
        /// One entry.
        case entry(MuxStoreKey)
        /// All entries with this tag.
        case tag(String)
        /// All entries of a domain.
        case domain(String)
        /// All entries.
        case everything

        /// Compares UTF-8 bytes: texts that differ only in Unicode normalization are unequal.
        public static func == (a: MuxShared.Scope, b: MuxShared.Scope) -> Bool {
            switch (a, b) {
            case (.entry(let a), .entry(let b)): a == b
            case (.tag(let a), .tag(let b)), (.domain(let a), .domain(let b)): a.utf8.elementsEqual(b.utf8)
            case (.everything, .everything): true
            case (.entry, _), (.tag, _), (.domain, _), (.everything, _): false
            }
        }
    }

    /// A value with its metadata.
    public struct Entry: Sendable, Hashable {
        /// The encoded value; `nil` if the receiver already has the payload with this ``digest``.
        public var payload: Data?

        /// A digest of the payload, which identifies equal payloads.
        public var digest: String

        /// The time since the fetch.
        public var age: Duration

        /// The duration from the fetch in which the value is fresh.
        public var timeToLive: Duration

        /// The schema version of the encoded value.
        public var schemaVersion: Int

        /// The server's validator of the value, such as an `ETag`.
        public var validator: String?

        /// The duration after the time to live in which a request gets the stale value at once, during a
        /// renewal; `nil` for the policy's limit.
        public var staleWhileRevalidate: Duration?

        /// The duration after the time to live in which a failed fetch may return the stale value; `nil` for
        /// the policy's limit.
        public var staleIfError: Duration?

        /// Makes an entry; by default of a value that was fetched now.
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

        /// Whether the entry is younger than `maximumAge` and than its time to live.
        public func isFresh(_ maximumAge: Duration?) -> Bool {
            self.age < min(maximumAge ?? self.timeToLive, self.timeToLive)
        }
    }

    /// Identifies a granted claim, the right to put one entry; the claim may have ended in the meantime.
    public struct Ticket: Sendable, Hashable {
        /// The entry's name.
        public var name: MuxShared.Name

        /// The identifier of the claim, unique among all claims.
        public var nonce: String

        /// Makes a ticket.
        public init(_ name: MuxShared.Name, nonce: String) {
            self.name = name
            self.nonce = nonce
        }
    }

    /// The reply to a claim.
    public enum Claim: Sendable, Hashable {
        /// The entry is fresh enough.
        case entry(MuxShared.Entry)
        /// The caller fetches, and then puts the entry or gives up the claim. The entry here is not fresh
        /// enough, but may be used during the fetch.
        case granted(MuxShared.Ticket, MuxShared.Entry?)
        /// Another claim is valid, for at most this duration. A caller that waits repeats the claim after a
        /// reported ``MuxShared/Change`` of the entry, after the duration, or after one
        /// ``MuxShared/Policy/budget``, whichever comes first. The entry here is not fresh enough.
        case taken(for: Duration, MuxShared.Entry?)
    }

    /// A change that the store reports to a machine.
    public enum Change: Sendable, Hashable {
        /// An entry was put.
        case stored(MuxStoreKey)
        /// A claim ended without an entry: a waiting machine may repeat its claim.
        case released(MuxStoreKey)
        /// The entries of this scope are invalid in the store and on all machines.
        case invalidated(MuxShared.Scope)
        /// Changes may have been missed: each value in memory has to be verified before use.
        case unknown
        /// The store has lost its entries, and changes may have been missed: values in memory may be put
        /// again.
        case emptied
    }

    /// The limits of a repository for calls of its shared store.
    public struct Policy: Sendable, Hashable {
        /// The maximum wait of a request for the store, for all calls together, apart from the wait for
        /// another machine's fetch; by default 250 milliseconds.
        ///
        /// After a connectivity failure, or a call that the end of the budget interrupts, requests do not
        /// call the store for a ``pause``. During the pause, fetched values are kept in memory only.
        public var budget: Duration

        /// The maximum wait of a request for another machine's fetch, before the request itself fetches.
        ///
        /// The default is 5 seconds; the limit is at most half of ``MuxPolicy/fetchTimeout``. Afterwards, a
        /// machine with a value in memory does not wait for the same claim again.
        public var patience: Duration

        /// The time after a failure in which requests do not call the store; by default 1 second.
        ///
        /// The pause is shortened at random by at most a half, doubled with each consecutive failure, and
        /// ended when the store is available again.
        public var pause: Duration

        /// The maximum pause; by default 30 seconds.
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
