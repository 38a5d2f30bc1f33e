import Foundation
import MuxKit
import MuxOutbox
import MuxTestSupport
import MuxTesting
import Testing

/// The log of an outbox, as several processes see the log.
@Suite(.standard)
struct OutboxLogTests {
    private let scratch = Scratch(isInspected: false)
    private let codec = RecordCodec(store: 0x6d75_786f_7574_6278)

    private var folder: URL { self.scratch.folder.appending(component: "log") }
    private var file: URL { self.folder.appending(component: "changes.jsonl") }

    private func log(_ fileSystem: any FileSystem = POSIXFileSystem()) -> OutboxLog {
        OutboxLog(
            StoreFolder(self.folder),
            policy: MuxOutboxPolicy(maximumAge: .seconds(100), maximumCount: 100, maximumBytes: 100_000),
            fileSystem: fileSystem,
            problems: StorageProblems(),
            wallTime: { Date(timeIntervalSince1970: 1_000_000) },
            time: TimeSource(VirtualClock())
        )
    }

    private func add(_ id: String, _ log: OutboxLog) throws {
        try log.update { log throws(MuxStoreError) in try? log.append(Data("1".utf8), id: id, lane: "lane") }
    }

    /// The changes that a process finds that starts now.
    private func found(_ prepare: (OutboxLog) -> Void = { _ in }) throws -> [String] {
        let log = self.log()
        try log.update { log throws(MuxStoreError) in prepare(log) }
        return log.machine.all.map(\.id)
    }

    private func entry(_ kind: String, _ id: String, session: UInt64, version: Int = 1) -> MuxStoredEntry {
        MuxStoredEntry(
            name: MuxStoreKey(domain: kind, key: id),
            schemaVersion: version,
            sessionEpoch: session,
            fetchedAt: Date(timeIntervalSince1970: 1_000_000),
            timeToLive: .zero,
            validator: "lane",
            payload: Data("1".utf8)
        )
    }

    private func append(_ entry: MuxStoredEntry) throws {
        let handle = try FileHandle(forWritingTo: self.file)
        try handle.seekToEnd()
        try handle.write(contentsOf: Data(try self.codec.record(of: entry)))
        try handle.close()
    }

    @Test func `OB-01 an end that could not be written is written by the next operation`() throws {
        let isBroken = Locked(false)
        let log = self.log(
            RecordingFileSystem { _, call in
                isBroken.withLock { $0 } && call.operation == .write ? .refuse(EIO) : nil
            }
        )
        try self.add("a", log)
        try self.add("b", log)
        isBroken.withLock { $0 = true }
        #expect(throws: MuxStoreError.self) { try log.update { log throws(MuxStoreError) in try log.discard("a") } }
        #expect(log.machine.all.map(\.id) == ["b"])
        #expect(try self.found() == ["a", "b"])
        isBroken.withLock { $0 = false }

        try log.update { _ in }

        #expect(try self.found() == ["b"])
    }

    @Test func `OB-01 a change that could not be synchronized leaves no record`() throws {
        let isBroken = Locked(false)
        let log = self.log(
            RecordingFileSystem { _, call in
                isBroken.withLock { $0 } && call.operation == .synchronize ? .refuse(EIO) : nil
            }
        )
        try self.add("a", log)
        isBroken.withLock { $0 = true }
        try self.add("b", log)
        isBroken.withLock { $0 = false }
        #expect(log.machine.all.map(\.id) == ["a"])
        #expect(try self.found() == ["a"])
        try self.add("c", log)
        #expect(try self.found() == ["a", "c"])
    }

    @Test func `OB-01 the names of the file and of its folder are synchronized before an addition ends`() throws {
        let fileSystem = RecordingFileSystem()
        // Another process made the folder, and was killed before the synchronization.
        try FileManager.default.createDirectory(
            at: self.folder,
            withIntermediateDirectories: true,
            attributes: [.posixPermissions: 0o700]
        )
        try self.add("a", self.log(fileSystem))
        let folders = fileSystem.calls.filter { $0.operation == .synchronizeFolder }.map(\.name)
        #expect(folders.suffix(2) == ["log", self.scratch.folder.lastPathComponent])
    }

    @Test func `OB-04 a sign-out on a full disk removes the changes from the file`() throws {
        let isFull = Locked(false)
        let log = self.log(
            RecordingFileSystem { _, call in
                isFull.withLock { $0 } && call.operation == .write ? .refuse(ENOSPC) : nil
            }
        )
        try self.add("a", log)
        isFull.withLock { $0 = true }

        try log.update { log throws(MuxStoreError) in try log.beginSession(1) }

        #expect(try Data(contentsOf: self.file).isEmpty)
        isFull.withLock { $0 = false }
        try self.add("b", log)
        #expect(try self.found() == ["b"])
    }

    @Test func `OB-07 a process notices a sign-out on a full disk by another process, and loses no change`() throws {
        let isFull = Locked(false)
        let (first, second) = (
            self.log(),
            self.log(
                RecordingFileSystem { _, call in
                    isFull.withLock { $0 } && call.operation == .write ? .refuse(ENOSPC) : nil
                }
            )
        )
        try self.add("a", first)
        try second.update { _ in }
        isFull.withLock { $0 = true }
        try second.update { log throws(MuxStoreError) in try log.beginSession(1) }
        isFull.withLock { $0 = false }
        for id in ["b", "c"] { try self.add(id, second) }

        for _ in 0..<2 { try first.update { _ in } }

        #expect(first.machine.all.map(\.id) == ["b", "c"])
    }

