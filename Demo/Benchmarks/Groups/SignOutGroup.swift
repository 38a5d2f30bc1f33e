import Foundation
import MuxKit

/// Sign-out with many entries on disk.
enum SignOutGroup {
    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        var contest = Contest(rounds: effort.rounds(2))
        contest.add { try await self.renameAndSync() }
        contest.add { try await self.signOut(50_000) }
        let outcome = try await contest.play()
        // Making 50,000 files would take longer than all other groups; the result is extrapolated from fewer.
        let files = effort.isLong ? 50_000 : 200
        let removal = try await self.removeFiles(files) * 50_000 / Double(files)
        let figure = outcome.median(1)
        return [
            Row(
                group,
                "clearAll of 50,000 entries",
                unit: .nanoseconds,
                figure: figure,
                limit: Row.Reference(
                    name: "a rename, the epoch's file, synced",
                    value: outcome.median(0),
                    ratio: outcome.ratio(of: 1, to: 0)
                ),
                instead: Row.Reference(name: "remove a file per key", value: removal, ratio: removal / figure),
                goals: [.timesLimit(3)]
            )
        ]
    }

    /// The cost according to the goal: one rename, and a durable write of the new epoch.
    private static func renameAndSync() async throws -> Double {
        try await withFolder { folder in
            let system = POSIXFileSystem()
            let path = folder.path
            _ = try system.makeFolder(path + "/journal")
            try Data(count: 10_000_000).write(to: folder.appending(path: "journal/entries"))
            let file = try system.openFile(path + "/journal/entries", for: .append)
            try system.synchronize(file)
            return try await Contest.nanoseconds {
                try DurableFile("epoch", in: path, fileSystem: system).write(Data("1".utf8))
                try system.move(path + "/journal", to: path + "/trash")
                try system.synchronizeFolder(path)
            }
        }
    }

    static func signOut(_ count: Int) async throws -> Double {
        try await withFolder { folder in
            try await LoadGroup.fill(folder, count)
            let repository = MuxRepository(directory: folder, byteLimit: nil)
            return try await Contest.nanoseconds {
                let report = await repository.clearAll()
                guard report.isComplete else { throw BenchmarkError.wrongResult("\(report.failures)") }
            }
        }
    }

    private static func removeFiles(_ count: Int) async throws -> Double {
        try await withFolder { folder in
            let files = try FilePerKey(folder.appending(component: "files"))
            let content = Data("{\"id\":1,\"name\":\"Somebody\"}".utf8)
            for key in 0..<count { try content.write(to: files.url(key)) }
            return try await Contest.nanoseconds { try FileManager.default.removeItem(at: files.folder) }
        }
    }
}
