import Foundation
import MuxKit
import MuxOutbox

/// Adding changes to an outbox, and opening an outbox.
enum OutboxGroup {
    private struct Change: Codable, Sendable {
        var post: Int
        var text: String
    }

    /// The error of a request without a network.
    private struct Offline: ConnectivityError {}

    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        var contest = Contest(rounds: effort.rounds(5))
        contest.add { try await self.appendAndSync(300) }
        contest.add { try await self.add(300) }
        contest.add { try await self.rewriteFile(300) }
        contest.add { try await self.decode(10_000) }
        contest.add { try await self.open(10_000) }
        let outcome = try await contest.play()
        return [
            Row(
                group,
                "add of a change of 200 bytes",
                unit: .nanoseconds,
                figure: outcome.median(1),
                limit: Row.Reference(
                    name: "an append, synchronized, outside the thread pool",
                    value: outcome.median(0),
                    ratio: outcome.ratio(of: 1, to: 0)
                ),
                instead: Row.Reference(
                    name: "rewrite a file of all changes",
                    value: outcome.median(2),
                    ratio: outcome.ratio(of: 2, to: 1)
                ),
                goals: [.timesLimit(1.3)]
            ),
            Row(
                group,
                "open with 10,000 pending changes",
                unit: .nanoseconds,
                figure: outcome.median(4),
                limit: Row.Reference(
                    name: "decode 10,000 lines of JSON",
                    value: outcome.median(3),
                    ratio: outcome.ratio(of: 4, to: 3)
                ),
                goals: [.atMost(50_000_000)]
            ),
        ]
    }

    private static func change(_ number: Int) -> Change {
        Change(post: number, text: String(repeating: "x", count: 170))
    }

    /// An outbox that sends nothing.
    private static func outbox(_ folder: URL) -> MuxOutbox<Change> {
        MuxOutbox(
            "Changes",
            repository: MuxRepository(store: MemoryStore()),
            directory: folder,
            policy: MuxOutboxPolicy(maximumBytes: 100_000_000, retry: .fixed(.seconds(3_600), maxAttempts: .max)),
            wakingOn: []
        ) { _, _ in throw Offline() }
    }

    private static func appendAndSync(_ count: Int) async throws -> Double {
        try await withFolder { folder in
            let system = POSIXFileSystem()
            let file = try system.openFile(folder.appending(path: "changes").path, for: .append)
            return try await Contest.nanoseconds {
                for number in 0..<count {
                    let line = [UInt8](try JSONEncoder().encode(self.change(number))) + [0x0a]
                    // A task must not block a thread of the pool.
                    try await BlockingWork.run {
                        Result {
                            try system.appendAll(line, to: file)
                            try system.synchronize(file)
                        }
                    }.get()
                }
            } / Double(count)
        }
    }

    private static func add(_ count: Int) async throws -> Double {
        try await withFolder { folder in
            let outbox = self.outbox(folder)
            // The only sender fails, and then waits for an hour.
            try await outbox.add(self.change(0))
            while outbox.waitCount == nil { await Task.yield() }
            return try await Contest.nanoseconds {
                for number in 1...count { try await outbox.add(self.change(number)) }
            } / Double(count)
        }
    }

    /// A typical outbox: an array in a file, replaced with each change.
    private static func rewriteFile(_ count: Int) async throws -> Double {
        try await withFolder { folder in
            var changes: [Change] = []
            let file = DurableFile("changes.json", in: folder.path, fileSystem: POSIXFileSystem())
            return try await Contest.nanoseconds {
                for number in 0..<count {
                    changes.append(self.change(number))
                    try file.write(try JSONEncoder().encode(changes))
                }
            } / Double(count)
        }
    }

    private static func decode(_ count: Int) async throws -> Double {
        let lines = try (0..<count).map { try JSONEncoder().encode(self.change($0)) }
        return try await Contest.nanoseconds {
            for line in lines { _ = try JSONDecoder().decode(Change.self, from: line) }
        }
    }

    private static func open(_ count: Int) async throws -> Double {
        try await withFolder { folder in
            let log = OutboxLog(
                StoreFolder(folder.appending(component: OwnedName(.outbox, ["Changes"]).fileName)),
                policy: MuxOutboxPolicy(maximumAge: .longest, maximumCount: count, maximumBytes: .max),
                fileSystem: POSIXFileSystem(),
                problems: StorageProblems(),
                wallTime: { Date() },
                time: TimeSource(ContinuousClock())
            )
            try log.update { log throws(MuxStoreError) in
                for number in 0..<count {
                    let payload = (try? JSONEncoder().encode(self.change(number))) ?? Data()
                    try? log.append(payload, id: UUID().uuidString, lane: "\(number % 100)")
                }
            }
            let outbox = self.outbox(folder)
            let time = await Contest.nanoseconds { outbox.start() }
            guard await outbox.pending.count == count else { throw BenchmarkError.wrongResult("changes are missing") }
            return time
        }
    }
}
