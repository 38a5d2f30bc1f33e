import Foundation
import MuxKit
import MuxNetwork
import MuxOutbox
import MuxTesting

/// A child process with an outbox, which is killed while it adds changes, and a server for the changes.
final class Writer: Sendable {
    /// The state on the page.
    struct State: Codable, Sendable {
        enum Phase: String, Codable, Sendable {
            case starting, ready, killed
            /// Ended without a kill by the demo.
            case ended
        }

        var pid: Int32 = 0
        var phase = Phase.starting
        var isOnline = true
        /// The number of changes that processes have reported as durable.
        var added = 0
        /// The number of changes in the outbox, as of the last report.
        var waiting = 0
        /// The number of changes at the server, of repeated requests, and of changes that were applied twice.
        var applied = 0
        var repetitions = 0
        var twice = 0
    }

    /// The result of one kill.
    struct Round: Sendable {
        var reported: Int
        var applied: Int
        /// Whether no reported change is lost, and no change was applied twice or out of order.
        var holds: Bool
    }

    private struct Progress: Sendable {
        var state = State()
        var lives = 0
        /// The changes that processes have reported as durable.
        var reported: Set<String> = []
        var process: LineProcess?
    }

    private let folder: URL
    private let changes: Tally
    private let changeServer: FakeChangeServer
    private let server: LoopbackServer
    private let progress = Locked(Progress())
    /// Incremented after each report of the process.
    private let reports = Tally()

    init(folder: URL, changes: Tally) {
        let requests = Locked(0)
        // Each fifth response is lost.
        let changeServer = FakeChangeServer { _, _ in
            requests.withLock { count in
                count += 1
                return count.isMultiple(of: 5) ? .loseResponse : .confirm
            }
        }
        self.folder = folder
        self.changes = changes
        self.changeServer = changeServer
        self.server = LoopbackServer { request in
            defer { changes.add() }
            return await changeServer.response(to: request)
        }
    }

    var state: State {
        var state = self.progress.withLock { $0.state }
        let applied = self.changeServer.applied.map(\.content)
        state.applied = applied.count
        state.repetitions = self.changeServer.repetitionCount
        state.twice = applied.count - Set(applied).count
        return state
    }

    /// Starts the server and the process, and waits for the report of the process.
    func start() async throws {
        try self.server.start()
        try await self.startProcess()
    }

    private func startProcess() async throws {
        let life = self.progress.withLock { progress in
            progress.lives += 1
            progress.state.phase = .starting
            return progress.lives
        }
        let process = try LineProcess([
            WriterProcess.argument, self.folder.path, self.server.url.absoluteString, "\(life)",
        ]) {
            [weak self] line in
            self?.received(line, life)
        } end: { [weak self] pid in
            self?.show { if $0.pid == pid, $0.phase != .killed { $0.phase = .ended } }
        }
        self.progress.withLock { progress in
            progress.process = process
            progress.state.pid = process.pid
        }
        await self.until { $0.phase != .starting }
    }

    private func received(_ line: String?, _ life: Int) {
        self.progress.withLock { progress in
            guard progress.lives == life else { return }
            let words = (line ?? "").split(separator: " ").map { String($0) }
            switch (words.first, words.last) {
            case ("waiting", let count?):
                progress.state.waiting = Int(count) ?? 0
                if progress.state.phase == .starting { progress.state.phase = .ready }
            case ("added", let content?):
                progress.reported.insert(content)
                progress.state.added = progress.reported.count
            default: if line == nil, progress.state.phase == .starting { progress.state.phase = .ended }
            }
        }
        self.reports.add()
        self.changes.add()
    }

    private func until(_ condition: (State) -> Bool) async {
        while case let count = self.reports.value, !condition(self.progress.withLock({ $0.state })), !Task.isCancelled {
            await self.reports.reached(count + 1)
        }
    }

