import Dispatch
import Foundation
import MuxKit
import MuxOutbox
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct OutboxSessionTests {
    private func bytes(_ world: OutboxWorld) -> String {
        let files = FileManager.default.enumerator(atPath: world.folder.path)?.compactMap { $0 as? String } ?? []
        return files.map { file in
            (try? String(contentsOf: world.folder.appending(path: file), encoding: .utf8)) ?? ""
        }.joined()
    }

    @Test func `OB-04 a sign-out drops the changes, reports their number, and leaves no byte on disk`() async throws {
        let world = OutboxWorld()
        world.server.react(.refuseConnection)
        let outbox = world.outbox()
        for text in ["secret-1", "secret-2"] { try await outbox.add(Note(text)) }
        await world.waitForRest(outbox)
        #expect(self.bytes(world).contains("secret-1"))

        let report = await world.repository.signOut()

        #expect(report.isComplete)
        #expect(report.droppedChanges == 2)
        #expect(await outbox.list.isEmpty)
        #expect(!self.bytes(world).contains("secret"))
        #expect(world.events.count(of: .changesDropped) == 1)
        await world.waitForRest(outbox)
        #expect(world.server.requestCount == 1)
        // The next session works.
        try await outbox.add(Note("b"))
        await world.server.waitForApplied()
        await world.waitForRest(outbox)
        #expect(world.server.applied.map(\.content) == ["b"])
        #expect(await world.repository.signOut().droppedChanges == 0)
    }

    @Test func `OB-04 a sign-out is refused while changes are pending, if the policy says so`() async throws {
        let world = OutboxWorld()
        world.server.react(.refuse(status: 409, "No."))
        let outbox = world.outbox(policy: MuxOutboxPolicy(signOut: .isRefused))
        let profile = Multiplexer<Int>(repository: world.repository) { 1 }
        _ = try await profile.request()
        let id = try await outbox.add(Note("a"))
        await world.server.waitForRequest()
        await settled {
            outbox.waitCount
        } when: {
            $0 == 0
        }

        let report = await world.repository.signOut()

        guard case MuxOutboxError.changesPending(1)? = report.failures.first else {
            Issue.record("\(report.failures)")
            return
        }
        #expect(!report.isComplete)
        #expect(profile.cachedEntry?.value == 1, "the refused sign-out changed nothing")
        #expect(await outbox.list.count == 1)
        try await outbox.discard(id)
        #expect(await world.repository.signOut().isComplete)
        #expect(profile.cachedEntry == nil)
    }

    @Test func `OB-04 an attempt whose token arrives after a sign-out is not sent`() async throws {
        let world = OutboxWorld()
        let gate = Gate<String>()
        let outbox = world.outbox(token: { try await gate.pass(ignoringCancellation: true) })
        try await outbox.add(Note("a"))
        await gate.waitForCall()

        #expect(await world.repository.signOut().droppedChanges == 1)
        gate.open(returning: "token of the next user")

        await world.waitForRest(outbox)
        #expect(world.server.requestCount == 0)
    }

    @Test func `OB-04 a sign-out by another process is noticed before the next attempt`() async throws {
        let scratch = Scratch()
        let world = OutboxWorld(scratch)
        let gate = Gate<String>()
        let outbox = world.outbox(token: { try await gate.pass(ignoringCancellation: true) })
        try await outbox.add(Note("a"))
        await gate.waitForCall()
        let other = OutboxWorld(scratch, server: world.server)
        let sibling = other.outbox()

        #expect(await other.repository.signOut().droppedChanges == 1)
        gate.open(returning: "token of the next user")

        await world.waitForRest(outbox)
        #expect(world.server.requestCount == 0)
        #expect(await outbox.list.isEmpty)
        #expect(await sibling.list.isEmpty)
    }

    @Test(arguments: [true, false])
    func `OB-04 a sign-out without the outbox in the process drops the changes at the next use`(callsStart: Bool)
        async throws
    {
        let scratch = Scratch()
        do {
            let world = OutboxWorld(scratch)
            world.server.react(.refuseConnection)
            let outbox = world.outbox()
            try await outbox.add(Note("secret"))
            await world.waitForRest(outbox)
        }
        // The process has no reference to the outbox.
        #expect(await OutboxWorld(scratch).repository.signOut().isComplete)
        let world = OutboxWorld(scratch)
        let outbox = world.outbox()

        if callsStart { outbox.start() }

        #expect(await outbox.list.isEmpty)
        await world.waitForRest(outbox)
        #expect(world.server.requestCount == 0)
        #expect(await world.repository.signOut().isComplete)
        #expect(!self.bytes(world).contains("secret"))
    }

    @Test func `OB-04 a change is refused if another process has signed out, or a sign-out runs`() async throws {
        let world = OutboxWorld()
        let outbox = world.outbox()
        try await outbox.add(Note("a"))
        await world.server.waitForApplied()
        await world.waitForRest(outbox)
        // A process with the same changes and another repository.
        let other = OutboxWorld(world.scratch, store: MemoryStore())
        let sibling = other.outbox()
        _ = await sibling.list
        await other.repository.signOut()
        await #expect {
            try await outbox.add(Note("b"))
        } throws: {
            if case MuxOutboxError.sessionEnded? = $0 as? MuxOutboxError { true } else { false }
        }
        // The session of the repository has ended, too, and the next session begins.
        try await outbox.add(Note("c"))
        await world.server.waitForApplied(2)
        await world.waitForRest(outbox)
        #expect(world.server.applied.map(\.content) == ["a", "c"])
    }

    @Test func `OB-04 a change that reaches the log during a sign-out is refused`() async throws {
        let scratch = Scratch()
        let (isHeld, held, mayEnd) = (Locked(false), Tally(), DispatchSemaphore(value: 0))
        defer { mayEnd.signal() }
        let fileSystem = RecordingFileSystem { _, call in
            let isFirst =
                call.operation == .lock
                && isHeld.withLock { isHeld in
                    defer { isHeld = false }
                    return isHeld
                }
            return isFirst
                ? .perform {
                    held.add()
                    mayEnd.wait()
                } : nil
        }
        let world = OutboxWorld(scratch)
        let outbox = world.outbox(fileSystem: fileSystem)
        _ = await outbox.list
        isHeld.withLock { $0 = true }
        let adding = Task { try await outbox.add(Note("a")) }
        await held.reached(1)
        async let report = world.repository.signOut()
        await settled {
            world.repository.isSigningOut
        } when: {
            $0
        }

        mayEnd.signal()

        await #expect {
            try await adding.value
        } throws: {
            if case MuxOutboxError.sessionEnded? = $0 as? MuxOutboxError { true } else { false }
        }
        #expect(await report.droppedChanges == 0)
        await world.waitForRest(outbox)
    }

    @Test func `OB-04 a released outbox begins no attempt`() async throws {
        final class Object: Sendable {}
        let world = OutboxWorld()
        world.server.react(.refuseConnection)
        do {
            let outbox = world.outbox()
            try await outbox.add(Note("a"))
            await world.waitForRest(outbox)
        }
        let later = world.relaunched()
        let (locks, held, mayEnd) = (Locked(0), Tally(), DispatchSemaphore(value: 0))
        defer { mayEnd.signal() }
        // The first lock is that of the call of `start`.
        let fileSystem = RecordingFileSystem { _, call in
            let isSecond =
                call.operation == .lock
                && locks.withLock { count in
                    count += 1
                    return count == 2
                }
            return isSecond
                ? .perform {
                    held.add()
                    mayEnd.wait()
                } : nil
        }
        weak var core: Object?
        do {
            let object = Object()
            core = object
            let outbox = later.outbox(
                fileSystem: fileSystem,
                order: { [object] in
                    _ = object
                    return $0.lane
                }
            )
            outbox.start()
            await held.reached(1)
        }
        #expect(core != nil, "the operation still runs")

        mayEnd.signal()

        await settled {
            core == nil
        } when: {
            $0
        }
        #expect(world.server.requestCount == 1)
    }

    @Test func `OB-04 a lost number of the repository's session keeps the changes`() async throws {
        let scratch = Scratch()
        do {
            let world = OutboxWorld(scratch)
            let outbox = world.outbox()
            await world.repository.signOut()
            world.server.react(.refuseConnection)
            try await outbox.add(Note("a"))
            await world.waitForRest(outbox)
        }
        // The system may remove the folder of caches at any time.
        try FileManager.default.removeItem(at: scratch.folder.appending(component: "caches"))
        let world = OutboxWorld(scratch)
        let outbox = world.outbox()

        outbox.start()

        await world.server.waitForApplied()
        await world.waitForRest(outbox)
        #expect(await outbox.list.isEmpty)
        // A change of the next session is dropped by the next sign-out, although the number was lost.
        world.server.react(.refuseConnection)
        try await outbox.add(Note("b"))
        await world.waitForRest(outbox)
        #expect(await world.repository.signOut().droppedChanges == 1)
        #expect(await world.relaunched().outbox().list.isEmpty)
    }

    @Test func `OB-04 a change is accepted after a lost number and a failed read of the log`() async throws {
        let scratch = Scratch()
        do {
            let world = OutboxWorld(scratch)
            let outbox = world.outbox()
            await world.repository.signOut()
            try await outbox.add(Note("a"))
            await world.waitForRest(outbox)
        }
        try FileManager.default.removeItem(at: scratch.folder.appending(component: "caches"))
        let isBroken = Locked(true)
        let fileSystem = RecordingFileSystem { _, call in
            isBroken.withLock { $0 } && call.operation == .read ? .refuse(EIO) : nil
        }
        let world = OutboxWorld(scratch)
        let outbox = world.outbox(fileSystem: fileSystem)
        _ = await outbox.list
        isBroken.withLock { $0 = false }

        try await outbox.add(Note("b"))

        await world.waitForRest(outbox)
        #expect(world.server.applied.map(\.content) == ["b"])
    }

    @Test func `OB-04 changes of an ended session stay dropped even if the log could not be written`() async throws {
        let scratch = Scratch()
        let isBroken = Locked(false)
        let fileSystem = RecordingFileSystem { _, call in
            isBroken.withLock { $0 } && call.operation == .write ? .refuse(EIO) : nil
        }
        let world = OutboxWorld(scratch)
        world.server.react(.refuseConnection)
        let outbox = world.outbox(fileSystem: fileSystem)
        try await outbox.add(Note("secret"))
        await world.waitForRest(outbox)
        isBroken.withLock { $0 = true }

        let report = await world.repository.signOut()

        #expect(!report.isComplete)
        #expect(report.droppedChanges == 1)
        #expect(await outbox.list.isEmpty)
        let later = OutboxWorld(scratch)
        let again = later.outbox()
        again.start()
        #expect(await again.list.isEmpty)
        await later.waitForRest(again)
        #expect(later.server.requestCount == 0)
        isBroken.withLock { $0 = false }
        _ = await outbox.list
        #expect(await world.repository.signOut().isComplete)
        #expect(!self.bytes(world).contains("secret"))
    }

    @Test func `OB-04 changes stay dropped even if the sign-out could not read the session epoch`() async throws {
        let scratch = Scratch()
        let isBroken = Locked(false)
        let fileSystem = RecordingFileSystem { _, _ in isBroken.withLock { $0 } ? .refuse(EIO) : nil }
        let caches = StoreFolder(scratch.folder.appending(component: "caches"))
        let world = OutboxWorld(scratch, store: JournalStore(caches, fileSystem: fileSystem))
        world.server.react(.refuseConnection)
        let outbox = world.outbox()
        try await outbox.add(Note("secret"))
        await world.waitForRest(outbox)
        isBroken.withLock { $0 = true }

        let report = await world.repository.signOut()

        #expect(!report.isComplete)
        #expect(report.droppedChanges == 1)
        #expect(await outbox.list.isEmpty)
        await world.waitForRest(outbox)
        #expect(!self.bytes(world).contains("secret"))
        // The process ends before the epoch is raised.
        let later = OutboxWorld(scratch)
        let again = later.outbox()
        again.start()
        #expect(await again.list.isEmpty)
        await later.waitForRest(again)
        #expect(later.server.requestCount == 0)
    }
}

