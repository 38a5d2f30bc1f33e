import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct LostFolderTests {
    private static let paths = [
        "", "store", "store/journal", "store/journal/00000001.jsonl", "store/epoch.json", "store/lock",
        "store/journal/00000001.index",
    ]

    @Test(arguments: paths)
    func `CO-17 saved values are saved again after their folder is deleted at run time`(path: String) async throws {
        let scratch = Scratch()
        let repository = MuxRepository(store: scratch.store(indexFloor: 2), durability: .relaxed)
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: repository) { $0 }
        for key in 0..<5 { map.store(key, key: key) }
        #expect(await repository.saveAll().saved == 5)
        try FileManager.default.removeItem(at: scratch.folder.appending(path: path))

        let report = await repository.saveAll()
        let again = await repository.saveAll()

        // These removals keep the records; the session epoch is written again.
        let hasRecords = path.hasSuffix(".json") || path.hasSuffix("lock") || path.hasSuffix("index")
        #expect(report.unchanged == (hasRecords ? 5 : 0) && report.saved == (hasRecords ? 0 : 5))
        #expect(again.unchanged == 5 && again.isComplete)
        #expect(map.cachedValue(key: 1) == 1)
        let fresh = MuxRepository(store: scratch.store())
        let found = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: fresh) { _ in -1 }
        for key in 0..<5 { #expect(await found.loadCachedValue(key: key) == key) }
    }

    @Test(arguments: [false, true])
    func `DS-14 a sign-out watch continues after its folder is moved or deleted`(isDeleted: Bool) async throws {
        let scratch = Scratch()
        let other = scratch.store()
        try await other.raiseSessionEpoch(to: 1)
        let (looks, look) = AsyncStream<Void>.makeStream()
        let files = RecordingFileSystem { _, call in
            if call.name == "epoch.json" { look.yield() }
            return nil
        }
        let store = JournalStore(StoreFolder(scratch.root), watchesFolder: true, fileSystem: files)
        let watch = try #require(store.sessionWatch)
        let next = Task { try await watch(1) }
        // The watch observes the folder before its first read of the session file.
        for await _ in looks { break }

        if isDeleted {
            try FileManager.default.removeItem(at: scratch.root)
        } else {
            try FileManager.default.moveItem(at: scratch.root, to: scratch.folder.appending(component: "moved"))
        }
        try await other.raiseSessionEpoch(to: 2)

        #expect(try await next.value == 2)
    }

    @Test func `DS-14 the change sequence of a folder ends with the folder's removal`() async throws {
        let scratch = Scratch()
        let folder = scratch.folder.appending(component: "watched")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        let watch = FolderWatch(folder.path)
        defer { withExtendedLifetime(watch) {} }
        var changes = watch.changes.makeAsyncIterator()
        #expect(await changes.next() != nil)

        // On Linux each removal yields one or two elements until the sequence ends.
        var elements = 0
        try FileManager.default.removeItem(at: folder)
        while await changes.next() != nil {
            elements += 1
            try #require(elements < 5)
            try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
            try FileManager.default.removeItem(at: folder)
        }
        #expect(elements > 0)
    }

    @Test(arguments: paths)
    func `DS-14 a save after the deletion of any file leaves all values for the next process`(path: String) async throws
    {
        for isRead in [false, true] {
            let scratch = Scratch()
            let before = MuxRepository(store: scratch.store(indexFloor: 2), durability: .relaxed)
            if isRead {
                let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: before) { $0 }
                for key in 0..<5 { map.store(key, key: key) }
                #expect(await before.saveAll().saved == 5)
            }
            let repository = MuxRepository(store: scratch.store(indexFloor: 2), durability: .relaxed)
            let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: repository) { $0 }
            for key in 0..<5 { #expect(try await map.request(key: key) == key) }
            if !isRead { #expect(await repository.saveAll().saved == 5) }
            try FileManager.default.removeItem(at: scratch.folder.appending(path: path))

            map.store(7, key: 7)
            #expect(await repository.saveAll().isComplete)

            let fresh = MuxRepository(store: scratch.store())
            let found = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: fresh) { _ in -1 }
            for key in [0, 1, 2, 3, 4, 7] { #expect(await found.loadCachedValue(key: key) == key, "\(isRead)") }
            #expect(await repository.saveAll().isComplete)
            #expect(await map.clear(key: 1).isComplete)
            #expect(await repository.clearAll().isComplete)
            #expect(
                await MultiplexerMap<Int, Int>(cacheKey: "Map", repository: fresh) { _ in -1 }.loadCachedValue(key: 0)
                    == nil
            )
        }
    }

    #if compiler(>=6.3) && (os(macOS) || os(Linux))
    @Test(.onlyInWholeRuns) func `DS-10 a thousand repositories work with 1,024 descriptors`() async throws {
        let scratch = Scratch()
        try FileManager.default.createDirectory(at: scratch.root, withIntermediateDirectories: true)
        let path = scratch.root.path
        await #expect(processExitsWith: .success) { [path = path as String] in
            var limit = rlimit()
            #if canImport(Glibc)
            let descriptors = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
            #else
            let descriptors = RLIMIT_NOFILE
            #endif
            _ = getrlimit(descriptors, &limit)
            // The process inherits descriptors of concurrent tests; a program has at most eight.
            let inherited = (0..<Int32(clamping: limit.rlim_cur)).count { fcntl($0, F_GETFD) >= 0 }
            limit.rlim_cur = 1_016 + .init(inherited)
            guard setrlimit(descriptors, &limit) == 0 else { exit(3) }
            let folder = URL(filePath: path, directoryHint: .isDirectory)
            var maps: [Multiplexer<Int>] = []
            for number in 0..<1_000 {
                let repository = MuxRepository(directory: folder.appending(component: "\(number)"))
                let value = Multiplexer<Int>(cacheKey: "Value", repository: repository) { number }
                value.store(number)
                let report = await value.save()
                guard report.saved == 1 else { exit(4) }
                maps.append(value)
            }
            for (number, value) in maps.enumerated() {
                guard try await value.request() == number else { exit(5) }
                value.store(-number)
                guard await value.save().saved == 1 else { exit(6) }
            }
        }
    }
    #endif

    @Test func `CO-17 a sibling's compaction or a sign-out does not count as a loss of values`() async throws {
        let scratch = Scratch()
        let (one, other) = (scratch.store(), scratch.store())
        let repository = MuxRepository(store: one, durability: .relaxed)
        let number = Multiplexer<Int>(cacheKey: "Number", repository: repository) { 1 }
        number.store(1)
        await repository.saveAll()
        var large = sample("large")
        large.payload = Data("\"\(String(repeating: "x", count: 70_000))\"".utf8)
        try await other.save([large], durability: .relaxed)
        try await other.save([sample("large")], durability: .relaxed)
        #expect(await other.statistics().compactions == 1)
        #expect(await repository.saveAll().unchanged == 1)

        await repository.clearAll()
        number.store(2)
        #expect(await repository.saveAll().saved == 1)
        #expect(await repository.saveAll().unchanged == 1)
    }
}
