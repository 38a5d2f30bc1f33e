/// A point on a monotonic time line, in nanoseconds since its source was made.
///
/// Arithmetic saturates: a time to live of a thousand years is "never", not a trap.
@usableFromInline
package struct Moment: Sendable, Hashable, Comparable {
    @usableFromInline package var nanoseconds: Int64

    @inlinable
    package init(nanoseconds: Int64) { self.nanoseconds = nanoseconds }

    @usableFromInline package static let distantPast = Moment(nanoseconds: .min)
    package static let distantFuture = Moment(nanoseconds: .max)

    @inlinable
    package static func < (a: Moment, b: Moment) -> Bool { a.nanoseconds < b.nanoseconds }

    /// The moment `duration` later (earlier if it is negative), held at the ends of the time line.
    @usableFromInline
    package func advanced(by duration: Duration) -> Moment {
        let (sum, overflow) = self.nanoseconds.addingReportingOverflow(duration.saturatedNanoseconds)
        guard overflow else { return Moment(nanoseconds: sum) }
        return duration < .zero ? .distantPast : .distantFuture
    }

    /// How long after `earlier` this moment is; negative if it is before it.
    @usableFromInline
    package func duration(since earlier: Moment) -> Duration {
        let (difference, overflow) = self.nanoseconds.subtractingReportingOverflow(earlier.nanoseconds)
        guard overflow else { return .nanoseconds(difference) }
        return .nanoseconds(self > earlier ? Int64.max : Int64.min)
    }
}

/// Where the library takes in-process time from: any clock, made concrete once.
///
/// A clock's own instants cannot be compared through `any Clock<Duration>`; durations since the source was made can.
@usableFromInline
package struct TimeSource: Sendable {
    /// What a clock that was handed in says; `nil` for the system's continuous clock, which is asked directly.
    private let elapsed: (@Sendable () -> Duration)?
    private let origin: Int64
    private let pause: @Sendable (Duration) async throws -> Void

    package init(_ clock: some Clock<Duration>) {
        let origin = clock.now
        let elapsed: @Sendable () -> Duration = { origin.duration(to: clock.now) }
        self.origin = SystemClock.nanoseconds
        if clock is ContinuousClock {
            self.elapsed = nil
            self.pause = { try await SystemTimer.shared.sleep(for: $0) }
        } else {
            self.elapsed = elapsed
            self.pause = { try await clock.sleep(for: $0) }
        }
    }

    /// The present moment.
    @usableFromInline package var now: Moment {
        guard let elapsed else { return Moment(nanoseconds: SystemClock.nanoseconds &- self.origin) }
        return Moment(nanoseconds: elapsed().saturatedNanoseconds)
    }

    /// When the source was made, by the system's clock, if that is where it takes its time from.
    package var systemOrigin: Int64? { self.elapsed == nil ? self.origin : nil }

    /// Suspends for at least `duration`.
    ///
    /// - Throws: `CancellationError` if the task is cancelled first.
    package func sleep(for duration: Duration) async throws {
        try await self.pause(min(duration, .longest))
    }
}

extension Duration {
    /// About 146 years: half of what `Int64` nanoseconds can say, so that adding two never overflows.
    package static let longest = Duration.nanoseconds(Int64.max / 2)

    /// This duration in whole nanoseconds, held at ±``longest``.
    @usableFromInline package var saturatedNanoseconds: Int64 {
        let clamped = min(max(self, .zero - .longest), .longest)
        let (seconds, attoseconds) = clamped.components
        return seconds * 1_000_000_000 + attoseconds / 1_000_000_000
    }

    /// `a` and `b` together, each held at ±``longest``.
    @usableFromInline
    package static func sum(_ a: Duration, _ b: Duration) -> Duration {
        min(max(a, .zero - .longest), .longest) + min(max(b, .zero - .longest), .longest)
    }

    /// This duration in seconds, as a floating-point number.
    package var secondsValue: Double {
        let (seconds, attoseconds) = self.components
        return Double(seconds) + Double(attoseconds) / 1e18
    }

    /// The duration of `seconds`, held at ±``longest``; zero for not-a-number.
    package static func saturating(seconds: Double) -> Duration {
        guard !seconds.isNaN else { return .zero }
        let limit = Duration.longest.secondsValue
        guard abs(seconds) < limit else { return seconds < 0 ? .zero - .longest : .longest }
        return .nanoseconds(Int64(seconds * 1e9))
    }
}

/// What a hit reads the time from: the system's cheap clock, where the time source has no other.
@usableFromInline
package struct CoarseClock: Sendable {
    private let origin: Int64?

    /// More than a reading can be behind.
    static let lateness = Duration.milliseconds(50)

    package init(_ time: TimeSource) { self.origin = time.systemOrigin }

    /// The present moment or one a few milliseconds earlier; `nil` if the time source has to be asked.
    @usableFromInline
    package var now: Moment? { self.origin.map { Moment(nanoseconds: SystemClock.recentNanoseconds &- $0) } }
}
