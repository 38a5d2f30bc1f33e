import Foundation
import MuxKit
import MuxOutbox
import MuxTestSupport
import MuxTesting
import Testing

/// A change for tests.
struct Note: Codable, Sendable, Hashable {
    var lane: String
    var text: String

    init(_ text: String, in lane: String = "") {
        self.lane = lane
        self.text = text
    }
}

/// The environment of a test of an outbox: a folder, a virtual clock, a repository and a server.
struct OutboxWorld: Sendable {
    let scratch: Scratch
    let clock: VirtualClock
    let server: FakeChangeServer
    let events = EventTally()
    let repository: MuxRepository
    /// The lead of the wall clock over the virtual clock.
    let wallShift: Locked<Duration>

    init(
        _ scratch: Scratch = Scratch(),
        server: FakeChangeServer = FakeChangeServer(),
        store: (any MuxStore)? = nil,
        wallShift: Duration = .zero,
        spawn: TaskLauncher = TaskLauncher()
    ) {
        let clock = VirtualClock()
        let shift = Locked(wallShift)
        self.scratch = scratch
        self.clock = clock
        self.server = server
        self.wallShift = shift
        self.repository = MuxRepository(
            store: store ?? JournalStore(directory: scratch.folder.appending(component: "caches")),
            durability: .relaxed,
            observer: self.events,
            time: TimeSource(clock),
            wallTime: {
                let elapsed = clock.now.offset + shift.withLock { $0 }
                return Date(timeIntervalSinceReferenceDate: 800_000_000 + elapsed.secondsValue)
            },
            random: { 0.5 },
            spawn: spawn
        )
    }

    /// The environment of a process that starts later, on the same folder.
    func relaunched(after downtime: Duration = .zero) -> OutboxWorld {
        let shift = self.wallShift.withLock { $0 } + self.clock.now.offset + downtime
        return OutboxWorld(self.scratch, server: self.server, wallShift: shift)
    }

    var folder: URL { self.scratch.folder.appending(component: "data") }

    /// The file of the changes.
    var file: URL {
        let name = OwnedName(.outbox, ["Notes"]).fileName
        return self.folder.appending(component: name).appending(component: "changes.jsonl")
    }

    /// The outbox "Notes", with a lane for each ``Note/lane``.
    func outbox(
        policy: MuxOutboxPolicy = MuxOutboxPolicy(),
        wakingOn wakeUps: [RetrySignal.WakeUp] = [],
        fileSystem: any FileSystem = POSIXFileSystem(),
        leaseDuration: Duration = .seconds(30),
        order: @escaping @Sendable (Note) throws -> String = { $0.lane },
        token: @escaping @Sendable () async throws -> String? = { nil },
        received: @escaping @Sendable () async throws -> Void = {},
        refusesToken: Bool = false
    ) -> MuxOutbox<Note> {
        let server = self.server
        return MuxOutbox(
            "Notes",
            RepositoryChoice(given: self.repository, ofDependency: nil),
            directory: self.folder,
            policy: policy,
            wakingOn: wakeUps,
            fileSystem: fileSystem,
            leaseDuration: leaseDuration,
            order: order
        ) { note, begin, refused in
            let token = try await token()
            let attempt = try await begin()
            try await server.receive(
                note.text,
                key: policy.serverDetectsRepetitions ? attempt.idempotencyKey : nil,
                token: token
            )
            if refusesToken { refused() }
            try await received()
        }
    }

    /// Waits until each change is confirmed, has failed, or waits for a time.
    func waitForRest(_ outbox: MuxOutbox<Note>, _ location: SourceLocation = #_sourceLocation) async {
        let isAtRest = await settled {
            outbox.waitCount == self.clock.sleeperCount
        } when: {
            $0
        }
        #expect(isAtRest, "the outbox still sends", sourceLocation: location)
    }
}

extension MuxOutbox {
    /// The list, as texts: the change and its state.
    var list: [String] {
        get async {
            await self.pending.map { change in
                let text = (change.change as? Note)?.text ?? "-"
                return "\(text) \(change.state)"
            }
        }
    }
}
