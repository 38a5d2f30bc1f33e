public import MuxKit
public import Observation

/// The value of a multiplexer, or of one key of a map, for views.
///
/// ```swift
/// struct ProfileView: View {
///     @State private var profile = Backend.profile.observed()
///
///     var body: some View {
///         Text(profile.value?.name ?? "…")
///             .task { await profile.follow() }
///             .refreshable { await profile.reload() }
///     }
/// }
/// ```
///
/// The object shows the entry in memory at once, and follows the changes while ``follow()`` runs. All
/// properties change together, and views update once per visible change. An initialiser of a view may make
/// objects that are never used: an object starts and registers nothing before ``follow()`` or ``reload()``.
///
/// **Renewals.** ``follow()`` requests the value, and renews the value after a refresh. At the end of a
/// lifetime above zero, the value is renewed at most once a second. A failed request is repeated when the app
/// becomes active, and when the network is available again. `MuxPolicy.refetch` can change these rules,
/// except the renewal after a refresh, and can add an interval.
///
/// **After a failure** the value stays, and ``problem`` is the error.
///
/// **After a clear or a sign-out** the value is `nil`, also without ``follow()``. A running ``follow()``
/// sends no request until a refresh or a new value, because the next user may not have signed in: call
/// ``reload()``, or give the view a new identity.
///
/// **Lifetime.** The object retains the multiplexer. MuxUI retains the object only during ``follow()`` and
/// ``reload()``. Replaced values are released outside the main actor.
@MainActor
@Observable
public final class ObservedValue<Value: Sendable> {
    /// The part of the state that a view shows.
    public enum Phase: Sendable {
        /// No value and no ``ObservedValue/problem``; ``ObservedValue/isLoading`` is `false`.
        case empty
        /// No value and no ``ObservedValue/problem``; ``ObservedValue/isLoading`` is `true`.
        case loading
        /// A value, fresh or stale.
        case value(Value)
        /// No value, and a ``ObservedValue/problem``.
        case failure(any Error)
    }

    @ObservationIgnored private let source: ObservedSource<Value>
    @ObservationIgnored private let loadingDelay: Duration
    @ObservationIgnored private let activity: AppActivity
    /// The last state, even without a visible change.
    @ObservationIgnored private var state: MuxState<Value>
    /// The time of ``state``.
    @ObservationIgnored private var stateTime: Moment
    /// The error of the last request, if the state does not have the error.
    @ObservationIgnored private var requestError: (any Error)?
    @ObservationIgnored private var showsLoading = false
    /// The number of running calls of ``follow()``.
    @ObservationIgnored private var followCount = 0
    /// The number of running calls of ``follow()`` and ``reload()``.
    @ObservationIgnored private var useCount = 0
    /// Whether a call of ``follow()`` has not requested the value yet.
    @ObservationIgnored private var mustRequest = false
    /// The counts at the last request.
    ///
    /// The end of a lifetime leads to a renewal only if `replacements` differs from the current number;
    /// `.max` always differs.
    @ObservationIgnored private var requested: StateCounts?
    /// Whether the failed request must be repeated.
    @ObservationIgnored private var mustRepeat = false
    /// Whether the running request must be repeated after a failure.
    @ObservationIgnored private var repeatsFailure = false
    /// The number of fetches at the activation, reconnection or interval that requires another fetch; `nil`
    /// if no fetch is required.
    @ObservationIgnored private var mustFetchAfter: UInt64?
    /// Whether a clear or a sign-out removed the value, and neither a request nor a new value has followed.
    @ObservationIgnored private var isCleared = false
    /// The earliest time of the next renewal of an old value.
    @ObservationIgnored private var mayRenewAt: Moment
    /// The start of the interval of `MuxPolicy.refetch`: the time of the last outcome, or, for a value from
    /// before ``follow()``, the time of the fetch.
    @ObservationIgnored private var outcomeTime: Moment
    /// The watcher of the states, the request for the value, and three timers: of the loading delay, of the
    /// pause of renewals, and of the interval.
    @ObservationIgnored private var watch: Task<Void, Never>?
    @ObservationIgnored private var request: Task<Void, Never>?
    @ObservationIgnored private var delay: Task<Void, Never>?
    @ObservationIgnored private var pause: Task<Void, Never>?
    @ObservationIgnored private var polling: Task<Void, Never>?
    /// Called by ``show(_:)`` after each update of ``state``, visible or not.
    @ObservationIgnored var afterChange: (() -> Void)?
    /// The number of visible changes; a view that reads any property observes this number.
    private var visibleChangeCount: UInt64 = 0

