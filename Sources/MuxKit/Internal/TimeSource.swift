import Foundation

/// A point on a monotonic time line, in nanoseconds since the origin of its source.
///
/// Arithmetic saturates: a time to live of a thousand years means "never", and does not trap.
@usableFromInline
package struct Moment: Sendable, Hashable, Comparable {
    @usableFromInline package var nanoseconds: Int64

    @inlinable
    package init(nanoseconds: Int64) { self.nanoseconds = nanoseconds }

    @usableFromInline package static let distantPast = Moment(nanoseconds: .min)
    package static let distantFuture = Moment(nanoseconds: .max)

    @inlinable
    package static func < (a: Moment, b: Moment) -> Bool { a.nanoseconds < b.nanoseconds }

    /// The moment `duration` later (earlier for a negative `duration`), clamped to the ends of the time line.
    ///
    /// `duration` counts as at most ±`Duration.longest`.
    @usableFromInline
    package func advanced(by duration: Duration) -> Moment {
        let (sum, overflow) = self.nanoseconds.addingReportingOverflow(duration.saturatedNanoseconds)
        guard overflow else { return Moment(nanoseconds: sum) }
        return duration < .zero ? .distantPast : .distantFuture
    }

    /// The time from `earlier` to this moment; negative if this moment is before `earlier`.
    @usableFromInline
    package func duration(since earlier: Moment) -> Duration {
        let (difference, overflow) = self.nanoseconds.subtractingReportingOverflow(earlier.nanoseconds)
        guard overflow else { return .nanoseconds(difference) }
        return .nanoseconds(self > earlier ? Int64.max : Int64.min)
    }
}

/// A source of monotonic time: wraps a clock of any type.
///
/// Instants of `any Clock<Duration>` cannot be compared; a ``Moment`` measures the duration since the
/// source's initialisation, and can be compared.
@usableFromInline
package struct TimeSource: Sendable {
    /// The source's origin on the system's clock, which is read directly; `nil` for an injected clock.
    fileprivate let systemOrigin: Int64?
    /// The time since the origin.
    private let elapsed: @Sendable () -> Duration
    private let pause: @Sendable (Duration) async throws -> Void

    package init(_ clock: some Clock<Duration>) {
        let origin = clock.now
        self.elapsed = { origin.duration(to: clock.now) }
        if clock is ContinuousClock {
            self.systemOrigin = SystemClock.nanoseconds
            self.pause = { try await SystemTimer.shared.sleep(for: $0) }
        } else {
            self.systemOrigin = nil
            self.pause = { try await clock.sleep(for: $0) }
        }
    }

    /// The current time.
    @usableFromInline package var now: Moment {
        if let systemOrigin { return Moment(nanoseconds: SystemClock.nanoseconds &- systemOrigin) }
        return Moment(nanoseconds: self.elapsed().saturatedNanoseconds)
    }

    /// Suspends for at least `duration`, or at least `Duration.longest` if `duration` is longer.
    ///
    /// - Throws: `CancellationError` if the task is cancelled first; any other error of an injected clock.
    package func sleep(for duration: Duration) async throws {
        try await self.pause(min(duration, .longest))
    }

    /// Performs `action` after at least `duration`, and again after each duration that `action` returns,
    /// until `nil` or a cancellation.
    ///
    /// Only an injected clock needs a task for the action; see ``SystemTimer/schedule(after:_:)`` for the
    /// limits of an action.
    package func schedule(
        name: String,
        after duration: Duration,
        _ spawn: TaskLauncher = TaskLauncher(),
        _ action: @escaping @Sendable () -> Duration?
    ) -> ScheduledAction {
        guard self.systemOrigin == nil else { return .entry(SystemTimer.shared.schedule(after: duration, action)) }
        let first = self.now.advanced(by: duration)
        return .task(
            spawn(name: name) {
                var next: Duration? = max(first.duration(since: self.now), .zero)
                while let pause = next {
                    guard (try? await self.sleep(for: pause)) != nil else { return }
                    next = action()
                }
            }
        )
    }
}

/// An action of ``TimeSource/schedule(name:after:_:_:)``.
package enum ScheduledAction: Sendable {
    /// The number of an action of the system's timer.
    case entry(UInt64)
    /// The task that waits for an injected clock.
    case task(Task<Void, Never>)

    /// Prevents further runs of the action; an action that is due may still run.
    package func cancel() {
        switch self {
        case .entry(let id): SystemTimer.shared.cancel(id)
        case .task(let task): task.cancel()
        }
    }
}

extension Duration {
    /// About 146 years: half of the greatest `Int64` in nanoseconds, so that a sum of two such durations does
    /// not overflow.
    package static let longest = Duration.nanoseconds(Int64.max / 2)

    /// This duration, clamped to ±``longest``.
    private var clamped: Duration { min(max(self, .zero - .longest), .longest) }

    /// This duration in whole nanoseconds, clamped to ±``longest``.
    @usableFromInline package var saturatedNanoseconds: Int64 {
        // One division, instead of the two divisions of ``components``.
        Int64(truncatingIfNeeded: self.clamped.attoseconds / 1_000_000_000)
    }

    /// The sum of `a` and `b`, each clamped to ±``longest``.
    @usableFromInline
    package static func sum(_ a: Duration, _ b: Duration) -> Duration {
        a.clamped + b.clamped
    }

    /// This duration in seconds, as a floating-point number, clamped to ±``longest``.
    package var secondsValue: Double {
        let (seconds, attoseconds) = self.clamped.components
        return Double(seconds) + Double(attoseconds) / 1e18
    }

    /// The duration of `seconds`, clamped to ±``longest``; zero for not-a-number.
    package static func saturating(seconds: Double) -> Duration {
        guard !seconds.isNaN else { return .zero }
        let limit = Duration.longest.secondsValue
        guard abs(seconds) < limit else { return seconds < 0 ? .zero - .longest : .longest }
        return .nanoseconds(Int64(seconds * 1e9))
    }
}

extension Date {
    /// The milliseconds since 1970, from 0 to 2⁵³.
    var milliseconds: UInt64 {
        let milliseconds = self.timeIntervalSince1970 * 1_000
        return milliseconds > 0 ? UInt64(min(milliseconds, 0x1p53)) : 0
    }
}

/// A cheap clock for cache hits: the system's coarse clock, unless the time source has an injected clock.
@usableFromInline
package struct CoarseClock: Sendable {
    private let origin: Int64?

    /// The assumed maximum age of a reading.
    @inlinable static var latenessNanoseconds: Int64 { 50_000_000 }

    package init(_ time: TimeSource) { self.origin = time.systemOrigin }

    /// The current time, possibly a few milliseconds old; `nil` if the time source must be read.
    @usableFromInline
    package var now: Moment? { self.origin.map { Moment(nanoseconds: SystemClock.recentNanoseconds &- $0) } }
}
