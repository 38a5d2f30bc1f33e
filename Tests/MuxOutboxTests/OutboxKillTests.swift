import Foundation
import MuxKit
import MuxNetwork
import MuxOutbox
import MuxTestSupport
import MuxTesting
import Testing

/// An end of the process at each call to the file system.
@Suite(.standard(minutes: 60))
struct OutboxInterruptionTests {
    private static let count = ProofEnvironment.count(6, "MUX_KILLS")

    /// Adds the changes until the first error, and waits until the senders rest.
    ///
    /// - Returns: The changes whose `add` has returned.
    private func work(_ world: OutboxWorld, _ fileSystem: RecordingFileSystem) async -> [String] {
        let outbox = world.outbox(fileSystem: fileSystem)
        var added: [String] = []
        for number in 0..<Self.count {
            let text = "\(number)"
            guard (try? await outbox.add(Note(text, in: "\(number % 3)"))) != nil else { break }
            added.append(text)
        }
        await settled {
            outbox.waitCount
        } when: {
            $0 != nil
        }
        return added
    }

    /// The reactions, also a lost response and a refused change, are the same in each run.
    private func server() -> FakeChangeServer {
        let lost = Locked(Set(["1"]))
        return FakeChangeServer { content, _ in
            if lost.withLock({ $0.remove(content) != nil }) { return .loseResponse }
            return content == "4" ? .refuse(status: 409, "No.") : .confirm
        }
    }

