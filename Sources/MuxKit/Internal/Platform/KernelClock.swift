#if canImport(Darwin)
import Darwin
#elseif canImport(Musl)
import Musl
#else
import Glibc
import struct SwiftOverlayShims.timespec  // optimized builds need this import for the members of timespec (Swift 6.3.1)
#endif

enum KernelClock {
    /// The time of `clock` in nanoseconds.
    static func read(_ clock: clockid_t) -> Int64 {
        var time = timespec()
        unsafe clock_gettime(clock, &time)
        return Int64(time.tv_sec) &* 1_000_000_000 &+ Int64(time.tv_nsec)
    }
}
