#if canImport(Darwin)
import Darwin
#elseif canImport(Musl)
import Musl
#else
import Glibc
#endif

/// The cheapest monotonic clock of the system, with a resolution of some milliseconds.
enum CoarseClock {
    /// Nanoseconds since an arbitrary point.
    static var now: Int64 {
        #if canImport(Darwin)
        Int64(clock_gettime_nsec_np(CLOCK_MONOTONIC_RAW_APPROX))
        #else
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC_COARSE, &time)
        return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
        #endif
    }
}
