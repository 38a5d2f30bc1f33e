import Synchronization

#if canImport(Darwin)
import Darwin
#elseif canImport(Musl)
import Musl
#else
import Glibc
import struct SwiftOverlayShims.timespec  // optimized builds need this import for the members of timespec (Swift 6.3.1)
#endif

/// The time of `ContinuousClock` in nanoseconds, including sleep of the machine, without the cost of generic
/// clocks.
enum SystemClock {
    #if canImport(Darwin)
    /// The current time.
    static var nanoseconds: Int64 { Self.read(CLOCK_MONOTONIC_RAW) }

    /// The current time, possibly a few milliseconds old.
    static var recentNanoseconds: Int64 { Self.read(CLOCK_MONOTONIC_RAW_APPROX) }

    private static func read(_ clock: clockid_t) -> Int64 {
        Int64(truncatingIfNeeded: clock_gettime_nsec_np(clock))
    }
    #else
    /// The current time.
    static var nanoseconds: Int64 { Self.read(CLOCK_BOOTTIME) }

    /// The current time, possibly a few milliseconds old.
    ///
    /// The kernel has a coarse monotonic clock, which stops during sleep of the machine, and a coarse wall
    /// clock. If the difference of the two clocks changes, the machine may have slept, and the time asleep is
    /// measured again with exact clocks.
    static var recentNanoseconds: Int64 {
        // Without sleep, the two readings may still belong to different ticks of the kernel, which are at
        // most 10 ms apart. A change of the difference by less than 20 ms is therefore ignored.
        let awake = Self.read(CLOCK_MONOTONIC_COARSE)
        let difference = Self.read(CLOCK_REALTIME_COARSE) &- awake
        guard abs(difference &- Self.knownDifference.load(ordering: .acquiring)) < 20_000_000 else {
            return Self.remeasuredTime(awake, difference)
        }
        return awake &+ Self.asleep.load(ordering: .relaxed)
    }

    /// The wall clock minus the monotonic clock, at the last measurement of the time asleep.
    private static let knownDifference = Atomic<Int64>(0)
    /// The time asleep since the machine started, at the last measurement.
    private static let asleep = Atomic<Int64>(0)

    /// Measures the time asleep again.
    ///
    /// - Parameters:
    ///   - awake: The coarse monotonic time.
    ///   - difference: The coarse wall clock minus the coarse monotonic clock.
    /// - Returns: The current time: `awake` plus the time asleep.
    @inline(never)
    private static func remeasuredTime(_ awake: Int64, _ difference: Int64) -> Int64 {
        let asleep = Self.read(CLOCK_BOOTTIME) &- Self.read(CLOCK_MONOTONIC)
        // The stored value never decreases: the two readings of a measurement are from different instants, so
        // a measurement may be too small.
        let longest = Self.asleep.max(asleep, ordering: .relaxed).newValue
        Self.knownDifference.store(difference, ordering: .releasing)
        return awake &+ longest
    }

    /// The time of `clock` in nanoseconds.
    private static func read(_ clock: clockid_t) -> Int64 {
        var time = timespec()
        unsafe clock_gettime(clock, &time)
        return Int64(time.tv_sec) &* 1_000_000_000 &+ Int64(time.tv_nsec)
    }
    #endif
}
