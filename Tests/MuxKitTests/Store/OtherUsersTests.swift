import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Folders and files that other users own or may write to.
@Suite(.standard)
struct OtherUsersTests {
    private static let user: UInt32 = 1000
    private static let folder = "/folder"

    private static func status(owner: UInt32, mode: UInt32, isLink: Bool = false) -> FileStatus {
        FileStatus(
            identity: .init(device: 1, node: 1),
            size: 0,
            linkCount: 1,
            mode: mode,
            isFolder: !isLink,
            isLink: isLink,
            owner: owner
        )
    }

    /// A file system without files, with the status of a folder and of a link's target.
    private static func checked(_ folder: FileStatus?, target: FileStatus? = nil) -> CheckedFileSystem {
        CheckedFileSystem(
            StatusFileSystem(folder: folder, target: target ?? folder),
            for: StoreFolder(.success(Self.folder)),
            problems: StorageProblems(),
            user: Self.user
        )
    }

    @Test func `AC-03 a folder is used if the user or root owns it and no other user can write to it`() throws {
        for owner: UInt32 in [0, 1, 1000, 1001, 65534] {
            for mode: UInt32 in [0o700, 0o755, 0o750, 0o500, 0o555, 0o770, 0o775, 0o757, 0o777, 0o1777, 0o2775, 0o702] {
                let isFine = [0, 1000].contains(owner) && mode & 0o022 == 0
                let files = Self.checked(Self.status(owner: owner, mode: mode))
                if isFine {
                    #expect(try files.checkFolder(Self.folder))
                    #expect(throws: Never.self) { try files.openFile(Self.folder + "/x", for: .create) }
                    #expect(try !files.makeFolder(Self.folder))
                } else {
                    #expect(throws: MuxStoreError.notPrivate) { try files.checkFolder(Self.folder) }
                    for access in [FileAccess.read, .append, .create] {
                        #expect(throws: MuxStoreError.notPrivate) {
                            try files.openFile(Self.folder + "/x", for: access)
                        }
                    }
                    #expect(throws: MuxStoreError.notPrivate) { try files.makeFolder(Self.folder) }
                }
            }
        }
        #expect(try !Self.checked(nil).checkFolder(Self.folder))
    }

    @Test func `AC-03 a link to a folder is followed if the link and the folder pass the check`() throws {
        for (link, owner, mode, isFine) in [
            (1000, 1000, 0o700, true), (0, 1000, 0o755, true), (1000, 0, 0o755, true), (1001, 1000, 0o700, false),
            (1000, 1001, 0o700, false), (1000, 1000, 0o775, false), (1000, 1000, 0o1777, false),
        ] as [(UInt32, UInt32, UInt32, Bool)] {
            let files = Self.checked(
                Self.status(owner: link, mode: 0o777, isLink: true),
                target: Self.status(owner: owner, mode: mode)
            )
            if isFine {
                #expect(try files.checkFolder(Self.folder))
            } else {
                #expect(throws: MuxStoreError.notPrivate) { try files.checkFolder(Self.folder) }
            }
        }
    }

    /// The paths whose status is changed, one in each test case.
    private static let parts = [
        "store", "store/lock", "store/epoch.json", "store/journal", "store/journal/00000001.jsonl",
    ]

    /// A file system in which another user owns `part`, or may write to it.
    private static func seen(_ part: String, isOwned: Bool) -> RecordingFileSystem {
        RecordingFileSystem(sees: { path, status in
            guard path.hasSuffix("/" + part) else { return status }
            var status = status
            if isOwned { status.owner = 4242 } else { status.mode |= 0o020 }
            return status
        })
    }

    @Test(arguments: Self.parts, [true, false])
    func `AC-03 no value is read from or saved to a store that another user may have written`(
        part: String,
        isOwned: Bool
    ) async throws {
        let scratch = Scratch(isInspected: false)
        try await scratch.store().save([sample("a")], durability: .full)
        let before = scratch.contents()
        let files = Self.seen(part, isOwned: isOwned)
        let events = EventTally()
        let store = scratch.store(files)
        let repository = MuxRepository(store: store, observer: events)

        await #expect(throws: MuxStoreError.notPrivate) { try await store.load(name("a")) }
        await #expect(throws: MuxStoreError.notPrivate) { try await store.save([sample("b")], durability: .full) }
        await events.wait(for: .storageFailed)
        let value = Multiplexer<Int>(cacheKey: "A", repository: repository) { 1 }
        #expect(try await value.request() == 1)
        #expect(await repository.saveAll().failed.first?.error as? MuxStoreError == .notPrivate)

        #expect(events.count(of: .storageFailed) == 1)
        #expect(scratch.contents() == before)
        // The store is usable as before once no other user can write to it.
        #expect(try await scratch.store().load(name("a")) == sample("a"))
    }

    @Test(arguments: ["tokens", OwnedName(.tokens, ["session"]).fileName], [true, false])
    func `AC-03 no token is read from or saved to a folder that another user may have written`(
        part: String,
        isOwned: Bool
    ) async throws {
        let folder = TemporaryFolder()
        defer { folder.remove() }
        try await ProtectedFileTokenStore(named: "session", directory: folder.url).save(Data("one".utf8))
        let before = folder.contents()
        let store = ProtectedFileTokenStore(
            named: "session",
            directory: folder.url,
            fileSystem: Self.seen(part, isOwned: isOwned)
        )

        await #expect(throws: MuxStoreError.notPrivate) { try await store.load() }
        await #expect(throws: MuxStoreError.notPrivate) { try await store.save(Data("two".utf8)) }
        await #expect(throws: MuxStoreError.notPrivate) { try await store.remove() }
        if part == "tokens" {
            await #expect(throws: MuxStoreError.notPrivate) { try await store.lease?.take(as: "a", for: .seconds(1)) }
        }

        #expect(folder.contents() == before)
    }

    @Test func `AC-03 without a home folder there is no store folder, and never a temporary folder`() {
        #expect(throws: Never.self) { try MuxStoreLocation.standard(environment: ["HOME": "/home/me"]) }
        for purpose in [MuxStoreLocation.Purpose.caches, .data] {
            let folder = try? MuxStoreLocation.standard(purpose, environment: [:]).path
            #expect(folder?.hasPrefix(FileManager.default.temporaryDirectory.path) != true)
        }
    }

    @Test func `AC-03 a repository without a folder reports the error and works in memory`() async throws {
        let events = EventTally()
        let store = JournalStore(StoreFolder(.failure(.noFolder)), byteLimit: nil)
        let repository = MuxRepository(store: store, observer: events)
        let value = Multiplexer<Int>(cacheKey: "A", repository: repository) { 1 }

        #expect(try await value.request() == 1)
        let report = await repository.saveAll()

        #expect(report.failed.first?.error as? MuxStoreError == .noFolder)
        await events.wait(for: .storageFailed)
        #expect(events.events.contains { $0.problem == MuxStoreError.noFolder.sentence })
        #expect(value.cachedValue == 1)
        #expect(repository.folder(.media).refusal == .noFolder)
    }

    #if compiler(>=6.3) && (os(macOS) || os(Linux))
    private static func make(_ url: URL, owner: Int, mode: Int) throws {
        try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
        try FileManager.default.setAttributes(
            [.ownerAccountID: owner, .groupOwnerAccountID: owner, .posixPermissions: mode],
            ofItemAtPath: url.path
        )
    }

    @Test(.ownThreads, .enabled(if: geteuid() == 0), arguments: [65_533, 65_534])
    func `AC-03 two users of the same program both save`(user: Int) async throws {
        let folder = TemporaryFolder()
        defer { folder.remove() }
        try Self.make(folder.url, owner: 0, mode: 0o1777)
        let home = folder.url.appending(component: "home-\(user)")
        try Self.make(home, owner: user, mode: 0o700)
        await #expect(processExitsWith: .success) { [home = home.path as String, user = user as Int] in
            setenv("HOME", home, 1)
            unsetenv("XDG_CACHE_HOME")
            #expect(setgid(gid_t(user)) == 0 && setuid(uid_t(user)) == 0)
            let repository = MuxRepository(directory: nil)
            let value = Multiplexer<Int>(cacheKey: "A", repository: repository) { 1 }
            _ = try await value.request()
            #expect(await repository.saveAll().saved == 1)
            let next = Multiplexer<Int>(cacheKey: "A", repository: MuxRepository(directory: nil)) { 2 }
            let found = try await next.request()
            #expect(found == 1)
        }
    }

    @Test(.ownThreads, .enabled(if: geteuid() == 0))
    func `AC-03 a user without a home folder reads and writes nothing in a shared folder`() async throws {
        await #expect(processExitsWith: .success) {
            unsetenv("HOME")
            unsetenv("XDG_CACHE_HOME")
            let user = UInt32(1_987_654_321)
            #expect(setgid(gid_t(user)) == 0 && setuid(uid_t(user)) == 0)
            let before = try FileManager.default.contentsOfDirectory(atPath: NSTemporaryDirectory())
            let repository = MuxRepository(directory: nil)
            let value = Multiplexer<Int>(cacheKey: "A", repository: repository) { 1 }
            let found = try await value.request()
            #expect(found == 1)
            #expect(await repository.saveAll().failed.first?.error as? MuxStoreError == .noFolder)
            let tokens = ProtectedFileTokenStore(named: "session")
            await #expect(throws: MuxStoreError.noFolder) { try await tokens.save(Data("x".utf8)) }
            let name = MuxStoreLocation.folderName(for: ProcessInfo.processInfo.processName)
            let after = try FileManager.default.contentsOfDirectory(atPath: NSTemporaryDirectory())
            #expect(before.contains(name) == after.contains(name))
        }
    }

    @Test(
        .ownThreads,
        .enabled(if: geteuid() == 0),
        arguments: [(65_533, 0o700), (65_533, 0o777), (65_534, 0o770), (65_534, 0o1777), (0, 0o777)]
    )
    func `AC-03 a folder that another user made or may write to is refused`(owner: Int, mode: Int) async throws {
        let folder = TemporaryFolder()
        defer { folder.remove() }
        try Self.make(folder.url, owner: 0, mode: 0o1777)
        let store = folder.url.appending(component: "store")
        try Self.make(store, owner: owner, mode: mode)
        await #expect(processExitsWith: .success) { [path = store.path as String] in
            #expect(setgid(65_534) == 0 && setuid(65_534) == 0)
            let store = JournalStore(directory: URL(filePath: path, directoryHint: .isDirectory))
            await #expect(throws: MuxStoreError.notPrivate) { try await store.save([sample("a")], durability: .full) }
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: store.path).isEmpty)
    }
    #endif
}

