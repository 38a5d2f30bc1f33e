import Foundation
import MuxKit
import MuxNetwork
import MuxTesting

/// The download of a large file over connections that are closed early.
enum MediaActs {
    static var all: [Play] {
        [
            Play("Media, cut and resumed", self.cutAndResumed)
        ]
    }

    private static func cutAndResumed(_ act: inout Act, _ stage: Stage) async throws {
        let size: Int64 = 8_000_000
        let cuts: [Int64] = [1_500_000, 3_000_001, 6_123_456]
        let file = LoopbackServer.File(size: size)
        let starts = [0] + cuts
        let faults = Locked(Swift.zip(starts, cuts).map { LoopbackServer.File.Fault.cut(after: $1 - $0) })
        let server = LoopbackServer { request in
            file.response(to: request, fault: faults.withLock { $0.isEmpty ? nil : $0.removeFirst() })
        }
        let film = try server.start().appending(path: "film.mp4")
        let media = AsyncMedia(
            directory: stage.folder.appending(component: "media"),
            budget: nil,
            repository: stage.app.repository
        )

        let watcher = Task {
            var isMonotonic = true
            var last = 0.0
            for try await progress in media.progress(of: film) {
                let fraction = progress.fraction ?? 0
                isMonotonic = isMonotonic && fraction >= last
                last = fraction
                stage.console.show("film.mp4: \(Int(fraction * 100)) %", fraction: fraction)
            }
            return isMonotonic && last == 1
        }
        let files = try await withThrowingTaskGroup { group in
            for _ in 0..<20 { group.addTask { try await media.request(url: film) } }
            return try await group.reduce(into: Set<URL>()) { $0.insert($1) }
        }

        let local = try Data(contentsOf: files.first ?? film)
        act.elsewhere = media.statistics
        act.expect("20 callers get the same file with the correct bytes", files.count == 1 && local == file.content)
        act.expect("after three cuts the download resumed at the last byte: \(file.starts)", file.starts == starts)
        act.expect("no byte was sent twice", file.bytesSent == size)
        act.expect("an observer saw the progress rise to the end", try await watcher.value)
        await server.stop()
        act.expect("offline, the file is available", try await media.request(url: film) == files.first)
    }
}