    @Test func `OB-04 a later session is written by the next operation, and by each later record`() throws {
        try self.add("a", self.log())
        #expect(try self.found { $0.drop(before: 3) } == [])
        #expect(try self.found() == ["a"], "an operation writes the session of an earlier operation")
        let log = self.log()
        try log.update { log throws(MuxStoreError) in log.drop(before: 3) }
        try log.update { _ in }
        #expect(try self.found() == [])
        #expect(try !Data(contentsOf: self.file).contains(UInt8(ascii: "1")) || self.found().isEmpty)

        try self.add("b", log)
        try self.append(self.entry("add", "c", session: 7))
        #expect(try self.found() == ["c"])
    }

    @Test func `OB-05 the age of a change from the future is at most the limit`() throws {
        let log = self.log()
        #expect(log.expiry(since: 1_000_000) == Duration.seconds(100).saturatedNanoseconds)
        #expect(log.expiry(since: 1_000_000 - 40) == Duration.seconds(60).saturatedNanoseconds)
        #expect(log.expiry(since: 1_000_000 + 5_000) == Duration.seconds(100).saturatedNanoseconds)
        #expect(log.expiry(since: 0) == 0)
    }

    @Test func `OB-06 a state of a later version makes the change unreadable, and is kept by a rewrite`() throws {
        try self.add("a", self.log())
        let later = self.entry("state", "a", session: 0, version: 2)
        try self.append(later)
        let log = self.log()
        try log.update { log throws(MuxStoreError) in try log.rewrite() }
        for log in [log, self.log()] {
            try log.update { _ in }
            #expect(log.machine.all.map(\.isReadable) == [false])
            let lanes = log.machine.startLanes(upTo: 1)
            #expect(lanes == [])
        }
        #expect(try Data(contentsOf: self.file).firstRange(of: Data(try self.codec.record(of: later))) != nil)
    }

    @Test func `OB-06 a discarded damaged record is not listed again`() throws {
        try self.add("a", self.log())
        var data = try Data(contentsOf: self.file)
        data += Data("damage\n".utf8)
        try data.write(to: self.file)
        try self.add("b", self.log())
        let log = self.log()
        try log.update { _ in }
        let damaged = try #require(log.machine.all.first { $0.lane == nil })
        #expect(log.machine.count == 3)

        try log.update { log throws(MuxStoreError) in try log.discard(damaged.id) }

        #expect(try self.found() == ["a", "b"])
    }

    @Test func `OB-06 a damaged first record is listed, and dropped only by a sign-out`() throws {
        try self.add("a", self.log())
        var data = Data("damage\n".utf8)
        data += Data(try self.codec.record(of: self.entry("add", "b", session: 3)))
        try data.write(to: self.file)
        let log = self.log()

        try log.update { log throws(MuxStoreError) in log.drop(before: 3) }

        #expect(log.machine.all.map(\.lane) == [nil, "lane"])
        #expect(log.machine.violation == nil)
        let drops = log.takeEvents().filter(\.isDrop)
        #expect(drops.isEmpty)
        #expect(try self.found().count == 2)
        try log.update { log throws(MuxStoreError) in try log.beginSession(4) }
        #expect(try self.found() == [])
    }

    @Test func `OB-06 damage in a file without a record is listed, and dropped only by a sign-out`() throws {
        try self.add("a", self.log())
        for isSignOut in [false, true] {
            try Data("damage\n".utf8).write(to: self.file)
            let log = self.log()

            try log.update { log throws(MuxStoreError) in
                if isSignOut { try log.beginSession(3) } else { log.drop(before: 3) }
            }

            #expect(log.machine.session == 3)
            #expect(log.machine.all.map(\.lane) == (isSignOut ? [] : [nil]))
            #expect(log.takeEvents().contains(where: \.isDrop) == isSignOut)
            #expect(try self.found().count == (isSignOut ? 0 : 1))
        }
    }

    @Test func `OB-06 a discarded record of a later version is not listed again`() throws {
        try self.add("a", self.log())
        try self.append(self.entry("add", "b", session: 0, version: 2))
        let log = self.log()
        try log.update { _ in }
        #expect(log.machine.all.map(\.isReadable) == [true, false])

        try log.update { log throws(MuxStoreError) in try log.discard("b") }

        #expect(try self.found() == ["a"])
    }

    @Test func `OB-07 a change that another process has ended does not return with an unsaved state`() throws {
        let isBroken = Locked(false)
        let first = self.log(
            RecordingFileSystem { _, call in
                isBroken.withLock { $0 } && call.operation == .write ? .refuse(ENOSPC) : nil
            }
        )
        try self.add("a", first)
        try self.add("b", first)
        isBroken.withLock { $0 = true }
        let item = try #require(first.machine["a"])
        #expect(throws: MuxStoreError.self) { try first.update { log throws(MuxStoreError) in try log.write(item) } }
        let second = self.log()
        try second.update { log throws(MuxStoreError) in
            try log.discard("a")
            try log.rewrite()
        }
        isBroken.withLock { $0 = false }

        try first.update { _ in }

        #expect(first.machine.all.map(\.id) == ["b"])
        #expect(try self.found() == ["b"])
    }

    @Test func `OB-07 a process continues to read, and notices a rewrite by another process`() throws {
        let (first, second) = (self.log(), self.log())
        try self.add("a", first)
        try self.add("b", second)
        try first.update { log throws(MuxStoreError) in try log.discard("a") }
        try second.update { log throws(MuxStoreError) in try log.rewrite() }
        try self.add("c", first)
        try second.update { _ in }
        #expect(first.machine.all.map(\.id) == ["b", "c"])
        #expect(second.machine.all.map(\.id) == ["b", "c"])
        #expect(try self.found() == ["b", "c"])
    }
}
