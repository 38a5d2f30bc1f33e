import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Folders of values and tokens are excluded from backups and protected if the file system supports that.
@Suite(.standard)
struct FolderMarkTests {
    /// A file system that refuses to mark folders.
    private static func unable() -> RecordingFileSystem {
        RecordingFileSystem { _, call in call.operation == .mark ? .refuse(POSIXFileSystem.ioError) : nil }
    }

    /// Whether the first mark precedes the first write.
    private static func isMarkedFirst(_ fileSystem: RecordingFileSystem) -> Bool {
        let operations = fileSystem.calls.map(\.operation)
        guard let mark = operations.firstIndex(of: .mark), let write = operations.firstIndex(of: .write) else {
            return false
        }
        return mark < write
    }

    @Test func `CO-32 a folder of values is used although it cannot be marked`() async throws {
        let (scratch, fileSystem) = (Scratch(), Self.unable())

        try await scratch.store(fileSystem).save([sample("a")], durability: .relaxed)

        #expect(try await scratch.store().load(name("a")) == sample("a"))
        #expect(Self.isMarkedFirst(fileSystem))
    }

    @Test func `CO-32 a folder of tokens is marked before the first write, and a failure is ignored`() async throws {
        let scratch = Scratch()
        let fileSystem = Self.unable()
        let store = ProtectedFileTokenStore(named: "session", directory: scratch.folder, fileSystem: fileSystem)

        try await store.save(Data("one".utf8))

        #expect(try await store.load() == Data("one".utf8))
        #expect(Self.isMarkedFirst(fileSystem))
    }
}