@Suite(.standard)
struct OutboxLimitTests {
    @Test func `OB-05 an old change expires, is listed, and is not sent`() async throws {
        let world = OutboxWorld()
        world.server.react(.refuseConnection)
        let policy = MuxOutboxPolicy(
            maximumAge: .seconds(100),
            retry: .fixed(.seconds(60), maxAttempts: .max, jitter: .none)
        )
        let outbox = world.outbox(policy: policy)
        let id = try await outbox.add(Note("a"))
        await world.waitForRest(outbox)
        world.server.react(.refuseConnection)
        world.clock.advance(by: .seconds(60))
        await world.server.waitForRequest(2)
        await world.waitForRest(outbox)

        world.clock.advance(by: .seconds(60))

        await world.waitForRest(outbox)
        #expect(await outbox.list == ["a expired"])
        #expect(world.server.requestCount == 2)
        // Also after a relaunch.
        let later = world.relaunched()
        let again = later.outbox(policy: policy)
        #expect(await again.list == ["a expired"])
        try await again.retry(id)
        await world.server.waitForApplied()
        await later.waitForRest(again)
        #expect(await again.list.isEmpty)
    }

    @Test func `OB-05 a change that expires during the wait for a token is not sent`() async throws {
        let world = OutboxWorld()
        let gate = Gate<String>()
        let outbox = world.outbox(
            policy: MuxOutboxPolicy(maximumAge: .seconds(100)),
            leaseDuration: .seconds(1_000),
            token: { try await gate.pass() }
        )
        try await outbox.add(Note("a"))
        await gate.waitForCall()
        world.clock.advance(by: .seconds(101))

        gate.open(returning: "token")

        await world.waitForRest(outbox)
        #expect(world.server.requestCount == 0)
        #expect(await outbox.list == ["a expired"])
    }