    init(_ source: ObservedSource<Value>, loadingDelay: Duration, activity: AppActivity) {
        self.source = source
        self.loadingDelay = loadingDelay
        self.activity = activity
        self.state = source.current()
        self.stateTime = source.time.now
        self.mayRenewAt = self.stateTime
        self.outcomeTime = self.stateTime
    }

    /// The state, for a property that a view reads.
    private var shown: MuxState<Value> {
        _ = self.visibleChangeCount
        // A clear or a sign-out has an effect at once: before the watcher runs, and without a watcher.
        let state = self.source.current()
        guard state.counts.clears != self.state.counts.clears else { return self.state }
        if self.useCount == 0 {
            self.replace(by: state)
            self.requestError = nil
        } else if state.counts.replacements == self.state.counts.replacements {
            return self.state  // a clear of another key
        }
        return state
    }

    // MARK: - Reading

    /// The value, fresh or stale; `nil` without a value, such as after a clear or a sign-out.
    public var value: Value? { self.shown.entry?.value }

    /// The entry, with the age at the last change of the state; ``age`` is the current age.
    public var entry: MuxEntry<Value>? { self.shown.entry }

    /// The time since the fetch of the value; `nil` without a value.
    ///
    /// Views are not updated while the age grows.
    public var age: Duration? {
        self.shown.entry.map { entry in
            // The entry is newer than ``state``, and has the age at this moment.
            guard entry.revision == self.state.entry?.revision else { return entry.age }
            return .sum(entry.age, self.source.time.now.duration(since: self.stateTime))
        }
    }

    /// Whether the value is stale; `false` without a value.
    public var isStale: Bool { self.shown.isStale }

    /// Whether a fetch has been running for the loading delay; `false` without ``follow()`` and ``reload()``.
    public var isLoading: Bool {
        _ = self.visibleChangeCount
        return self.showsLoading
    }

    /// The error of the last request or fetch, including renewals in the background; `nil` after a value.
    ///
    /// An error that reports the end of the session is not shown. Without ``follow()`` and ``reload()``,
    /// later errors are not shown.
    public var problem: (any Error)? { (self.shown.failure ?? self.requestError)?.unlessEndOfSession }

    /// The value, or else the problem, or else whether a fetch is running.
    public var phase: Phase {
        if let value = self.value { return .value(value) }
        if let problem = self.problem { return .failure(problem) }
        return self.isLoading ? .loading : .empty
    }

    // MARK: - Following

    /// Requests the value, and follows its changes until the task is cancelled.
    ///
    /// A value in memory or on disk is shown before the fetch, even if stale, and a stale value is renewed.
    /// Concurrent calls share one watcher, so several views may follow one object. Shortly after the return
    /// of the last call of ``follow()`` and ``reload()``, nothing is registered.
    public func follow() async {
        self.mustRequest = self.mustRequest || self.request == nil
        self.beginUse()
        self.followCount += 1
        if self.followCount == 1 {
            self.activity.addFollower(self)
            self.startPolling()
        }
        self.requestIfNeeded()
        // The stream ends at the cancellation of the task. The call of `finish` keeps the continuation until
        // then, because the release of the continuation also ends the stream.
        let (never, continuation) = AsyncStream<Never>.makeStream()
        for await _ in never {}
        continuation.finish()
        self.followCount -= 1
        if self.followCount == 0 {
            self.activity.removeFollower(self)
            self.stopRequests()
        }
        self.endUse()
    }

