import Foundation

/// An event of a repository, or of an object that uses the repository, such as a multiplexer.
public struct MuxEvent: Sendable, Equatable {
    /// The kind of the event.
    #if hasAttribute(nonexhaustive)
    @nonexhaustive
    #endif
    public enum Kind: Sendable, Hashable {
        /// A request got a value or a remembered failure from memory.
        ///
        /// With ``RequestOptions/cacheOnly``, the value may also be from disk or from a shared store. An HTTP
        /// cache also sends this event for a response from disk.
        case hit
        /// A request joined a running flight.
        case joined
        /// A request found no usable value in memory, and joined no running flight.
        ///
        /// The request may still get a value from disk or from the shared store.
        case missed
        /// An entry was read from disk or from the shared store.
        case loaded
        /// A fetch began.
        case fetchStarted
        /// An attempt of a fetch failed; another attempt follows.
        case fetchRetried
        /// A fetch returned a value; for a file of media that is not kept, only ``fenceDropped`` is sent.
        case fetched
        /// A fetch failed. A fetch beyond its time limit is reported at its end, perhaps after its callers
        /// have returned.
        case fetchFailed
        /// A request returned a stale value; ``hit``, ``joined`` or ``missed`` is sent as well.
        case servedStale
        /// A fetched value was not cached, because the value was outdated.
        ///
        /// For example, a refresh or a sign-out occurred during the fetch, the fetch had passed its time
        /// limit, or the shared store had a newer value.
        case fenceDropped
        /// An entry on disk or in the shared store could not be read or used: a miss.
        case loadFailed
        /// An entry was evicted.
        case evicted
        /// An unsaved entry was evicted: a save failed, or memory is far above its limit.
        case evictedUnsaved
        /// The session ended.
        case sessionEnded
        /// Two living multiplexers have the same `cacheKey`: the multiplexers share entries on disk, and the
        /// later save wins.
        case cacheKeyShared
        /// The repository of an object, such as a multiplexer, differs from the repository of its dependency
        /// or cache: requests fail with ``MuxError/repositoryMismatch``.
        case repositoryMismatch
        /// A call of a runner waits for the update of a dependency.
        case dependencyAwaited
        /// A download waits for its turn.
        case queued
        /// An update of a dependency began.
        case updateStarted
        /// An update made a dependency, or found a usable dependency in the store.
        case updated
        /// An update of a dependency failed or was refused; the previous dependency may still be used.
        case updateFailed
        /// A previous process started a renewal of the tokens and stored no new tokens; this process tries
        /// the stored tokens.
        case updateInterrupted
        /// A folder or a store of tokens has a problem, and work continues: see ``MuxEvent/problem``.
        ///
        /// Each problem of a folder is sent once; a problem of tokens is sent again only after a success.
        case storageFailed
        /// The shared store became unavailable, or the ``MuxEvent/reason`` of the outage changed.
        case sharedStoreUnavailable
        /// The shared store is available again.
        case sharedStoreAvailable
        /// The shared store refused an entry, so only this machine has the entry; or refused an invalidation,
        /// so other machines may still have the old entries.
        case notShared
        /// A change was added to an outbox of `MuxOutbox`.
        case changeAdded
        /// An attempt to send a change began.
        case changeSending
        /// An attempt to send a change failed or could not begin.
        ///
        /// Another attempt or ``changeFailed`` follows, unless the change is removed.
        case changeDelayed
        /// The server confirmed a change.
        case changeConfirmed
        /// A change is not sent again without a call by the app: the server refused the change, the change
        /// has expired, the outcome is unknown, or the policy permits no further attempt.
        case changeFailed
        /// A sign-out dropped unsent changes.
        case changesDropped
    }

    /// The kind of the event.
    public let kind: Kind

    /// The source of the event; `nil` for a repository, its stores, and stored tokens.
    ///
    /// For a multiplexer or runner, the name in the policy, otherwise the `cacheKey`, otherwise the type of
    /// the values. For an outbox, the name of the outbox. For an HTTP cache, the `cacheKey`, otherwise
    /// `CachingTransport`. For media, `AsyncMedia`.
    public let name: String?

    /// The `cacheKey` of the multiplexer or HTTP cache, if present.
    public let cacheKey: String?

    /// The entry's key as text, if present; never a value, a token or the text of an error.
    public let key: String?

    /// The duration, for ``Kind/loaded``, ``Kind/loadFailed``, ``Kind/fetched`` and ``Kind/fetchFailed`` of a
    /// multiplexer, and for ``Kind/updated`` and ``Kind/updateFailed``; otherwise `nil`.
    public let duration: Duration?

    /// The reason of the failure, for ``Kind/fetchFailed``, ``Kind/fetchRetried``, ``Kind/loadFailed``,
    /// ``Kind/updateFailed``, ``Kind/sharedStoreUnavailable``, ``Kind/notShared``, ``Kind/changeDelayed`` and
    /// ``Kind/changeFailed``.
    public let reason: MuxEvent.Reason?

    /// A description of the failure, for ``Kind/storageFailed``, without values, tokens and paths.
    ///
    /// The description may contain the text of an error of a custom store.
    public let problem: String?