    private func verify(_ world: OutboxWorld, _ added: [String], _ what: Comment) async {
        let outbox = world.outbox(policy: MuxOutboxPolicy(retry: .immediate(maxAttempts: .max)))
        outbox.start()
        _ = await outbox.list
        await settled {
            outbox.waitCount
        } when: {
            $0 == 0
        }
        let listed = await outbox.list
        let applied = world.server.applied.map(\.content)
        #expect(Set(applied).count == applied.count, what)
        #expect(Set(applied).isSuperset(of: added.filter { $0 != "4" }), what)
        #expect(listed.allSatisfy { $0 == "4 refused(\"No.\")" } && (!listed.isEmpty || !added.contains("4")), what)
        for lane in 0..<3 {
            let numbers = applied.compactMap { Int($0) }.filter { $0 % 3 == lane }
            #expect(numbers == numbers.sorted(), what)
        }
        let folder = world.file.deletingLastPathComponent().path
        let left = (try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []
        #expect(!left.contains { $0.hasPrefix("changes") && $0.hasSuffix(".tmp") }, what)
    }

    @Test func `OB-01 after an end at any call and byte each added change is applied once and in order`() async throws {
        let recording = RecordingFileSystem()
        let complete = await self.work(OutboxWorld(server: self.server()), recording)
        #expect(complete.count == Self.count)
        let calls = recording.calls
        #expect(calls.contains { $0.operation == .rename })
        var interruptions = 0
        for number in 1...calls.count {
            for bytes in calls[number - 1].operation == .write ? [0, 1, 300, 400, 1 << 20] : [0] {
                interruptions += 1
                guard interruptions.isMultiple(of: repetitionStep) else { continue }
                let fileSystem = RecordingFileSystem { count, _ in count == number ? .fail(after: bytes, EIO) : nil }
                let world = OutboxWorld(server: self.server())
                let added = await self.work(world, fileSystem)
                // After the end of the killed process's lease.
                let later = world.relaunched(after: .seconds(100))
                await self.verify(later, added, "call \(number) (\(calls[number - 1])), \(bytes) bytes")
            }
        }
        print("OB-01: \(interruptions / repetitionStep) ends of a process with \(Self.count) changes")
    }

    @Test func `OB-01 any single refused call is an error of add, or loses no change`() async throws {
        let recording = RecordingFileSystem()
        _ = await self.work(OutboxWorld(server: self.server()), recording)
        for number in 1...recording.calls.count where number.isMultiple(of: repetitionStep) {
            let fileSystem = RecordingFileSystem { count, _ in count == number ? .refuse(ENOSPC) : nil }
            let world = OutboxWorld(server: self.server())
            let added = await self.work(world, fileSystem)
            await self.verify(world.relaunched(after: .seconds(100)), added, "call \(number)")
        }
    }

    @Test func `OB-01 the lost outcomes of all interrupted attempts are written after a full disk`() async throws {
        let world = OutboxWorld()
        let log = { (fileSystem: any FileSystem) in
            OutboxLog(
                StoreFolder(world.file.deletingLastPathComponent()),
                policy: MuxOutboxPolicy(maximumAge: .seconds(100), maximumCount: 100, maximumBytes: 100_000),
                fileSystem: fileSystem,
                problems: StorageProblems(),
                wallTime: world.repository.wallTime,
                time: TimeSource(world.clock)
            )
        }
        let payload = try JSONEncoder().encode(Note("a"))
        try log(POSIXFileSystem()).update { log throws(MuxStoreError) in
            for id in ["1", "2"] {
                try? log.append(payload, id: id, lane: id)
                _ = log.machine.beginAttempt(id, at: 0)
                if let item = log.machine[id] { try log.write(item) }
            }
        }
        let isFull = Locked(true)
        let fileSystem = RecordingFileSystem { _, call in
            isFull.withLock { $0 } && call.operation == .write && call.name == "changes.jsonl" ? .refuse(ENOSPC) : nil
        }
        let outbox = world.outbox(policy: MuxOutboxPolicy(serverDetectsRepetitions: false), fileSystem: fileSystem)
        outbox.start()
        _ = await outbox.list
        await world.waitForRest(outbox)

        isFull.withLock { $0 = false }
        #expect(await outbox.list == ["a unknown", "a unknown"])

        let next = log(POSIXFileSystem())
        try next.readIfPresent()
        #expect(next.machine.all.map(\.progress.status) == [.unknown, .unknown])
    }

    @Test func `OB-03 an attempt with a refused token counts even if its repetition cannot begin`() async throws {
        let world = OutboxWorld()
        let (isBroken, numbers) = (Locked(false), Locked<[Int]>([]))
        let outbox = MuxOutbox<Note>(
            "Notes",
            RepositoryChoice(given: world.repository, ofDependency: nil),
            directory: world.folder,
            policy: MuxOutboxPolicy(),
            wakingOn: [],
            fileSystem: RecordingFileSystem { _, _ in isBroken.withLock { $0 } ? .refuse(EIO) : nil },
            leaseDuration: .seconds(30),
            order: { $0.lane },
            deliver: { _, begin, refused in
                let attempt = try await begin()
                let count = numbers.withLock { numbers in
                    numbers.append(attempt.number)
                    return numbers.count
                }
                guard count == 1 else { return }
                refused()
                isBroken.withLock { $0 = true }
                _ = try await begin()
            }
        )
        try await outbox.add(Note("a"))
        await world.waitForRest(outbox)
        #expect(await outbox.pending.map(\.attempts) == [1])

        isBroken.withLock { $0 = false }
        world.clock.advance(by: .seconds(1))

        await world.waitForRest(outbox)
        #expect(await outbox.list.isEmpty)
        #expect(numbers.withLock { $0 } == [1, 2])
    }

    @Test func `OB-01 a removed folder loses no change of the running process`() async throws {
        let world = OutboxWorld(server: FakeChangeServer { _, _ in .refuseConnection })
        let outbox = world.outbox()
        for text in ["1", "2"] { try await outbox.add(Note(text)) }
        await world.waitForRest(outbox)

        try FileManager.default.removeItem(at: world.folder)

        try await outbox.add(Note("3"))
        #expect(await outbox.list == ["1 waiting", "2 waiting", "3 waiting"])
        await world.waitForRest(outbox)
        #expect(await world.relaunched(after: .seconds(100)).outbox().list == ["1 waiting", "2 waiting", "3 waiting"])
    }
}

#if compiler(>=6.3) && (os(macOS) || os(Linux))
/// Two concurrent processes on one folder, each killed at a random call or byte of a write, and a server in
/// this process.
///
/// `MUX_KILLS=1000` multiplies the number of rounds; `MUX_SEED=7` begins with that seed.
@Suite(.standard(minutes: 600))
struct OutboxKillTests {
    private struct Change: Codable, Sendable {
        var number: Int
        var lane: Int
        /// The user at the time of the addition; `nil` if a sign-out ran at that time.
        var user: Int?
    }

