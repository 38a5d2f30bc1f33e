import Foundation
import MuxKit
import MuxNetwork
import MuxTesting

/// A large file on a slow server whose connection can be closed, and the app's download of it.
final class Film: Sendable {
    /// The state on the page.
    struct State: Codable, Sendable {
        var received: Int64 = 0
        var total: Int64
        /// The offsets at which connections began.
        var starts: [Int64] = []
        /// The bytes sent by the server.
        var sent: Int64 = 0
        var isLoading = false
        /// Whether the library has the file.
        var isComplete = false
    }

    /// The result of a cut.
    enum Cut: Sendable {
        case noConnection
        /// The download ended without another connection.
        case ended
        case resumed(at: Int64)
    }

    /// The server's delay for each piece of 64 KiB.
    private static let pace = Duration.milliseconds(40)

    let path = "/film.mp4"
    private let file = LoopbackServer.File(size: 8_000_000)
    private let changes: Tally
    private let cuts = Locked(0)
    private let shown: Locked<State>
    /// The server's counts at the start of the current download.
    private let before = Locked<(starts: Int, sent: Int64)>((0, 0))

    init(changes: Tally) {
        self.changes = changes
        self.shown = Locked(State(total: 8_000_000))
    }

    /// The state.
    ///
    /// The caller sets `isComplete`, from the library.
    var state: State {
        let before = self.before.withLock { $0 }
        var state = self.shown.withLock { $0 }
        state.starts = Array(self.file.starts.dropFirst(before.starts))
        state.sent = self.file.bytesSent - before.sent
        return state
    }

    /// The server's response: piece by piece, until the connection is cut.
    func response(to request: LoopbackServer.Request) -> LoopbackServer.Response {
        let whole = self.file.response(to: request)
        let cuts = self.cuts.withLock { $0 }
        return LoopbackServer.Response(
            steps: whole.steps.flatMap { step -> [LoopbackServer.Response.Step] in
                guard case .sendPieces(let next) = step else { return [step] }
                return [
                    .sendAwaited {
                        try? await Task.sleep(for: Self.pace)
                        return self.cuts.withLock { $0 } == cuts ? next() : nil
                    },
                    // After a cut the body is shorter than its Content-Length.
                    .close,
                ]
            }
        )
    }

    /// Cuts the connection of a running download, and waits until the download resumes or ends.
    func cut() async -> Cut {
        let starts = self.file.starts.count
        let isReceiving = self.shown.withLock { $0.isLoading && $0.received > 0 && $0.received < $0.total }
        guard isReceiving else { return .noConnection }
        self.cuts.withLock { $0 += 1 }
        while true {
            let changes = self.changes.value
            if let offset = self.file.starts.dropFirst(starts).first { return .resumed(at: offset) }
            guard self.shown.withLock({ $0.isLoading }) else { return .ended }
            await self.changes.reached(changes + 1)
        }
    }

    /// Removes the file and downloads it for twenty callers.
    ///
    /// - Returns: Whether all callers received the same file with the correct bytes.
    func download(from url: URL, with media: AsyncMedia) async throws -> Bool {
        let url = url.appending(path: self.path)
        try await media.clear(url: url)
        self.before.withLock { $0 = (self.file.starts.count, self.file.bytesSent) }
        self.show { $0 = State(total: $0.total, isLoading: true) }
        defer { self.show { $0.isLoading = false } }
        let watcher = Task {
            for try await progress in media.progress(of: url) { self.show { $0.received = progress.received } }
        }
        defer { watcher.cancel() }
        let files = try await withThrowingTaskGroup { group in
            for _ in 0..<20 { group.addTask { try await media.request(url: url) } }
            return try await group.reduce(into: Set<URL>()) { $0.insert($1) }
        }
        self.show { $0.received = $0.total }
        return try files.count == 1 && files.allSatisfy { try Data(contentsOf: $0) == self.file.content }
    }

    /// Resets the state after a sign-out.
    func forget() {
        self.before.withLock { $0 = (self.file.starts.count, self.file.bytesSent) }
        self.show { $0 = State(total: $0.total, isLoading: $0.isLoading) }
    }

    private func show(_ change: (inout State) -> Void) {
        self.shown.withLock { change(&$0) }
        self.changes.add()
    }
}
