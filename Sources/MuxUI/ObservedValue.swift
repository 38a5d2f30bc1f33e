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
/// The object shows the entry in memory at once. While ``follow()`` runs, the object shows every change; all
/// properties change together, and views update once per visible change. An initialiser of a view may make
/// objects that are never used: an object without ``follow()`` starts and registers nothing.
///
/// **After a failure** the value stays, and ``problem`` is the error. The end of a session is no problem: the
/// value is `nil`.
///
/// **Lifetime.** The object retains the multiplexer. Nothing retains the object beyond ``follow()`` and
/// ``reload()``. Replaced values are released outside the main actor.
@MainActor
@Observable
public final class ObservedValue<Value: Sendable> {
    /// The part of the state that a view shows.
    public enum Phase: Sendable {
        /// No value, and no visible fetch.
        case empty
        /// No value yet; a fetch is running.
        case loading
        /// A value, fresh or stale.
        case value(Value)
        /// No value, because the last fetch failed.
        case failure(any Error)
    }

    @ObservationIgnored private let source: ObservedSource<Value>
    @ObservationIgnored private let loadingDelay: Duration
    /// The last state, even without a visible change.
    @ObservationIgnored private var state: MuxState<Value>
    /// The time of ``state``.
    @ObservationIgnored private var stateTime: Moment
    @ObservationIgnored private var showsLoading = false
    /// The number of running calls of ``follow()``.
    @ObservationIgnored private var followers = 0
    /// The watcher of the states, the request for the value, and the loading delay.
    @ObservationIgnored private var watch: Task<Void, Never>?
    @ObservationIgnored private var request: Task<Void, Never>?
    @ObservationIgnored private var delay: Task<Void, Never>?
    /// The number of visible changes; a view that reads any property observes this number.
    private var changes: UInt64 = 0

    init(_ source: ObservedSource<Value>, loadingDelay: Duration) {
        self.source = source
        self.loadingDelay = loadingDelay
        self.state = MuxState(entry: source.cachedEntry())
        self.stateTime = source.time.now
    }

    /// The state, for a property that a view reads.
    private var shown: MuxState<Value> {
        _ = self.changes
        return self.state
    }

    // MARK: - Reading

    /// The value, fresh or stale; `nil` before the first value, and after a clear or a sign-out.
    public var value: Value? { self.shown.entry?.value }

    /// The entry, with the age at the last change of the state; ``age`` is the current age.
    public var entry: MuxEntry<Value>? { self.shown.entry }

    /// The time since the fetch of the value; `nil` without a value.
    ///
    /// Views are not updated while the age grows.
    public var age: Duration? {
        self.shown.entry.map { .sum($0.age, self.source.time.now.duration(since: self.stateTime)) }
    }

    /// Whether the value is stale; `false` without a value.
    public var isStale: Bool { self.shown.isStale }

    /// Whether a fetch is running, and has been running for the loading delay; `false` without ``follow()``.
    public var isLoading: Bool {
        _ = self.changes
        return self.showsLoading
    }

    /// The error of the last fetch, including renewals in the background; `nil` after a value.
    ///
    /// The end of a session is no problem.
    public var problem: (any Error)? { self.shown.failure.flatMap { $0.isEndOfSession ? nil : $0 } }

    /// The value, or else the problem, or else whether a fetch is running.
    public var phase: Phase {
        if let value = self.value { return .value(value) }
        if let problem = self.problem { return .failure(problem) }
        return self.isLoading ? .loading : .empty
    }

    // MARK: - Following

    /// Requests the value, and follows its changes until the task is cancelled.
    ///
    /// A value in memory or on disk is shown at once, even if stale, and a stale value is renewed. A value
    /// that becomes stale meanwhile is renewed, too. Concurrent calls share one watcher, so several views may
    /// follow one object. After the last call has returned, nothing is registered.
    public func follow() async {
        self.followers += 1
        if self.followers == 1 { self.startFollowing() }
        let (never, continuation) = AsyncStream<Never>.makeStream()
        for await _ in never {}
        continuation.finish()
        self.followers -= 1
        if self.followers == 0 { self.stopFollowing() }
    }

    /// Fetches a new value, as for a pull to refresh; the fetch continues if the task is cancelled.
    ///
    /// A failure becomes ``problem``.
    public func reload() async {
        do {
            try await self.source.reload()
            self.reloaded(nil)
        } catch is CancellationError {
            // The task of the gesture was cancelled; the fetch continues.
        } catch {
            self.reloaded(error)
        }
    }

    private func startFollowing() {
        self.watch = self.source.repository.spawn(name: "mux.follow") {
            @MainActor [weak self, states = self.source.states] in
            for await state in states {
                guard let self else { return }
                self.show(state)
            }
        }
        self.requestValue()
    }

    private func stopFollowing() {
        for task in [self.watch, self.request, self.delay] { task?.cancel() }
        (self.watch, self.request, self.delay) = (nil, nil, nil)
        if self.showsLoading {
            self.showsLoading = false
            self.changes &+= 1
        }
    }

    /// Requests the value; a failure of the fetch is part of the followed state.
    private func requestValue() {
        self.request?.cancel()
        self.request = self.source.repository.spawn(name: "mux.screen") { [source] in await source.request() }
    }

    // MARK: - Changes

    private func show(_ state: MuxState<Value>) {
        guard self.followers > 0 else { return }
        let isSameEntry = self.state.entry?.revision == state.entry?.revision
        let becomesStale = isSameEntry && !self.state.isStale && state.isStale
        var isVisible = self.update(loading: state.isLoading)
        isVisible = isVisible || self.state.isStale != state.isStale || self.state.failureNumber != state.failureNumber
        isVisible = isVisible || !isSameEntry && !areEqual(self.state.entry?.value, state.entry?.value)
        self.replace(by: state)
        if isVisible { self.changes &+= 1 }
        // A new value that is stale at once is not fetched again.
        if becomesStale, !state.isLoading { self.requestValue() }
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
                self.changes &+= 1
            }
        }
        return former != self.showsLoading
    }

    /// Shows the outcome of a reload, unless the state is followed and shows the outcome anyway.
    private func reloaded(_ error: (any Error)?) {
        guard self.followers == 0 else { return }
        self.replace(by: MuxState(entry: self.source.cachedEntry(), failure: error))
        self.changes &+= 1
    }

    private func replace(by state: MuxState<Value>) {
        // The `deinit` of a large value takes long: it runs outside the main actor.
        let former = Locked<MuxState<Value>?>(self.state)
        self.state = state
        self.stateTime = self.source.time.now
        self.source.release(former)
    }
}

/// Whether two values have the same `Equatable` type and are equal; `false` for other types.
private func areEqual<Value>(_ a: Value?, _ b: Value?) -> Bool {
    guard let a, let b, let a = a as? any Equatable else { return false }
    func isEqual<Known: Equatable>(_ a: Known) -> Bool { b as? Known == a }
    return isEqual(a)
}

extension Error {
    /// Whether the error, or an error that it wraps, is the end of a session.
    fileprivate var isEndOfSession: Bool {
        self.firstDecision { error -> Bool? in
            switch error {
            case MuxError.sessionEnded, RunnerError.signedOut: true
            default: nil
            }
        } ?? false
    }
}
