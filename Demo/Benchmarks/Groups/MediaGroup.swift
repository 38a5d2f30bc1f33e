import Foundation
import MuxKit
import MuxNetwork
import MuxTesting
import Synchronization

/// A large file over loopback, from nginx if installed, otherwise from the test server of `MuxTesting`.
enum MediaGroup {
    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        let size = effort.isLong ? 1_000_000_000 : 200_000_000
        return try await withFolder { folder in
            try await withServer(of: size, in: folder) { url, server in
                [
                    try await self.throughput(group, size, folder, url, server, effort),
                    try await self.residentGrowth(group, size, folder, url, server),
                ]
            }
        }
    }

    private static func media(_ folder: URL) -> AsyncMedia {
        AsyncMedia(
            directory: folder.appending(path: "media"),
            durability: .relaxed,
            repository: MuxRepository(store: MemoryStore())
        )
    }

    /// Compared with `curl -o`, which does not wait for the disk either.
    private static func throughput(
        _ group: String,
        _ size: Int,
        _ folder: URL,
        _ url: URL,
        _ server: String,
        _ effort: Effort
    ) async throws -> Row {
        let media = self.media(folder)
        let curl = ExternalProgram("curl")
        var contest = Contest(rounds: effort.rounds(3))
        contest.add {
            guard let curl else { return .nan }
            let target = folder.appending(path: "curl.bin").path
            return try await Contest.nanoseconds { try curl.run(["-s", "-o", target, url.absoluteString]) }
        }
        contest.add {
            try await media.clear(url: url)
            return try await Contest.nanoseconds { consume(try await media.request(url: url)) }
        }
        return Row(
            group,
            "\(size / 1_000_000) MB from \(server)",
            try await contest.play(),
            figure: 1,
            limit: curl == nil ? nil : ("curl -o", 0),
            goals: curl == nil ? [] : [.timesLimit(1.1)]
        )
    }

    /// The peak of resident memory during the download, minus the value before it.
    private static func residentGrowth(
        _ group: String,
        _ size: Int,
        _ folder: URL,
        _ url: URL,
        _ server: String
    ) async throws -> Row {
        let media = self.media(folder)
        try await media.clear(url: url)
        Allocations.trim()
        let before = Allocations.residentBytes
        let peak = Peak(before)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { for try await _ in media.progress(of: url) { peak.look() } }
            consume(try await media.request(url: url))
            group.cancelAll()
        }
        let growth = before.flatMap { before in peak.bytes.map { Double($0 - before) } }
        return Row(
            group,
            "resident growth, \(size / 1_000_000) MB from \(server)",
            unit: .bytes,
            figure: growth,
            goals: [.atMost(16e6)]
        )
    }

    /// The maximum of the samples of resident memory.
    private final class Peak: Sendable {
        private let most: Mutex<Int?>

        init(_ bytes: Int?) { self.most = Mutex(bytes) }

        var bytes: Int? { self.most.withLock { $0 } }

        func look() {
            let now = Allocations.residentBytes
            self.most.withLock { most in most = most.flatMap { most in now.map { max(most, $0) } } }
        }
    }

    /// Calls `body` with the URL of a file of `size` bytes and the name of its server.
    private static func withServer<Result>(
        of size: Int,
        in folder: URL,
        _ body: (URL, String) async throws -> Result
    ) async throws -> Result {
        if let nginx = try ExternalProgram("nginx").flatMap({ try Nginx($0, folder) }) {
            defer { nginx.stop() }
            let url = try nginx.add("film.mp4", size)
            if try await nginx.isUp() { return try await body(url, "nginx") }
        }
        let file = LoopbackServer.File(size: Int64(size))
        let server = LoopbackServer { file.response(to: $0) }
        let url = try server.start().appending(path: "film.mp4")
        do {
            let result = try await body(url, "a server in this process")
            await server.stop()
            return result
        } catch {
            await server.stop()
            throw error
        }
    }
}