    private struct Send: HTTPCommand {
        var body: HTTPBody?
        var idempotencyKey: String?
        var user: Int

        var endpoint: HTTPEndpoint { HTTPEndpoint(path: "/changes") }
        var method: HTTPMethod { .post }
        var headers: HTTPHeaders { ["Authorization": "Bearer \(self.user)"] }
    }

    /// Files outside of the outbox: the user, and the added changes of each process.
    private struct Ledger: Sendable {
        let folder: URL

        /// The number of the user, even; odd during a sign-out.
        var user: Int {
            get {
                (try? String(contentsOf: self.folder.appending(component: "user"), encoding: .utf8)).flatMap { Int($0) }
                    ?? 0
            }
            nonmutating set {
                try? Data("\(newValue)".utf8).write(to: self.folder.appending(component: "user"), options: .atomic)
            }
        }

        func note(_ line: String, _ who: Int) throws {
            let url = self.folder.appending(component: "ledger-\(who)")
            if !FileManager.default.fileExists(atPath: url.path) { try Data().write(to: url) }
            let handle = try FileHandle(forWritingTo: url)
            try handle.seekToEnd()
            try handle.write(contentsOf: Data((line + "\n").utf8))
            try handle.close()
        }

        /// The added changes of a process, with their users.
        func added(_ who: Int) -> [(number: Int, lane: Int, user: Int?)] {
            let text =
                (try? String(contentsOf: self.folder.appending(component: "ledger-\(who)"), encoding: .utf8)) ?? ""
            return text.split(separator: "\n").compactMap { line in
                let words = line.split(separator: " ", omittingEmptySubsequences: false).map { Int($0) }
                guard words.count == 3, let number = words[0], let lane = words[1] else { return nil }
                return (number, lane, words[2])
            }
        }
    }

    private static let lanes = 5

    private static func outbox(
        _ folder: URL,
        _ url: URL,
        _ fileSystem: any FileSystem = POSIXFileSystem()
    ) -> (MuxOutbox<Change>, MuxRepository) {
        let repository = MuxRepository(directory: folder.appending(component: "caches"))
        let ledger = Ledger(folder: folder)
        let client = HTTPClient(baseURL: url)
        // swift-format-ignore: OnlyOneTrailingClosureArgument
        let outbox = MuxOutbox<Change>(
            "Changes",
            RepositoryChoice(given: repository, ofDependency: nil),
            directory: folder.appending(component: "data"),
            policy: MuxOutboxPolicy(retry: .fixed(.milliseconds(20), maxAttempts: .max, jitter: .none)),
            wakingOn: [],
            fileSystem: fileSystem,
            leaseDuration: .milliseconds(700),
            order: { "\($0.lane)" }
        ) { change, begin, _ in
            let user = ledger.user
            // No user is signed in during a sign-out.
            guard user.isMultiple(of: 2) else { throw URLError(.notConnectedToInternet) }
            let attempt = try await begin()
            let body = HTTPBody.json(change)
            let request = Send(body: body, idempotencyKey: attempt.idempotencyKey, user: user)
            _ = try await client.execute(request)
        }
        return (outbox, repository)
    }