    @Test func `OB-05 steps of the wall clock during a process do not expire a change`() async throws {
        let world = OutboxWorld()
        world.server.react(.refuseConnection, .refuseConnection)
        let policy = MuxOutboxPolicy(
            maximumAge: .seconds(100),
            retry: .fixed(.seconds(10), maxAttempts: .max, jitter: .none)
        )
        let outbox = world.outbox(policy: policy)
        try await outbox.add(Note("a"))
        await world.waitForRest(outbox)

        for (request, step) in [(2, 1_000_000), (3, -2_000_000)] {
            world.wallShift.withLock { $0 = .seconds(step) }
            world.clock.advance(by: .seconds(10))
            await world.server.waitForRequest(request)
            await world.waitForRest(outbox)
        }

        #expect(world.server.applied.map(\.content) == ["a"])
    }

    @Test(arguments: [(-1_000, "a waiting"), (99, "a waiting"), (101, "a expired"), (1_000_000, "a expired")])
    func `OB-05 the age counts across launches, and a clock that was set back expires nothing`(
        downtime: Int,
        expected: String
    ) async throws {
        let world = OutboxWorld()
        world.server.react(.refuseConnection)
        let policy = MuxOutboxPolicy(maximumAge: .seconds(100), retry: .fixed(.seconds(10), maxAttempts: .max))
        do {
            let outbox = world.outbox(policy: policy)
            try await outbox.add(Note("a"))
            await world.waitForRest(outbox)
        }
        let later = world.relaunched(after: .seconds(downtime))
        world.server.react(.refuseConnection)
        let outbox = later.outbox(policy: policy)
        outbox.start()
        _ = await outbox.list

        await later.waitForRest(outbox)
        #expect(await outbox.list == [expected])
    }