    /// Fetches a new value, as for a pull to refresh; the fetch continues if the task is cancelled.
    ///
    /// A failure becomes ``problem``. If the task is cancelled, the outcome is shown while ``follow()`` runs.
    public func reload() async {
        self.beginUse()
        self.isCleared = false
        let before = self.source.current().counts
        let error = await self.source.reload()
        self.showOutcome(Task.isCancelled ? .value(nil) : error.map { .failure($0) } ?? .value(nil), since: before)
        self.endUse()
    }

    /// The first use registers a consumer; from then on, ``state`` has all counts and failures.
    private func beginUse() {
        if self.useCount == 0 {
            let states = self.source.states.registered()
            self.showCurrent()
            self.outcomeTime = self.stateTime.advanced(by: .zero - (self.state.entry?.age ?? .zero))
            self.watch = self.source.repository.spawn(name: "mux.follow") { [weak self] in
                // The states are only signals, and are released here, outside the main actor.
                for await _ in states { await self?.stateChanged() }
            }
        }
        self.useCount += 1
    }

    private func stateChanged() {
        guard self.useCount > 0 else { return }
        self.showCurrent()
        self.requestIfNeeded()
    }

    private func endUse() {
        self.useCount -= 1
        guard self.useCount == 0 else { return }
        self.watch?.cancel()
        self.delay?.cancel()
        (self.watch, self.delay) = (nil, nil)
        if self.showsLoading {
            self.showsLoading = false
            self.visibleChangeCount &+= 1
        }
    }

    // MARK: - Requests

    private func stopRequests() {
        for task in [self.request, self.pause, self.polling] { task?.cancel() }
        (self.request, self.pause, self.polling) = (nil, nil, nil)
        (self.mustRequest, self.mustRepeat, self.repeatsFailure, self.mustFetchAfter) = (false, false, false, nil)
    }

    /// Whether a new ``follow()``, a refresh or the end of the lifetime requires a request.
    private var needsRequest: Bool {
        if self.mustRequest { return true }
        guard let entry = self.state.entry else { return self.isRefreshed }
        // The value was replaced or renewed since the last request, and can be stale again.
        let isOld = self.requested?.replacements != self.state.counts.replacements && entry.timeToLive > .zero
        return entry.isStale && (isOld && self.source.states.refetch.whenStale || self.isRefreshed)
    }

    /// Whether an event or an interval requires a fetch, no fetch has begun since, and no fetch is running.
    private var isFetchDue: Bool { self.mustFetchAfter == self.state.counts.fetches && !self.state.isLoading }

    /// Whether a refresh is newer than the last request, and than the last outcome or removal.
    private var isRefreshed: Bool {
        let counts = self.state.counts
        return counts.refreshes > max(counts.answeredRefreshes, self.requested?.refreshes ?? .max)
    }

