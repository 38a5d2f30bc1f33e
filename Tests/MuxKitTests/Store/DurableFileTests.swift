import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct DurableFileTests {
    private func file(_ scratch: Scratch, _ fileSystem: any FileSystem = POSIXFileSystem()) -> DurableFile {
        DurableFile("token", in: scratch.root.path, fileSystem: fileSystem)
    }

    @Test func `DK-11 only the owner can access a durable file, also if it replaces a public file`() throws {
        let scratch = Scratch()
        try FileManager.default.createDirectory(at: scratch.root, withIntermediateDirectories: true)
        let url = scratch.root.appending(component: "token")
        try Data("old".utf8).write(to: url)
        try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: url.path)

        try self.file(scratch).write(Data("new".utf8))

        #expect(try scratch.mode(url) == 0o600)
        #expect(try self.file(scratch).read() == Data("new".utf8))
        #expect(scratch.listing == ["token"])
    }

    @Test func `DK-02 an absent, an empty and an unreadable durable file are distinct`() throws {
        let scratch = Scratch()
        #expect(try self.file(scratch).read() == nil)
        try self.file(scratch).write(Data())
        #expect(try self.file(scratch).read() == Data())

        let broken = RecordingFileSystem { _, call in call.operation == .open ? .refuse(EACCES) : nil }
        #expect(throws: MuxStoreError.fileSystem(.open, code: EACCES)) { try self.file(scratch, broken).read() }
        try self.file(scratch).remove()
        try self.file(scratch).remove()
        #expect(try self.file(scratch).read() == nil)
    }

    @Test func `DK-02 a write that stops at any call leaves the old or new file and removable leftovers`() throws {
        let recorder = RecordingFileSystem()
        let first = Scratch()
        try self.file(first).write(Data("old".utf8))
        try self.file(first, recorder).write(Data("new".utf8))
        #expect(recorder.calls.map(\.operation) == [.open, .write, .synchronize, .rename, .synchronizeFolder])

        for number in 1...recorder.calls.count {
            let scratch = Scratch()
            try self.file(scratch).write(Data("old".utf8))
            let dying = RecordingFileSystem { count, _ in count == number ? .fail(after: 1, EIO) : nil }
            #expect(throws: MuxStoreError.self) { try self.file(scratch, dying).write(Data("new".utf8)) }
            #expect(try self.file(scratch).read() == Data((number < 5 ? "old" : "new").utf8))
            try self.file(scratch).removeLeftovers()
            #expect(scratch.listing == ["token"])
        }
    }

    @Test func `DK-02 a relaxed write omits the syncs`() throws {
        let scratch = Scratch()
        try self.file(scratch).write(Data("old".utf8))
        let recorder = RecordingFileSystem()

        try self.file(scratch, recorder).write(Data("new".utf8), durability: .relaxed)

        #expect(recorder.calls.map(\.operation) == [.open, .write, .rename])
    }

    @Test func `DK-04 a path with a zero byte is refused, not truncated`() {
        let fileSystem = POSIXFileSystem()
        let path = FileManager.default.temporaryDirectory.path + "/a\u{0}b"

        #expect(throws: MuxStoreError.fileSystem(.open, code: EINVAL)) { try fileSystem.openFile(path, for: .append) }
        #expect(throws: MuxStoreError.fileSystem(.makeFolder, code: EINVAL)) { try fileSystem.makeFolder(path) }
        #expect(MuxStoreError.fileSystem(.open, code: ENOSPC).localizedDescription.contains("No space left"))
    }

    @Test func `DK-10 a lock ends with its file although a starting child process has a copy`() throws {
        let scratch = Scratch()
        try FileManager.default.createDirectory(at: scratch.root, withIntermediateDirectories: true)
        let path = scratch.root.appending(component: "part").path
        let system = POSIXFileSystem()
        func lockedCopy() throws -> Int32 {
            let file = try system.openFile(path, for: .append)
            #expect(try system.tryLock(file))
            return dup(file.descriptor)
        }

        let copy = try lockedCopy()

        #expect(try system.tryLock(try system.openFile(path, for: .append)))
        close(copy)
    }
}
