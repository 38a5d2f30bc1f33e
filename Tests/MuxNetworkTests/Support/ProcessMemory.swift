#if os(macOS) || os(Linux)
import Foundation

/// The memory of this process.
enum ProcessMemory {
    /// The number of resident bytes, or on macOS the highest number since the start of the process.
    static var resident: Int64 {
        #if os(macOS)
        var usage = rusage()
        guard getrusage(RUSAGE_SELF, &usage) == 0 else { return 0 }
        return Int64(usage.ru_maxrss)
        #else
        guard let status = try? String(contentsOfFile: "/proc/self/status", encoding: .utf8) else { return 0 }
        let line = status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") }
        return (line?.split(separator: " ").dropFirst().first.flatMap { Int64($0) } ?? 0) * 1024
        #endif
    }
}
#endif