/// A file system without files that reports fixed statuses for its folder.
private struct StatusFileSystem: FileSystem {
    let folder: FileStatus?
    let target: FileStatus?

    func openFile(_ path: String, for access: FileAccess) -> OpenFile { OpenFile(descriptor: -1, path: path) { _ in } }
    func status(of file: OpenFile) throws(MuxStoreError) -> FileStatus {
        guard var status = self.target else { throw .fileSystem(.status, code: ENOENT) }
        status.mode &= 0o700
        return status
    }
    func status(at path: String) -> FileStatus? { self.folder }
    func targetStatus(at path: String) -> FileStatus? { self.target }
    func makeFolder(_ path: String) -> Bool { false }

    func read(_ file: OpenFile, at offset: Int64, count: Int) -> [UInt8] { [] }
    func append(_ bytes: ArraySlice<UInt8>, to file: OpenFile) -> Int { bytes.count }
    func truncate(_ file: OpenFile, to size: Int64) {}
    func synchronize(_ file: OpenFile) {}
    func synchronizeFolder(_ path: String) {}
    func move(_ path: String, to other: String) {}
    func removeFile(_ path: String) {}
    func removeFolder(_ path: String) {}
    func names(in path: String) -> [String] { [] }
    func setStoreAttributes(_ path: String) {}
    func lock(_ file: OpenFile) {}
    func unlock(_ file: OpenFile) {}
    func tryLock(_ file: OpenFile) -> Bool { true }
    func setModified(_ path: String, to nanoseconds: Int64) {}
    func freeSpace(at path: String) -> Int64 { 0 }
}

extension Scratch {
    /// The bytes of every file.
    fileprivate func contents() -> [String: Data] {
        self.listing.reduce(into: [:]) { contents, name in
            let url = self.root.appending(path: name)
            if !url.hasDirectoryPath { contents[name] = try? Data(contentsOf: url) }
        }
    }
}