    /// Requests the value if necessary.
    ///
    /// After a refresh, a new request replaces a running request, because the running request waits for a
    /// value from before the refresh.
    ///
    /// - Parameter isAdmitted: Whether the activity permits a fetch for an event or an interval.
    private func requestIfNeeded(isAdmitted: Bool = false) {
        guard self.followCount > 0, self.request == nil || self.isRefreshed else { return }
        self.pause?.cancel()
        self.pause = nil
        let mustFetch = self.isFetchDue
        guard isAdmitted || self.isRefreshed || !mustFetch && !self.mustRepeat else {
            return self.activity.enqueue(self)
        }
        guard mustFetch || self.mustRepeat || self.needsRequest else { return }
        let (time, now) = (self.source.time, self.source.time.now)
        guard isAdmitted || self.mustRequest || self.isRefreshed || now >= self.mayRenewAt else {
            self.pause = self.source.repository.spawn(name: "mux.pause") {
                @MainActor [weak self, end = self.mayRenewAt] in
                guard (try? await time.sleep(for: end.duration(since: now))) != nil, !Task.isCancelled else { return }
                self?.requestIfNeeded()
            }
            return
        }
        self.request?.cancel()
        if mustFetch { self.mustFetchAfter = nil }
        (self.mustRequest, self.mustRepeat, self.repeatsFailure, self.isCleared) = (false, false, false, false)
        self.requested = self.state.counts
        self.mayRenewAt = now.advanced(by: Self.minimumPause)
        self.request = self.source.repository.spawn(name: "mux.screen") {
            @MainActor [weak self, source, before = self.state] in
            let outcome = await source.request(before, mustFetch)
            guard let self, !Task.isCancelled else { return }
            self.request = nil
            self.showOutcome(outcome, since: before.counts)
            switch outcome {
            case .backingOff:
                self.requested?.replacements = .max
                self.mayRenewAt = source.time.now.advanced(by: Self.minimumPause)
            case .alreadyAnswered where mustFetch && self.state.counts.clears == before.counts.clears:
                // The answer may be a value that the app stored, so the event or the interval still requires
                // a fetch.
                self.mustFetchAfter = self.mustFetchAfter ?? before.counts.fetches
            case .value, .alreadyAnswered, .failure: break
            }
            self.mustRepeat = self.repeatsFailure && self.problem != nil
            self.requestIfNeeded()
        }
    }

    /// The minimum time between two renewals of an old value, and the minimum interval of
    /// `MuxPolicy.refetch`.
    private static var minimumPause: Duration { .seconds(1) }

    // MARK: - Refetching

    private func startPolling() {
        guard let interval = self.source.states.refetch.every.map({ max($0, Self.minimumPause) }) else { return }
        self.polling = self.source.repository.spawn(name: "mux.interval") {
            @MainActor [weak self, time = self.source.time] in
            while !Task.isCancelled, let wait = self?.poll(every: interval) {
                guard (try? await time.sleep(for: wait)) != nil else { return }
            }
        }
    }

    /// Fetches the value if the interval has passed since the last outcome, except after a clear or a
    /// sign-out.
    ///
    /// - Returns: The time to the next call.
    private func poll(every interval: Duration) -> Duration {
        self.showCurrent()
        let rest = interval - self.source.time.now.duration(since: self.outcomeTime)
        guard rest <= .zero else { return rest }
        // The outcome of a running fetch begins a new interval.
        if !self.state.isLoading, !self.isCleared { self.mustFetchAfter = self.state.counts.fetches }
        self.requestIfNeeded()
        return interval
    }

    // MARK: - Changes

    /// Shows the outcome of a request: a value that memory does not have, or an error if the state has
    /// neither an error nor a newer value.
    private func showOutcome(_ outcome: ObservedSource<Value>.Outcome, since before: StateCounts) {
        self.showCurrent()
        var error: (any Error)?
        switch outcome {
        case .value(let entry?):
            let state = self.source.current()
            if state.entry == nil, state.counts.clears == before.clears { self.show(state.holding(entry)) }
        case .failure(let thrown): error = thrown
        case .value, .backingOff, .alreadyAnswered: break
        }
        let counts = self.state.counts
        guard counts.replacements == before.replacements else { return }
        let former = self.problem
        self.requestError = self.state.failure == nil ? error : nil
        if self.state.failure == nil, former != nil || self.problem != nil { self.visibleChangeCount &+= 1 }
    }

    private func showCurrent() {
        let state = self.source.current()
        let (former, counts) = (self.state.counts, state.counts)
        if counts.outcomes != former.outcomes { self.outcomeTime = self.source.time.now }
        // An entry that is absent without a removal was evicted, and stays visible. `clears` also counts the
        // clears of other keys. While a consumer is registered, `replacements` counts the removals of this
        // key.
        let isRemoved =
            counts.clears != former.clears && (self.useCount == 0 || counts.replacements != former.replacements)
        self.isCleared = state.entry == nil && (self.isCleared || isRemoved)
        // Events from before the removal require no request.
        if self.isCleared { (self.mustRepeat, self.repeatsFailure, self.mustFetchAfter) = (false, false, nil) }
        // A response to another caller must not be kept, so the former value is outdated.
        let isOutdated = self.useCount > 0 && counts.uncached != former.uncached
        guard state.entry == nil, !isRemoved, !isOutdated else { return self.show(state) }
        self.show(state.keepingEntry(of: self.state, for: self.source.time.now.duration(since: self.stateTime)))
    }