    @Test func `OB-05 the count and the bytes of the changes are limited`() async throws {
        let world = OutboxWorld()
        world.server.react(.refuseConnection)
        let policy = MuxOutboxPolicy(maximumCount: 2, maximumBytes: 1_000)
        let outbox = world.outbox(policy: policy)
        try await outbox.add(Note("a"))
        await world.waitForRest(outbox)
        await #expect {
            try await outbox.add(Note(String(repeating: "x", count: 1_000)))
        } throws: { error in
            guard case MuxOutboxError.tooLarge(let bytes, 1_000)? = error as? MuxOutboxError else { return false }
            return bytes > 1_000
        }
        try await outbox.add(Note("b"))
        await #expect {
            try await outbox.add(Note("c"))
        } throws: {
            if case MuxOutboxError.tooManyChanges(2)? = $0 as? MuxOutboxError { true } else { false }
        }
        #expect(await outbox.list == ["a waiting", "b waiting"])
        outbox.retryNow()
        await world.server.waitForApplied(2)
        await world.waitForRest(outbox)
        try await outbox.add(Note("d"))
        await world.server.waitForApplied(3)
        await world.waitForRest(outbox)
    }

    @Test func `OB-05 a change of 50 MB is refused with an error`() async throws {
        let world = OutboxWorld()
        let outbox = world.outbox()
        await #expect {
            try await outbox.add(Note(String(repeating: "x", count: 50_000_000)))
        } throws: {
            if case MuxOutboxError.tooLarge? = $0 as? MuxOutboxError { true } else { false }
        }
        #expect(await outbox.list.isEmpty)
        try await outbox.add(Note("a"))
        await world.server.waitForApplied()
        await world.waitForRest(outbox)
    }

    @Test func `OB-05 an order closure that throws is an error of add`() async throws {
        struct NoLane: Error {}
        let world = OutboxWorld()
        let outbox = world.outbox(order: { _ in throw NoLane() })
        await #expect {
            try await outbox.add(Note("a"))
        } throws: {
            if case MuxOutboxError.invalidChange(let cause)? = $0 as? MuxOutboxError { cause is NoLane } else { false }
        }
        #expect(await outbox.list.isEmpty)
    }
}

