package import Foundation
import MuxKit
package import Testing

/// Resources of a process that runs only one test: an exit test.
package enum Leftovers {
    /// The counted resources, by their names.
    private static func counts(in folder: URL?) -> [String: Int] {
        func entryCount(_ path: String) -> Int {
            (try? FileManager.default.contentsOfDirectory(atPath: path).count) ?? 0
        }
        let files = folder.flatMap { FileManager.default.enumerator(atPath: $0.path)?.allObjects as? [String] } ?? []
        let timers = SystemTimer.shared.occupancy
        return [
            "descriptors": self.descriptors.count,
            "threads": entryCount("/proc/self/task"),
            "timers": timers.sleepers + timers.places,
            "recorded waits": WaitForGraph.waitCount,
            "temporary files": files.count { $0.contains(".tmp") || $0.contains("removed-") },
        ]
    }

    /// The targets of open descriptors except timers: Dispatch opens a timer for each clock and never closes
    /// the timer.
    private static var descriptors: [String] {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: "/dev/fd")) ?? []
        return names.map { (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\($0)")) ?? $0 }
            .filter { !$0.contains("timerfd") }
    }

    /// Performs operations, and expects that they leave no resource behind.
    ///
    /// - Parameters:
    ///   - count: The number of operations; 100 operations run before the first count, because the system's
    ///     libraries open lasting resources.
    ///   - folder: The folder of the operations' files.
    ///   - location: The test.
    ///   - perform: Performs the given number of operations; releases all objects.
    /// - Throws: The error of an operation.
    package static func expectNone(
        after count: Int = 10_000,
        in folder: URL? = nil,
        _ location: SourceLocation = #_sourceLocation,
        perform: (Int) async throws -> Void
    ) async throws {
        let count = repetitions(count)
        try await perform(100)
        let before = self.counts(in: folder)
        try await EndsAtRest.check(location) { try await perform(count) }
        let leftovers = await settled {
            // Thread pools of the system add and end threads: a growth by ten is not a leak.
            self.counts(in: folder).merging(before) { $0 - $1 }.filter { $0.value > ($0.key == "threads" ? 10 : 0) }
        } when: {
            $0.isEmpty
        }
        let what: Comment = "left by \(count) operations: \(leftovers), \(self.descriptors)"
        #expect(leftovers == [:], what, sourceLocation: location)
    }
}
