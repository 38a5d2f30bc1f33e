import Synchronization

#if canImport(Darwin)
import Darwin
#elseif canImport(Musl)
import Musl
#else
import Glibc
#endif

/// The time line of `ContinuousClock`, asked for without what generic clocks cost: nanoseconds that go on while the machine
/// sleeps.
enum SystemClock {
    #if canImport(Darwin)
    /// The present moment.
    static var nanoseconds: Int64 { Self.read(CLOCK_MONOTONIC_RAW) }

    /// The present moment, or one a few milliseconds earlier.
    static var recentNanoseconds: Int64 { Self.read(CLOCK_MONOTONIC_RAW_APPROX) }

    private static func read(_ clock: clockid_t) -> Int64 {
        Int64(truncatingIfNeeded: clock_gettime_nsec_np(clock))
    }
    #else
    /// The present moment.
    static var nanoseconds: Int64 { KernelClock.read(CLOCK_BOOTTIME) }

    /// The present moment, or one a few milliseconds earlier.
    ///
    /// The kernel has a cheap clock that stands still while the machine sleeps, and a cheap time of day. When the two have
    /// moved against each other, the machine may have slept, and the exact clock is asked by how much.
    static var recentNanoseconds: Int64 {
        let awake = KernelClock.read(CLOCK_MONOTONIC_COARSE)
        let difference = KernelClock.read(CLOCK_REALTIME_COARSE) &- awake
        guard abs(difference &- Self.knownDifference.load(ordering: .relaxed)) < 20_000_000 else {
            return Self.adjusted(awake, difference)
        }
        return awake &+ Self.asleep.load(ordering: .relaxed)
    }

    /// What the time of day was ahead of the clock that sleeps, when the time asleep was last measured.
    private static let knownDifference = Atomic<Int64>(0)
    /// How long the machine has slept since it started.
    private static let asleep = Atomic<Int64>(0)

    @inline(never)
    private static func adjusted(_ awake: Int64, _ difference: Int64) -> Int64 {
        let asleep = KernelClock.read(CLOCK_BOOTTIME) &- KernelClock.read(CLOCK_MONOTONIC)
        // Never back: the two readings are not of one instant.
        let former = Self.asleep.load(ordering: .relaxed)
        if asleep > former { Self.asleep.store(asleep, ordering: .relaxed) }
        Self.knownDifference.store(difference, ordering: .relaxed)
        return awake &+ max(asleep, former)
    }
    #endif
}