    private func show(_ state: MuxState<Value>) {
        let former = self.problem
        let isSameEntry = self.state.entry?.revision == state.entry?.revision
        let isReplaced = self.useCount > 0 && self.state.counts.replacements != state.counts.replacements
        if state.failure != nil || !isSameEntry || isReplaced { self.requestError = nil }
        // A fresh value that becomes stale later is a reason for a renewal.
        if state.entry?.isStale == false { self.requested?.replacements = .max }
        let problem = (state.failure ?? self.requestError)?.unlessEndOfSession
        var isVisible = self.update(loading: state.isLoading)
        isVisible = isVisible || self.state.isStale != state.isStale || (former == nil) != (problem == nil)
        isVisible = isVisible || problem != nil && self.state.failureNumber != state.failureNumber
        isVisible = isVisible || !isSameEntry && !areEqual(self.state.entry?.value, state.entry?.value)
        self.replace(by: state)
        if isVisible { self.visibleChangeCount &+= 1 }
        self.afterChange?()
    }

    /// Shows a running fetch after the loading delay.
    ///
    /// - Returns: Whether ``isLoading`` changes now.
    private func update(loading isLoading: Bool) -> Bool {
        let former = self.showsLoading
        if !isLoading || self.loadingDelay <= .zero {
            self.delay?.cancel()
            self.delay = nil
            self.showsLoading = isLoading
        } else if !self.showsLoading, self.delay == nil {
            self.delay = self.source.repository.spawn(name: "mux.loading") {
                @MainActor [weak self, loadingDelay, time = self.source.time] in
                guard (try? await time.sleep(for: loadingDelay)) != nil, let self, !Task.isCancelled else { return }
                self.showsLoading = true
                self.visibleChangeCount &+= 1
            }
        }
        return former != self.showsLoading
    }

    private func replace(by state: MuxState<Value>) {
        // The `deinit` of a large value takes long, and must run outside the main actor.
        let former = Locked<MuxState<Value>?>(self.state)
        self.state = state
        self.stateTime = self.source.time.now
        self.source.release(former)
    }
}

extension ObservedValue: AppActivity.Follower {
    var repository: MuxRepository { self.source.repository }

    func note(_ event: AppActivity.Event) {
        let refetch = self.source.states.refetch
        self.showCurrent()
        guard !self.isCleared else { return }
        if event == .activation ? refetch.onActivation : refetch.onReconnection {
            self.mustFetchAfter = self.state.counts.fetches
        } else if refetch.whenStale {
            // Without a fetch for the event, only a failed request is repeated.
            self.repeatsFailure = self.request != nil
            self.mustRepeat = self.request == nil && self.problem != nil
        }
    }

    func refetchIfNeeded() { self.requestIfNeeded() }

    func refetch() -> Task<Void, Never>? {
        guard self.request == nil else { return nil }
        self.requestIfNeeded(isAdmitted: true)
        return self.request
    }
}

/// Whether two values have the same `Equatable` type and are equal; `false` for other types.
private func areEqual<Value>(_ a: Value?, _ b: Value?) -> Bool {
    guard let a, let b, let a = a as? any Equatable else { return false }
    func isEqual<Known: Equatable>(_ a: Known) -> Bool { b as? Known == a }
    return isEqual(a)
}

extension Error {
    /// The error; `nil` if the error, or a wrapped error, is the end of a session.
    var unlessEndOfSession: (any Error)? {
        let isEnd = self.firstDecision { error -> Bool? in
            switch error {
            case MuxError.sessionEnded, RunnerError.signedOut: true
            default: nil
            }
        }
        return isEnd == true ? nil : self
    }
}