    /// Adds changes and signs out at random until a call to the file system ends the process.
    private static func work(_ path: String, _ url: String, _ who: Int, _ seed: Int, _ round: Int) async throws {
        var random = SplitMix64(state: UInt64(seed))
        let call = Int.random(in: 1...3_000, using: &random)
        let bytes = Int.random(in: 0...600, using: &random)
        let fileSystem = RecordingFileSystem { count, _ in
            count >= call ? .performInWrite(after: bytes) { raise(SIGKILL) } : nil
        }
        let folder = URL(filePath: path, directoryHint: .isDirectory)
        let ledger = Ledger(folder: folder)
        let (outbox, repository) = Self.outbox(folder, try #require(URL(string: url)), fileSystem)
        outbox.start()
        for step in 1...10_000 {
            if who == 0, !ledger.user.isMultiple(of: 2) || Int.random(in: 0..<200, using: &random) == 0 {
                // A killed sign-out is completed first.
                let user = ledger.user
                ledger.user = user | 1
                guard await repository.signOut().isComplete else { continue }
                ledger.user = (user | 1) + 1
            }
            let number = (round * 2 + who) * 10_000 + step
            let lane = Int.random(in: 0..<Self.lanes, using: &random)
            let user = ledger.user
            let isCertain = user.isMultiple(of: 2)
            let change = Change(number: number, lane: lane, user: isCertain ? user : nil)
            do {
                try await outbox.add(change)
            } catch MuxOutboxError.sessionEnded {
                continue
            }
            try ledger.note("\(number) \(lane) \(isCertain && ledger.user == user ? "\(user)" : "")", who)
            if Int.random(in: 0..<3, using: &random) == 0 { _ = await outbox.pending }
        }
    }

    @Test(.ownThreads)
    func `OB-07 after random kills of two processes each change is applied once, in order, as its user`() async throws {
        let first = ProofEnvironment.number("MUX_SEED") ?? 1
        let rounds = ProofEnvironment.count(6, "MUX_KILLS")
        let scratch = Scratch(isInspected: false)
        try FileManager.default.createDirectory(at: scratch.folder, withIntermediateDirectories: true)
        let random = Locked(SplitMix64(state: UInt64(first)))
        let changes = FakeChangeServer { _, _ in
            switch random.withLock({ $0.next() % 12 }) {
            case 0: .loseResponse
            case 1: .loseRequest
            case 2: .busy(retryAfter: .zero)
            case 3: .refuse(status: 500, "Broken.")
            default: .confirm
            }
        }
        let server = LoopbackServer { await changes.response(to: $0) }
        let url = try server.start().absoluteString
        let path = scratch.folder.path
        for round in 1...rounds {
            await withTaskGroup { group in
                for who in 0..<2 {
                    let seed = (first + round) * 2 + who
                    group.addTask {
                        await #expect(processExitsWith: .signal(SIGKILL)) {
                            [
                                path = path as String, url = url as String, who = who as Int, seed = seed as Int,
                                round = round as Int
                            ] in
                            try await Self.work(path, url, who, seed, round)
                        }
                    }
                }
            }
        }
        let ledger = Ledger(folder: scratch.folder)
        let (outbox, repository) = Self.outbox(scratch.folder, try #require(URL(string: url)))
        if !ledger.user.isMultiple(of: 2) {
            await repository.signOut()
            ledger.user += 1
        }
        outbox.start()
        _ = await outbox.pending
        await settled {
            outbox.waitCount
        } when: {
            $0 == 0
        }
        #expect(await outbox.pending.isEmpty)
        await server.stop()

        let applied = changes.applied.compactMap { applied in
            (try? JSONDecoder().decode(Change.self, from: Data(applied.content.utf8))).map { ($0, applied) }
        }
        #expect(Set(applied.map(\.0.number)).count == applied.count, "a change was applied twice")
        #expect(Set(applied.map(\.1.key)).count == applied.count)
        #expect(changes.overlapCount == 0, "a key was in flight twice")
        let numbers = Set(applied.map(\.0.number))
        var count = 0
        for who in 0..<2 {
            let added = ledger.added(who)
            count += added.count
            let users = Dictionary(added.map { ($0.number, $0.user) }) { first, _ in first }
            let lost = added.filter { $0.user == ledger.user && !numbers.contains($0.number) }
            #expect(lost.isEmpty, "changes were lost")
            let foreign = applied.filter { change, request in
                guard let user = users[change.number] ?? nil else { return false }
                return request.token != "\(user)"
            }
            #expect(foreign.isEmpty, "changes were sent as another user")
            // The order of one process in one session: a request of an ended session may arrive late.
            let own = applied.map(\.0).filter { $0.number / 10_000 % 2 == who && (users[$0.number] ?? nil) != nil }
            let lanes = Dictionary(grouping: own) { [$0.lane, (users[$0.number] ?? nil) ?? 0] }
            for (lane, changes) in lanes {
                let order = changes.map(\.number)
                #expect(order == order.sorted(), "lane \(lane) is out of order")
            }
        }
        print(
            """
            OB-07: \(rounds * 2) kills, \(count) changes, \(applied.count) applied, \(ledger.user / 2) sign-outs, \
            \(changes.repetitionCount) repetitions with the same key
            """
        )
    }
}
#endif
