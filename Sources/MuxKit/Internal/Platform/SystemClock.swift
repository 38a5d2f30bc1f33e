import Synchronization

#if canImport(Darwin)
import Darwin
#elseif canImport(Musl)
import Musl
#else
import Glibc
#endif

/// The time of `ContinuousClock` in nanoseconds, which includes sleep, without the cost of generic clocks.
enum SystemClock {
    #if canImport(Darwin)
    /// The current time.
    static var nanoseconds: Int64 { Self.read(CLOCK_MONOTONIC_RAW) }

    /// The current time, or one a few milliseconds earlier.
    static var recentNanoseconds: Int64 { Self.read(CLOCK_MONOTONIC_RAW_APPROX) }

    private static func read(_ clock: clockid_t) -> Int64 {
        Int64(truncatingIfNeeded: clock_gettime_nsec_np(clock))
    }
    #else
    /// The current time.
    static var nanoseconds: Int64 { KernelClock.read(CLOCK_BOOTTIME) }

    /// The current time, or one a few milliseconds earlier.
    ///
    /// The kernel has a coarse monotonic clock, which stops while the machine sleeps, and a coarse time of day. If
    /// their difference changes, the machine may have slept, and exact clocks give the time asleep.
    static var recentNanoseconds: Int64 {
        let awake = KernelClock.read(CLOCK_MONOTONIC_COARSE)
        let difference = KernelClock.read(CLOCK_REALTIME_COARSE) &- awake
        guard abs(difference &- Self.knownDifference.load(ordering: .acquiring)) < 20_000_000 else {
            return Self.adjusted(awake, difference)
        }
        return awake &+ Self.asleep.load(ordering: .relaxed)
    }

    /// The time of day minus the monotonic clock, when the time asleep was last measured.
    private static let knownDifference = Atomic<Int64>(0)
    /// The time asleep since the machine started.
    private static let asleep = Atomic<Int64>(0)

    @inline(never)
    private static func adjusted(_ awake: Int64, _ difference: Int64) -> Int64 {
        let asleep = KernelClock.read(CLOCK_BOOTTIME) &- KernelClock.read(CLOCK_MONOTONIC)
        // Never decreased by a measurement: its two readings are not of one instant.
        let former = Self.asleep.load(ordering: .relaxed)
        if asleep > former { Self.asleep.store(asleep, ordering: .relaxed) }
        Self.knownDifference.store(difference, ordering: .releasing)
        return awake &+ max(asleep, former)
    }
    #endif
}
