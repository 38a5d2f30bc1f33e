public import Foundation

/// What a request can fail with that is not the fetch's own error.
///
/// A cancelled caller gets `CancellationError`, not one of these.
@nonexhaustive public enum MuxError: Error, Sendable, Equatable {
    /// The session ended (sign-out) while the caller waited.
    case sessionEnded

    /// The fetch did not end within ``MuxPolicy/fetchTimeout``.
    case timedOut(after: Duration)

    /// The fetch, update or download threw a cancellation, although its callers were not cancelled.
    ///
    /// Such as a `URLError` `cancelled` of a session that was invalidated. It counts as a lost connection: a stale value is served
    /// where the policy permits that, and another attempt is worth it.
    case fetchCancelled

    /// The request came from within a fetch that it would have to wait for, directly or through others.
    ///
    /// A request of the fetch's own task, or of a child of it (`async let`, a task group), gets this at once. Of a `Task {}` that
    /// a fetch starts it cannot be told whether the fetch awaits it: its request waits, and gets this if the fetch has still not
    /// ended after ``MuxPolicy/fetchTimeout``.
    case wouldDeadlock

    /// The entry was cleared while the caller waited, with the option to end requests.
    case cleared

    /// Neither memory nor disk has a value, and the request asked for no more; see ``RequestOptions/cacheOnly``.
    case notCached

    /// The batch that was fetched has no value for the key.
    case notFound

    /// The store has no number left for another session.
    case tooManySessions

    /// A multiplexer, media or a cache of answers belong to another repository than the dependency that they need.
    ///
    /// A sign-out of one would leave what the other has: values would outlive the session of their token. Give both the same
    /// ``MuxRepository``, or name none where the multiplexer is made. Accounts with repositories of their own need a cache each.
    case repositoryMismatch

    /// ``MuxRepository/shared`` was set up or used before.
    case sharedRepositoryInUse

    /// The key is not equal to itself, as a floating-point not-a-number is, so nothing could be found under it.
    case unusableKey

    /// The call came from a member of a store that the repository uses, also of a token store, inside an operation that it
    /// would have to wait for.
    case calledFromStore

    /// The shared store took longer than its budget, or is not asked because it failed a moment ago.
    case sharedStoreUnavailable
}

extension MuxError: LocalizedError, CustomStringConvertible {
    /// The same as ``errorDescription``.
    public var description: String { self.errorDescription ?? "" }

    /// A sentence for a person.
    public var errorDescription: String? {
        switch self {
        case .sessionEnded: "The session ended before the value arrived."
        case .timedOut(let time): "The fetch did not end within \(ErrorText.time(time))."
        case .fetchCancelled: "The fetch was cancelled from within, and not by its callers."
        case .wouldDeadlock: "The fetch waits for itself: it must not request what waits for it."
        case .cleared: "The value was cleared before it arrived."
        case .notCached: "There is no value in the cache."
        case .notFound: "There is no value for this key."
        case .tooManySessions: "The store has no number left for another session."
        case .repositoryMismatch:
            """
            The multiplexer, media or cache belongs to another repository than the token that it needs, so that a sign-out \
            would not reach both. Give both the same one.
            """
        case .sharedRepositoryInUse:
            "The shared repository was set up or used before: it can be set up once, before anything uses it."
        case .unusableKey: "The key is not equal to itself and cannot name a value."
        case .calledFromStore: "A store called the repository while the repository was waiting for the store."
        case .sharedStoreUnavailable: "The store that several machines share cannot be reached at the moment."
        }
    }
}

extension MuxError: RetryableError {
    /// Transient for a time-out, a fetch that was cancelled from within and an unavailable shared store, otherwise permanent.
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
    /// Whether the fetch was cancelled from within, so that nothing is known of the value.
    public var isConnectivityFailure: Bool { self == .fetchCancelled }
}

extension Error {
    /// Whether this is a cancellation of Swift or of the URL loading system (-999), or wraps one.
    package var isCancellation: Bool {
        let answer = self.firstAnswer { error -> Bool? in
            if error is CancellationError { return true }
            let error = error as NSError
            return error.domain == "NSURLErrorDomain" ? error.code == -999 : nil
        }
        return answer ?? false
    }

    /// The error as it concerns callers of work that none of them has cancelled.
    @usableFromInline
    package var ofUncancelledWork: any Error { self.isCancellation ? MuxError.fetchCancelled : self }
}