@Suite(.standard)
struct OutboxListTests {
    private static func wait(
        _ states: inout AsyncStream<[MuxOutbox<Note>.PendingChange]>.Iterator,
        for expected: String
    ) async {
        while let list = await states.next(isolation: nil) {
            if list.map({ "\($0.change?.text ?? "-") \($0.state)" }).joined(separator: ", ") == expected { return }
        }
    }

    @Test func `OB-10 the states of the outbox follow each change`() async throws {
        let world = OutboxWorld()
        let gate = Gate<Void>()
        world.server.react(.wait { try? await gate.pass() }, .refuse(status: 400, "Bad."))
        let outbox = world.outbox()
        var states = outbox.states.makeAsyncIterator()
        #expect(await states.next(isolation: nil)?.isEmpty == true)

        let id = try await outbox.add(Note("a"))
        try await outbox.add(Note("b"))

        await Self.wait(&states, for: "a sending, b waiting")
        gate.open()
        await Self.wait(&states, for: "b refused(\"Bad.\")")
        let failed = await outbox.pending
        #expect(failed.map(\.hasFailed) == [true])
        #expect(failed.map(\.attempts) == [1])
        try await outbox.retry(failed[0].id)
        await Self.wait(&states, for: "")
        #expect(world.server.applied.first?.key == id)
        await world.waitForRest(outbox)
        for (kind, count) in [
            (MuxEvent.Kind.changeAdded, 2), (.changeSending, 3), (.changeConfirmed, 2), (.changeFailed, 1),
        ] {
            #expect(world.events.count(of: kind) == count)
        }
        #expect(world.events.events.filter { $0.kind == .changeFailed }.map(\.reason) == [.status(400)])
        #expect(Set(world.events.events.filter { $0.kind == .changeAdded }.map(\.name)) == ["Notes"])
    }

    @Test func `OB-10 a discarded change is not sent, also after a relaunch`() async throws {
        let world = OutboxWorld()
        world.server.react(.refuseConnection)
        let outbox = world.outbox()
        let id = try await outbox.add(Note("a"))
        try await outbox.add(Note("b"))
        await world.waitForRest(outbox)

        try await outbox.discard(id)
        try await outbox.discard(id)
        try await outbox.retry(id)

        await world.server.waitForApplied()
        await world.waitForRest(outbox)
        #expect(world.server.applied.map(\.content) == ["b"])
        #expect(await world.relaunched().outbox().list.isEmpty)
    }

