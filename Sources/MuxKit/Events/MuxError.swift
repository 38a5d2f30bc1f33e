public import Foundation

/// An error of a request, a save, a removal, a sign-out or a set-up, apart from errors that a fetch throws.
///
/// A cancelled caller gets `CancellationError` instead.
#if hasAttribute(nonexhaustive)
@nonexhaustive
#endif
public enum MuxError: Error, Sendable, Equatable {
    /// The session ended, such as by a sign-out, before the end of the call.
    case sessionEnded

    /// The fetch did not end within ``MuxPolicy/fetchTimeout``.
    case timedOut(after: Duration)

    /// The fetch, update or download threw a cancellation, although its callers were not cancelled.
    ///
    /// An example is the `URLError` with the code `cancelled` from an invalidated `URLSession`. The error
    /// counts as a lost connection: a stale value is returned if the policy permits, and a retry is useful.
    case fetchCancelled

    /// The request came from within a fetch that the request would wait for, directly or through other
    /// fetches; or the request would start fetches of the same key inside each other without end.
    ///
    /// A request of the fetch's own task, or of a child task (`async let`, a task group), throws this error
    /// at once. For a `Task {}` that a fetch starts, the library cannot know whether the fetch awaits the
    /// task: the request waits, and throws this error if the fetch has not ended after
    /// ``MuxPolicy/fetchTimeout``. If 16 fetches of one key are nested in this way, a further request throws
    /// this error at once.
    case wouldDeadlock

    /// The entry was cleared during the caller's wait, with the option to end requests.
    case cleared

    /// No value is cached for a request without a fetch; see ``RequestOptions/cacheOnly``.
    ///
    /// Memory, disk and shared store have no value that the request may use.
    case notCached

    /// The fetched batch has no value for the key.
    case notFound

    /// The session number has reached its maximum, so that no other session can start.
    case tooManySessions

    /// A multiplexer, outbox, client, media or response cache has another repository than its dependency or
    /// cache.
    ///
    /// A sign-out of either repository would not clear the other, so values would outlive the session of
    /// their token. Pass both the same ``MuxRepository``, or pass no repository to the multiplexer. Accounts
    /// with separate repositories need separate caches.
    case repositoryMismatch

    /// ``MuxRepository/shared`` was set or used before.
    case sharedRepositoryInUse

    /// The key is not equal to itself, such as a floating-point not-a-number, so no value can be found for
    /// the key.
    case unusableKey

    /// A store of the repository, or a token store, made a call during an operation that the call would wait
    /// for.
    case calledFromStore

    /// The shared store cannot be used now, or has refused an invalidation.
    ///
    /// See ``MuxShared/Policy/budget`` and ``MuxShared/Policy/pause``.
    case sharedStoreUnavailable
}

extension MuxError: LocalizedError, CustomStringConvertible {
    /// The same as ``errorDescription``.
    public var description: String { self.errorDescription ?? "" }

    /// A sentence for people.
    public var errorDescription: String? {
        switch self {
        case .sessionEnded: "The session ended before the value arrived."
        case .timedOut(let time): "The fetch did not end within \(ErrorText.time(time))."
        case .fetchCancelled: "The fetch was cancelled by its own code, not by a caller."
        case .wouldDeadlock: "The fetch waits for itself. A fetch must not request a value that waits for the fetch."
        case .cleared: "The value was cleared during the fetch."
        case .notCached: "The value is not in the cache."
        case .notFound: "No value exists for the key."
        case .tooManySessions: "The session number has reached its maximum."
        case .repositoryMismatch:
            """
            The multiplexer, media or cache has another repository than the token, so a sign-out would not reach both. Use \
            the same repository for both.
            """
        case .sharedRepositoryInUse:
            "The shared repository is already set up or in use. Set up the shared repository once, before its first use."
        case .unusableKey: "The key is not equal to itself and cannot identify a value."
        case .calledFromStore: "A store called the repository while the repository was waiting for the store."
        case .sharedStoreUnavailable: "The shared store cannot be used now, or has refused an invalidation."
        }
    }
}

extension MuxError: RetryableError {
    /// Transient for a time-out, a fetch that was cancelled by its own code, and an unavailable shared store;
    /// otherwise permanent.
    public var retryAdvice: RetryAdvice {
        switch self {
        case .timedOut, .fetchCancelled, .sharedStoreUnavailable: .transient
        case .sessionEnded, .cleared, .wouldDeadlock, .notCached, .notFound, .tooManySessions, .unusableKey,
            .repositoryMismatch, .sharedRepositoryInUse, .calledFromStore:
            .permanent
        }
    }
}

extension MuxError: ConnectivityError {
    /// `true` only for ``fetchCancelled``, which counts as a lost connection.
    public var isConnectivityFailure: Bool { self == .fetchCancelled }
}

extension Error {
    /// Whether this error is, or wraps, a cancellation of Swift or of the URL loading system (-999).
    ///
    /// An outer error that is certainly another failure, such as a ``ConnectivityError``, decides first.
    package var isCancellation: Bool {
        let decision = self.firstDecision { error -> Bool? in
            if error is CancellationError { return true }
            let system = error as NSError
            if system.domain == "NSURLErrorDomain" { return system.code == -999 }
            return SilenceableError.decision(of: error).map { _ in false }
        }
        return decision ?? false
    }

    /// The error for callers of shared work: a cancellation becomes ``MuxError/fetchCancelled``, because the
    /// callers have not cancelled the work.
    @usableFromInline
    package var ofUncancelledWork: any Error { self.isCancellation ? MuxError.fetchCancelled : self }
}
