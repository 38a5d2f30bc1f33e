import Foundation
import MuxKit
import MuxTesting

/// A child process that is killed while it saves, and started again.
final class Worker: Sendable {
    /// One run of the process.
    private final class Life: Sendable {
        let found = Gate<WorkerProcess.Found>()
        let saved = Tally()
        let process: LineProcess

        /// Starts a process; calls `changed` after each report, and `end` with the process identifier at the
        /// end of the process.
        init(
            in folder: URL,
            changed: @escaping @Sendable () -> Void,
            end: @escaping @Sendable (Int32) -> Void
        ) throws {
            let (found, saved) = (self.found, self.saved)
            self.process = try LineProcess([WorkerProcess.argument, folder.path]) { line in
                guard let line else {
                    // The process has ended: resume all waiters.
                    saved.add(Worker.count)
                    return found.openForGood(returning: WorkerProcess.Found(isWhole: false))
                }
                if line.hasPrefix("saved "), let count = Int(line.dropFirst(6)) {
                    saved.add(count - saved.value)
                } else if let report = try? JSONDecoder().decode(WorkerProcess.Found.self, from: Data(line.utf8)) {
                    found.openForGood(returning: report)
                }
                changed()
            } end: {
                end($0)
            }
        }
    }

    /// The result of one kill.
    struct Round: Codable, Sendable {
        /// The number of entries that the worker had reported as saved when it was killed.
        var reported: Int
        var found: WorkerProcess.Found
        /// Whether at least the reported number of entries is found, and all found entries are intact.
        var holds: Bool

        init(reported: Int, found: WorkerProcess.Found) {
            self.reported = reported
            self.found = found
            self.holds = found.isWhole && found.entries >= reported
        }
    }

    /// The state on the page.
    struct State: Codable, Sendable {
        enum Phase: String, Codable, Sendable {
            case starting, ready, saving, killed
            /// Ended without a kill by the demo.
            case ended
        }

        var pid: Int32 = 0
        var phase = Phase.starting
        var saved = 0
        var total = Worker.count
        var rounds: [Round] = []
    }

    static let count = 1_000

    private let folder: URL
    private let changes: Tally
    private let life = Locked<Life?>(nil)
    private let shown = Locked(State())

    init(folder: URL, changes: Tally) {
        self.folder = folder
        self.changes = changes
    }

    var state: State {
        var state = self.shown.withLock { $0 }
        if state.phase == .saving { state.saved = min(self.life.withLock { $0?.saved.value } ?? 0, Self.count) }
        return state
    }

    /// Starts the process and waits for its report.
    @discardableResult
    func start() async throws -> WorkerProcess.Found {
        let life = try Life(in: self.folder) { [changes] in
            changes.add()
        } end: { [weak self] pid in
            self?.show { if $0.pid == pid, $0.phase != .killed { $0.phase = .ended } }
        }
        self.life.withLock { $0 = life }
        self.show { state in
            state.pid = life.process.pid
            state.phase = .starting
        }
        let found = try await life.found.pass()
        self.show { if $0.phase == .starting { $0.phase = .ready } }
        return found
    }

    /// Lets the process save, kills it after `count` reported entries, and starts another process.
    ///
    /// - Returns: The result; `nil` if there was no process to kill, and only another process was started.
    func killAndRestart(afterSaves count: Int) async throws -> Round? {
        guard let life = self.life.withLock({ $0 }), self.state.phase == .ready else {
            try await self.start()
            return nil
        }
        self.show { state in
            state.phase = .saving
            state.saved = 0
        }
        try life.process.send("save")
        await life.saved.reached(count)
        let reported = min(life.saved.value, Self.count)
        self.show { state in
            state.saved = reported
            state.phase = .killed
        }
        kill(life.process.pid, SIGKILL)
        try await life.process.ended.pass()
        life.process.endInput()
        let round = Round(reported: reported, found: try await self.start())
        self.show { $0.rounds.append(round) }
        return round
    }

    /// Ends the process.
    func stop() async {
        let life = self.life.withLock { life -> Life? in
            defer { life = nil }
            return life
        }
        life?.process.endInput()
        try? await life?.process.ended.pass()
    }

    private func show(_ change: (inout State) -> Void) {
        self.shown.withLock { change(&$0) }
        self.changes.add()
    }
}

/// The main function of the worker: reports the entries on disk, then saves all places at each command.
enum WorkerProcess {
    /// The entries on disk when the process starts.
    struct Found: Codable, Sendable {
        var entries = 0
        var isWhole = true
        /// The bytes of an incomplete record at the end of the journal.
        var tornBytes = 0
    }

    /// The first argument of a worker process.
    static let argument = "worker"

    private static let noFetch: @Sendable (Int) async throws -> Place = { _ in throw CocoaError(.featureUnsupported) }

    /// Runs until a line other than `save` or the end of the input, or until a kill.
    static func play(_ folder: String) async throws {
        let store = JournalStore(directory: URL(filePath: folder, directoryHint: .isDirectory))
        let repository = MuxRepository(store: store, durability: .relaxed)
        let map = MultiplexerMap(cacheKey: "Places", repository: repository, onFetch: Self.noFetch)
        let places = try Place.all()
        var found = Found()
        for place in places {
            guard let kept = await map.loadCachedValue(key: place.id) else { continue }
            found.entries += 1
            if kept.id != place.id || kept.name != place.name { found.isWhole = false }
        }
        found.tornBytes = await store.statistics().tornBytes
        try LineProcess.say(String(decoding: JSONEncoder().encode(found), as: UTF8.self))
        while readLine() == "save" {
            await map.clear()
            for (index, place) in places.enumerated() {
                map.store(place, key: place.id)
                await map.save(key: place.id)
                if index % 10 == 9 { try LineProcess.say("saved \(index + 1)") }
            }
        }
    }
}