    @Test(arguments: [true, false])
    func `OB-06 a request for a change in a file that cannot be read is an error`(isDiscard: Bool) async throws {
        let world = OutboxWorld()
        world.server.react(.refuse(status: 409, "No."))
        let id: String
        do {
            let outbox = world.outbox()
            id = try await outbox.add(Note("a"))
            await world.server.waitForRequest()
            await world.waitForRest(outbox)
        }
        let later = world.relaunched()
        let isBroken = Locked(true)
        let fileSystem = RecordingFileSystem { _, call in
            isBroken.withLock { $0 } && call.operation == .read ? .refuse(EIO) : nil
        }
        let outbox = later.outbox(fileSystem: fileSystem)
        await #expect {
            if isDiscard { try await outbox.discard(id) } else { try await outbox.retry(id) }
        } throws: {
            if case MuxOutboxError.notStored? = $0 as? MuxOutboxError { true } else { false }
        }
        isBroken.withLock { $0 = false }
        if isDiscard { try await outbox.discard(id) } else { try await outbox.retry(id) }
        await later.waitForRest(outbox)
        #expect(await outbox.list.isEmpty)
        #expect(world.server.applied.count == (isDiscard ? 0 : 1))
    }

    @Test func `OB-06 a record of a later version is kept, listed, and blocks only its lane`() async throws {
        let world = OutboxWorld()
        world.server.react(.refuseConnection, .refuseConnection)
        do {
            let outbox = world.outbox()
            for (text, lane) in [("1", "a"), ("2", "a"), ("3", "b")] { try await outbox.add(Note(text, in: lane)) }
            await world.waitForRest(outbox)
        }
        // The second change becomes a record of version 2.
        let codec = RecordCodec(store: 0x6d75_786f_7574_6278)
        var lines = try Data(contentsOf: world.file).split(separator: 0x0a).map { [UInt8]($0) }
        let place = try #require(lines.firstIndex { String(decoding: $0, as: UTF8.self).contains("\"text\":\"2\"") })
        var entry = try #require(codec.entry(in: lines[place - 1] + [0x0a] + lines[place] + [0x0a]))
        entry.schemaVersion = 2
        let record = try codec.record(of: entry).split(separator: 0x0a).map { [UInt8]($0) }
        lines.replaceSubrange((place - 1)...place, with: record)
        try Data(lines.flatMap { $0 + [0x0a] }).write(to: world.file)
        let later = world.relaunched()

        let outbox = later.outbox()
        try await outbox.add(Note("4", in: "a"))
        try await outbox.add(Note("5", in: "b"))

        await world.server.waitForApplied(3)
        await later.waitForRest(outbox)
        #expect(world.server.applied.map(\.content).sorted() == ["1", "3", "5"])
        #expect(await outbox.list == ["- unreadable", "4 waiting"])
        let listed = await outbox.pending
        #expect(listed.map(\.lane) == ["a", "a"])
        #expect(listed[0].change == nil && listed[0].hasFailed)
        // A rewrite keeps the record, and the later version reads the record.
        let content = try Data(contentsOf: world.file)
        #expect(content.firstRange(of: Data(try codec.record(of: entry))) != nil)
        // The app can discard the record.
        try await outbox.discard(listed[0].id)
        await world.server.waitForApplied(4)
        await later.waitForRest(outbox)
        #expect(await later.relaunched().outbox().list.isEmpty)
    }

    @Test func `OB-06 a change of another type is kept, and sent by a version that can read it`() async throws {
        struct Other: Codable, Sendable { var count: Int }
        let world = OutboxWorld()
        let sent = Locked<[Int]>([])
        func other(_ world: OutboxWorld) -> MuxOutbox<Other> {
            MuxOutbox(
                "Notes",
                repository: world.repository,
                directory: world.folder,
                wakingOn: []
            ) { change, _ in
                guard world.scratch.folder.path.isEmpty == false,
                    sent.withLock({
                        $0.append(change.count)
                        return true
                    })
                else { return }
            }
        }
        world.server.react(.refuseConnection)
        do {
            let outbox = world.outbox(order: { _ in "" })
            try await outbox.add(Note("a"))
            await world.waitForRest(outbox)
        }
        let later = world.relaunched()
        let outbox = other(later)
        #expect(await outbox.pending.map(\.state) == [.unreadable])
        try await outbox.add(Other(count: 1))
        await settled {
            outbox.waitCount
        } when: {
            $0 == 0
        }
        #expect(sent.withLock { $0 }.isEmpty, "the lane waits for its first change")

        let last = later.relaunched()
        let again = last.outbox(order: { _ in "" })
        again.start()

        await world.server.waitForApplied()
        await last.waitForRest(again)
        #expect(world.server.applied.map(\.content) == ["a"])
        #expect(await again.list == ["- unreadable"])
    }

    @Test func `OB-06 a retry of a failed change that cannot be read has no effect`() async throws {
        struct Other: Codable, Sendable { var count: Int }
        let world = OutboxWorld()
        world.server.react(.refuse(status: 422, "invalid"))
        do {
            let outbox = world.outbox(order: { _ in "" })
            try await outbox.add(Note("a"))
            await world.waitForRest(outbox)
        }
        let later = world.relaunched()
        let sent = Locked<[Int]>([])
        let outbox = MuxOutbox<Other>(
            "Notes",
            repository: later.repository,
            directory: later.folder,
            wakingOn: []
        ) { change, _ in sent.withLock { $0.append(change.count) } }
        let listed = await outbox.pending
        #expect(listed.map(\.state) == [.unreadable])

        try await outbox.retry(try #require(listed.first).id)
        try await outbox.add(Other(count: 1))

        #expect(await settled({ sent.withLock(\.self) }, when: { $0 == [1] }) == [1], "the lane waits")
    }

    @Test func `OB-06 a failed change that cannot be read does not permit a blocked change`() async throws {
        struct Other: Codable, Sendable { var count: Int }
        let world = OutboxWorld()
        let server = world.server
        server.react(.refuse(status: 422, "No."), .refuse(status: 422, "No."))
        do {
            let outbox = world.outbox(order: { _ in "" })
            try await outbox.add(Note("a"))
            await world.waitForRest(outbox)
        }
        let later = world.relaunched()
        let outbox = MuxOutbox<Other>(
            "Notes",
            repository: later.repository,
            directory: later.folder,
            wakingOn: []
        ) { change, attempt in
            try await server.receive("\(change.count)", key: attempt.idempotencyKey)
        }
        outbox.blocked { later, failed in later.count == failed.count + 1 }

        for count in [1, 2, 4] { try await outbox.add(Other(count: count)) }

        await server.waitForApplied()
        await settled {
            outbox.waitCount
        } when: {
            $0 == 0
        }
        #expect(server.applied.map(\.content) == ["4"])
        #expect(await outbox.pending.map(\.state) == [.unreadable, .refused("No."), .waiting])
    }

    @Test func `OB-06 a log of a later format refuses changes with an error, and stays unchanged`() async throws {
        let world = OutboxWorld()
        world.server.react(.refuseConnection)
        do {
            let outbox = world.outbox()
            try await outbox.add(Note("a"))
            await world.waitForRest(outbox)
        }
        var data = try Data(contentsOf: world.file)
        data += ChecksummedLine.sealed(Array("\",\"kind\":\"other\"}".utf8), version: 2) + [0x0a] + Data("null\n".utf8)
        try data.write(to: world.file)
        let later = world.relaunched()
        let outbox = later.outbox()

        await #expect {
            try await outbox.add(Note("b"))
        } throws: {
            if case MuxOutboxError.notStored(MuxStoreError.newerFormat)? = $0 as? MuxOutboxError { true } else { false }
        }

        #expect(await outbox.list == ["a waiting"])
        #expect(try Data(contentsOf: world.file).starts(with: data))
        #expect(world.server.requestCount == 1)
    }

    @Test func `OB-06 altered and missing bytes of the log lose no other change, and are listed`() async throws {
        let world = OutboxWorld(server: FakeChangeServer { _, _ in .refuseConnection })
        do {
            let outbox = world.outbox()
            for text in ["1", "2", "3"] { try await outbox.add(Note(text, in: text)) }
            await world.waitForRest(outbox)
        }
        let data = try Data(contentsOf: world.file)
        let range = try #require(data.firstRange(of: Data("\"lane\":\"2\"".utf8)))
        var starts: [Int] = []
        for place in range.lowerBound - 300..<range.upperBound { starts.append(place) }
        for place in starts where place.isMultiple(of: Scratch.stride) {
            let scratch = Scratch(isInspected: false)
            let altered = OutboxWorld(scratch, server: FakeChangeServer())
            let folder = altered.file.deletingLastPathComponent()
            try FileManager.default.createDirectory(
                at: folder,
                withIntermediateDirectories: true,
                attributes: [.posixPermissions: 0o700]
            )
            var bytes = data
            bytes[place] ^= 1
            try bytes.write(to: altered.file)
            try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: altered.file.path)

            let outbox = altered.outbox()
            outbox.start()

            await altered.server.waitForApplied(1)
            await altered.waitForRest(outbox)
            let all = Set(altered.server.applied.map(\.content))
            let listed = await outbox.pending
            #expect(all.count + listed.count >= 3, "at \(place): \(all), \(listed)")
            #expect(all.isSuperset(of: listed.isEmpty ? ["1", "2", "3"] : ["3"]), "at \(place): \(all), \(listed)")
        }
    }
}