    /// Changes the reachability of the server.
    ///
    /// - Returns: The number of changes that had waited; `nil` if the server has the state already.
    func setOnline(_ isOnline: Bool) async throws -> Int? {
        let (isOther, waiting) = self.progress.withLock { ($0.state.isOnline != isOnline, $0.state.waiting) }
        guard isOther else { return nil }
        if isOnline { try self.server.start() } else { await self.server.stop() }
        self.show { $0.isOnline = isOnline }
        guard isOnline, let process = self.progress.withLock({ $0.process }) else { return waiting }
        try process.send("retry")
        await self.until { $0.waiting == 0 || $0.phase == .ended }
        return waiting
    }

    /// Whether no reported change is lost, and no change was applied twice or out of order.
    ///
    /// A change that is not at the server must wait in the outbox.
    var holds: Bool {
        let applied = self.changeServer.applied.map(\.content)
        let (reported, state) = self.progress.withLock { ($0.reported, $0.state) }
        let lost = reported.subtracting(applied)
        let numbers = applied.map { $0.split(separator: "-").compactMap { Int($0) } }
        let isOrdered = zip(numbers, numbers.dropFirst()).allSatisfy { $0.lexicographicallyPrecedes($1) }
        return Set(applied).count == applied.count && isOrdered && lost.count <= state.waiting
    }

    /// Lets the process add changes, kills it after `count` durable changes, and starts another process.
    ///
    /// - Returns: The result; `nil` if there was no process to kill, and only another process was started.
    func killAndRestart(after count: Int) async throws -> Round? {
        guard let process = self.progress.withLock({ $0.process }), self.state.phase == .ready else {
            try await self.startProcess()
            return nil
        }
        let before = self.state.added
        try process.send("write")
        await self.until { $0.added >= before + count || $0.phase == .ended }
        self.show { $0.phase = .killed }
        kill(process.pid, SIGKILL)
        try await process.ended.pass()
        process.endInput()
        let reported = self.state.added - before
        try await self.startProcess()
        if self.state.isOnline { await self.until { $0.waiting == 0 || $0.phase == .ended } }
        return Round(reported: reported, applied: self.state.applied, holds: self.holds)
    }

    /// Ends the process and the server.
    func stop() async {
        let process = self.progress.withLock { progress in
            defer { progress.process = nil }
            return progress.process
        }
        process?.endInput()
        try? await process?.ended.pass()
        await self.server.stop()
    }

    private func show(_ change: (inout State) -> Void) {
        self.progress.withLock { change(&$0.state) }
        self.changes.add()
        self.reports.add()
    }
}

/// The main function of the writer: sends the changes of earlier processes, and adds changes at each command.
enum WriterProcess {
    private struct Send: HTTPCommand {
        var content: String
        var idempotencyKey: String?
        var endpoint: HTTPEndpoint { HTTPEndpoint(path: "/changes") }
        var method: HTTPMethod { .post }
        var body: HTTPBody? { .text(self.content) }
    }

    /// The first argument of a writer process.
    static let argument = "writer"
    private static let count = 60

    /// Runs until the input ends or the process is killed.
    static func play(_ folder: String, _ url: String, _ life: String) async throws {
        guard let url = URL(string: url) else { return }
        let client = HTTPClient(baseURL: url)
        let outbox = MuxOutbox<String>(
            "Changes",
            repository: MuxRepository(store: MemoryStore()),
            directory: URL(filePath: folder, directoryHint: .isDirectory),
            policy: MuxOutboxPolicy(retry: .exponential(base: .milliseconds(20), maxAttempts: .max))
        ) { change, attempt in
            try await client.execute(Send(content: change, idempotencyKey: attempt.idempotencyKey))
        }
        outbox.start()
        Task {
            for await changes in outbox.states { try LineProcess.say("waiting \(changes.count)") }
        }
        var last = 0
        // `readLine` blocks the thread, so the call must not run on the concurrent pool.
        let lines = AsyncStream<String> { continuation in
            Thread.detachNewThread {
                while let line = readLine() { continuation.yield(line) }
                continuation.finish()
            }
        }
        for await line in lines {
            if line == "retry" { outbox.retryNow() }
            guard line == "write" else { continue }
            for _ in 0..<self.count {
                last += 1
                try await outbox.add("\(life)-\(last)")
                try LineProcess.say("added \(life)-\(last)")
            }
        }
    }
}
