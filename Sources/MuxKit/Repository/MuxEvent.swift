import Foundation

/// Something that a multiplexer, a repository or a runner decided.
public struct MuxEvent: Sendable, Equatable {
    /// What was decided.
    @nonexhaustive public enum Kind: Sendable, Hashable {
        /// A request was answered from memory, or for ``RequestOptions/cacheOnly`` from disk.
        case hit
        /// A request waits for a flight that was running already.
        case joined
        /// A request started a flight.
        case missed
        /// An entry was read from disk.
        case loaded
        /// A fetch began.
        case fetchStarted
        /// A fetch failed and is attempted again.
        case fetchRetried
        /// A fetch brought a value.
        case fetched
        /// A fetch failed. One that took too long is told of when it ends, which may be after its callers were answered.
        case fetchFailed
        /// A request was answered with a stale value; told in addition to how it was answered.
        case servedStale
        /// An outcome from before a fence was kept out of the cache.
        case fenceDropped
        /// An entry could not be read from disk, or not be decoded: a miss.
        case loadFailed
        /// An entry left memory to make room for another.
        case evicted
        /// An entry left memory to make room for another though it is not on disk, which cannot be written.
        case evictedUnsaved
        /// The session ended.
        case sessionEnded
        /// Two living multiplexers have one `cacheKey`: they share entries on disk, and the later save wins.
        case cacheKeyShared
        /// A multiplexer belongs to another repository than the dependency that its fetch needs: its requests fail with
        /// ``MuxError/repositoryMismatch``.
        case repositoryMismatch
        /// A call of a runner waits for the update of a dependency.
        case dependencyAwaited
        /// A download waits for its turn.
        case queued
        /// An update of a dependency began.
        case updateStarted
        /// An update of a dependency made one, or found a usable one in the store.
        case updated
        /// An update of a dependency failed, or was refused; the one before, also if it was found in the store, may still be used.
        case updateFailed
        /// An earlier process began to renew tokens and stored no new ones, because it ended or the renewal failed: this one tries them.
        case updateInterrupted
        /// Something could not be kept on disk, or not be looked up there, and work goes on without: ``MuxEvent/problem`` says
        /// what. It is told once, and again only after it has worked in between.
        case storageFailed
        /// The shared store became unavailable, or the ``MuxEvent/reason`` of the outage changed.
        case sharedStoreUnavailable
        /// The shared store is available again.
        case sharedStoreAvailable
        /// The shared store refused an entry, or the invalidation of an entry: only this machine has the entry.
        case notShared
    }

    /// What was decided.
    public let kind: Kind

    /// Whose decision it was: the name in the policy of a multiplexer or runner, or else its `cacheKey`, or else the type of its
    /// values; `nil` for what concerns a repository.
    public let name: String?

    /// The multiplexer's `cacheKey`, if it has one.
    public let cacheKey: String?

    /// The entry's key as text, if there is one; never a value, a token or an error's text.
    public let key: String?

    /// How long it took, for what takes time: ``Kind/loaded``, ``Kind/loadFailed``, ``Kind/fetched``, ``Kind/fetchFailed``,
    /// ``Kind/updated`` and ``Kind/updateFailed``; `nil` for the rest, which happens at once.
    public let duration: Duration?

    /// The reason of the failure, for ``Kind/fetchFailed``, ``Kind/fetchRetried``, ``Kind/loadFailed``, ``Kind/updateFailed``,
    /// ``Kind/sharedStoreUnavailable`` and ``Kind/notShared``.
    public let reason: MuxEvent.Reason?

    /// What went wrong and why, in words, for ``Kind/storageFailed``; never a value, a token or a path.
    public let problem: String?

    /// Describes an event.
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

/// Receives what happens in everything that uses a repository.
public protocol MuxObserver: Sendable {
    /// Whether ``MuxEvent/Kind/hit`` is to be told; `true` unless the observer says otherwise.
    ///
    /// Read by everything that uses the observer, when that is made. Most requests are hits, and telling of one takes longer
    /// than answering it; ``MuxRepository/Statistics/hits`` counts them in any case.
    var observesHits: Bool { get }

    /// Called after each decision, on the thread that made it and outside all locks: keep it short.
    func observe(_ event: MuxEvent)
}

extension MuxObserver {
    /// `true`: hits are told.
    public var observesHits: Bool { true }

    /// Tells of `event`; a task that the observer starts is not part of the operation in which that happened.
    package func tell(_ event: MuxEvent) { ReentrantAsyncMutex.outside { self.observe(event) } }
}

extension MuxEvent {
    /// The class of an error: what can be counted and shown, and holds nothing secret.
    ///
    /// An error of an app's own has a status if it is a ``RetryableError`` whose advice has one, and is one of the connection if it is a
    /// ``ConnectivityError`` that says so.
    @nonexhaustive public enum Reason: Sendable, Hashable {
        /// The server answered with this status.
        case status(Int)
        /// It took too long.
        case timeOut
        /// The server was not reached, or the connection was lost.
        case connection
        /// What was received could not be decoded.
        case decoding
        /// The task was cancelled.
        case cancellation
        /// The dependency, such as a token, was refused.
        case refused
        /// Another reason: the name of the error's type, and its case if that holds nothing.
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

/// An error of the library that knows its class, or has that of another error.
package protocol ClassifiedError: Error {
    /// The class, or the error whose class it has; `nil` if other conformances of the error say it.
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

    /// The class of an error, unless it is ``other(_:)``.
    package static func known(of error: any Error) -> MuxEvent.Reason? { error.firstAnswer(Self.answer) }

    /// The class of an error, regardless of the error it wraps.
    private static func answer(of error: any Error) -> MuxEvent.Reason? {
        switch (error as? any ClassifiedError)?.classification {
        case .reason(let reason): return reason
        case .sameAs(let cause): return Self.known(of: cause)
        case nil: break
        }
        switch error {
        case is CancellationError: return .cancellation
        case is DecodingError, is EncodingError: return .decoding
        case let error as any RetryableError:
            if let status = error.retryAdvice.status { return .status(status) }
        default: break
        }
        if error.saysBadDependency { return .refused }
        let system = error as NSError
        switch (system.domain, system.code) {
        case ("NSURLErrorDomain", -1001), (POSIXError.errorDomain, Int(POSIXError.Code.ETIMEDOUT.rawValue)):
            return .timeOut
        case ("NSURLErrorDomain", -999): return .cancellation
        default: return SilenceableError.answer(of: error) == true ? .connection : nil
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