    /// Makes an event.
    public init(
        _ kind: Kind,
        name: String? = nil,
        cacheKey: String? = nil,
        key: String? = nil,
        duration: Duration? = nil,
        reason: MuxEvent.Reason? = nil,
        problem: String? = nil
    ) {
        self.kind = kind
        self.name = name
        self.cacheKey = cacheKey
        self.key = key
        self.duration = duration
        self.reason = reason
        self.problem = problem
    }
}

/// Receives the events of a repository, and of the objects that use the repository.
public protocol MuxObserver: Sendable {
    /// Whether the observer gets ``MuxEvent/Kind/hit`` events; `true` by default.
    ///
    /// Multiplexers and HTTP caches read this property at their initialisation. Most requests are hits, and
    /// an event takes longer than a hit; ``MuxRepository/Statistics/hits`` counts hits in any case.
    var observesHits: Bool { get }

    /// Called for each event, outside the locks of the library: keep the implementation short.
    ///
    /// The caller is the thread that causes the event, or a separate task for a problem of a folder
    /// (``MuxEvent/Kind/storageFailed``).
    func observe(_ event: MuxEvent)
}

extension MuxObserver {
    /// `true`: the observer gets hits.
    public var observesHits: Bool { true }

    /// Sends `event`; a task that the observer starts is not part of the operation that reports the event.
    package func tell(_ event: MuxEvent) { ReentrantAsyncMutex.outside { self.observe(event) } }
}

extension MuxEvent {
    /// The class of an error, for counters and logs, without secrets.
    ///
    /// The class of an app's error is ``status(_:)`` for a ``RetryableError`` whose advice has a status, and
    /// ``connection`` for a ``ConnectivityError`` with a connectivity failure.
    #if hasAttribute(nonexhaustive)
    @nonexhaustive
    #endif
    public enum Reason: Sendable, Hashable {
        /// The status of the server's response.
        case status(Int)
        /// A time limit has passed.
        case timeOut
        /// The server was not reached, or the connection was lost.
        case connection
        /// The received data could not be decoded, or a value could not be encoded.
        case decoding
        /// The task was cancelled.
        case cancellation
        /// The dependency, such as a token, was refused.
        case refused
        /// Another reason: the type of an error, with the case if the case has no associated value; the
        /// domain and code of a system error; or another text, such as `expired`.
        case other(String)
    }
}

extension MuxEvent.Reason: CustomStringConvertible {
    /// The reason in a word or two, such as `status 503`.
    public var description: String {
        switch self {
        case .status(let code): "status \(code)"
        case .timeOut: "time-out"
        case .connection: "connection"
        case .decoding: "decoding"
        case .cancellation: "cancelled"
        case .refused: "refused"
        case .other(let name): name
        }
    }
}

/// An error of the library with a known class, or with the class of another error.
package protocol ClassifiedError: Error {
    /// The class, or the error with the same class; `nil` if other conformances of the error decide.
    var classification: ErrorClassification? { get }
}

/// See ``ClassifiedError``.
package enum ErrorClassification {
    case reason(MuxEvent.Reason)
    case sameAs(any Error)
}

extension MuxEvent.Reason {
    /// The class of an error.
    package init(of error: any Error) {
        if case .sameAs(let cause) = (error as? any ClassifiedError)?.classification {
            self.init(of: cause)
        } else {
            self = Self.known(of: error) ?? .other(ErrorText.name(of: error))
        }
    }

    /// The class of an error; `nil` for ``other(_:)``.
    package static func known(of error: any Error) -> MuxEvent.Reason? { error.firstDecision(Self.decision) ?? nil }

    /// The class of an error, without an examination of wrapped errors.
    ///
    /// - Returns: The class; `.some(nil)` for ``other(_:)``; `nil` if a wrapped error decides.
    private static func decision(of error: any Error) -> MuxEvent.Reason?? {
        switch (error as? any ClassifiedError)?.classification {
        case .reason(let reason): return reason
        case .sameAs(let cause): return .some(Self.known(of: cause))
        case nil: break
        }
        switch error {
        case is CancellationError: return .cancellation
        case is DecodingError, is EncodingError: return .decoding
        case let error as any RetryableError:
            if let status = error.retryAdvice.status { return .status(status) }
        default: break
        }
        if error.isRefusal { return .refused }
        let system = error as NSError
        switch (system.domain, system.code) {
        case ("NSURLErrorDomain", -1001), (POSIXError.errorDomain, Int(POSIXError.Code.ETIMEDOUT.rawValue)):
            return .timeOut
        case ("NSURLErrorDomain", -999): return .cancellation
        default: return SilenceableError.decision(of: error).map { $0 ? .connection : nil }
        }
    }
}

extension SilenceableError: ClassifiedError {
    package var classification: ErrorClassification? { .sameAs(self.underlying) }
}

extension RetryError: ClassifiedError {
    package var classification: ErrorClassification? { self.lastError.map { .sameAs($0) } }
}

extension MuxError: ClassifiedError {
    package var classification: ErrorClassification? {
        switch self {
        case .timedOut: .reason(.timeOut)
        case .fetchCancelled: .reason(.cancellation)
        case .sharedStoreUnavailable: .reason(.connection)
        default: nil
        }
    }
}
