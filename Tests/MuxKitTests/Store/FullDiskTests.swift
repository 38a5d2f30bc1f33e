import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// On a full disk saves, clears and sign-outs continue to work, and all values reported as saved are found.
@Suite(.standard)
struct FullDiskTests {
    private typealias Map = MultiplexerMap<Int, String>

    private static let disks: [(size: Int64, code: Int32)] = [(256 << 10, ENOSPC), (256 << 10, EDQUOT)]

    /// File systems of a few hundred kilobytes, which `Tests/Interop/disk/run` mounts.
    private static let mounted = (ProcessInfo.processInfo.environment["MUX_SMALL_DISKS"] ?? "").split(separator: ":")
        .map { URL(filePath: String($0), directoryHint: .isDirectory) }

    /// A value of `size` bytes that contains its key and number.
    private func value(_ key: Int, _ number: Int, _ size: Int) -> String {
        let text = "value \(key) \(number) "
        return text + String(repeating: "x", count: max(0, size - text.count))
    }

    /// An entry whose payload is a value of `size` bytes.
    private func entry(_ key: Int, _ number: Int, size: Int = 4_000) -> MuxStoredEntry {
        var entry = sample("\(key)", number)
        entry.payload = Data("\"\(self.value(key, number, size))\"".utf8)
        return entry
    }

    /// Saves 350 values one by one, with live values of a third of the disk's size, and checks the values
    /// that a new process finds.
    private func saveMany(_ store: JournalStore, _ other: () -> JournalStore, size: Int64) async throws {
        let repository = MuxRepository(store: store, durability: .relaxed)
        let map = Map(cacheKey: "Map", repository: repository) { _ in "fetched" }
        let keys = Int(size / 3 / 4_096)
        var failed = 0
        for number in 0..<350 {
            map.store(self.value(number % keys, number, 4_000), key: number % keys)
            let report = await repository.saveAll()
            if report.saved != 1 || !report.isComplete { failed += 1 }
        }
        #expect(failed == 0)
        let later = Map(cacheKey: "Map", repository: MuxRepository(store: other())) { _ in "fetched" }
        for key in 0..<keys {
            let last = stride(from: key, to: 350, by: keys).map(\.self).last ?? -1
            #expect(await later.loadCachedValue(key: key) == self.value(key, last, 4_000))
        }
    }

    /// Saves more values than fit, in one save and one by one.
    private func saveTooMuch(_ store: JournalStore, _ other: () -> JournalStore, size: Int64) async throws {
        let repository = MuxRepository(store: store, durability: .full)
        let map = Map(cacheKey: "Map", repository: repository) { _ in "fetched" }
        let count = Int(size / 4_000) * 2
        for key in 0..<count { map.store(self.value(key, 0, 4_000), key: key) }
        let report = await repository.saveAll()
        #expect(report.saved > count / 5, "saved \(report.saved) of \(count)")
        #expect(report.saved + report.failed.count == count)
        let unsaved = Set(report.failed.compactMap(\.name.key))
        let later = Map(cacheKey: "Map", repository: MuxRepository(store: other())) { _ in "fetched" }
        for key in 0..<count {
            let found = await later.loadCachedValue(key: key)
            #expect(found == (unsaved.contains("\(key)") ? nil : self.value(key, 0, 4_000)))
        }

        await map.clear()
        for number in 0..<count {
            map.store(self.value(number, 1, 4_000), key: number)
            let report = await repository.saveAll()
            #expect(report.saved == 1 && report.isComplete, "\(number): \(report)")
            let last = Map(cacheKey: "Map", repository: MuxRepository(store: other())) { _ in "fetched" }
            #expect(await last.loadCachedValue(key: number) == self.value(number, 1, 4_000))
        }
        let large = self.value(-1, 0, Int(size) * 2)
        map.store(large, key: -1)
        #expect(await repository.saveAll().failed.count == 1)
        let last = Map(cacheKey: "Map", repository: MuxRepository(store: other())) { _ in "fetched" }
        #expect(await last.loadCachedValue(key: count - 1) != nil, "a value that cannot fit evicts no other")
    }

    @Test(arguments: disks)
    func `DS-02 saves on a full disk succeed and keep the saved values`(size: Int64, code: Int32) async throws {
        let scratch = Scratch()
        let disk = SmallDisk(scratch.root.path, capacity: size, code: code)
        try await self.saveMany(scratch.store(disk), { scratch.store() }, size: size)
        #expect(disk.used <= size)
    }

    @Test(arguments: disks)
    func `DS-02 a save that exceeds the disk keeps the values that fit`(size: Int64, code: Int32) async throws {
        let scratch = Scratch()
        let disk = SmallDisk(scratch.root.path, capacity: size, code: code)
        try await self.saveTooMuch(scratch.store(disk, indexFloor: 8), { scratch.store() }, size: size)
        #expect(disk.refusals > 0 && disk.used <= size)
    }

    @Test func `DS-02 a file system that counts no blocks has unknown free space`() {
        #expect(POSIXFileSystem.freeSpace(blocks: 0, available: 0, 4_096) == .max)
        #expect(POSIXFileSystem.freeSpace(blocks: 9, available: 0, 4_096) == 0)
        #expect(POSIXFileSystem.freeSpace(blocks: 9, available: 2, 4_096) == 8_192)
        #expect(POSIXFileSystem.freeSpace(blocks: .max, available: .max, 4_096) == .max)
    }

    @Test func `DS-02 a save on a full disk with unknown free space evicts other entries`() async throws {
        let scratch = Scratch()
        let disk = SmallDisk(scratch.root.path, capacity: 128 << 10, code: ENOSPC, countsBlocks: false)
        let store = scratch.store(disk)
        for key in 0..<64 { try await store.save([self.entry(key, 0)], durability: .relaxed) }
        #expect(disk.refusals > 0 && disk.used <= 128 << 10)
        #expect(try await scratch.store().load(name("63")) == self.entry(63, 0))
    }

    @Test(arguments: mounted)
    func `DS-02 a full real file system accepts saves, clears and sign-outs`(folder: URL) async throws {
        let values = try folder.resourceValues(forKeys: [.volumeTotalCapacityKey])
        let size = Int64(try #require(values.volumeTotalCapacity))
        #expect(size <= 1 << 20, "not a small disk")
        for (number, scenario) in [self.saveMany, self.saveTooMuch].enumerated() {
            let root = folder.appending(component: "\(number)")
            func store() -> JournalStore { JournalStore(directory: root) }
            try await scenario(store(), store, size)
            let repository = MuxRepository(store: store(), durability: .full)
            let map = Map(cacheKey: "Map", repository: repository) { _ in "fetched" }
            let filler = folder.appending(component: "filler")
            try? Data(count: Int(size)).write(to: filler)
            #expect(await map.clear(key: 0).isComplete)
            #expect(await map.loadCachedValue(key: 0) == nil)
            #expect(await repository.clearAll().isComplete)
            #expect(try await store().sessionEpoch() == 1)
            try? FileManager.default.removeItem(at: filler)
            try FileManager.default.removeItem(at: root)
        }
    }

    @Test(arguments: [ENOSPC, EDQUOT])
    func `DS-02 clears and sign-outs work on a full disk`(code: Int32) async throws {
        let scratch = Scratch()
        let disk = SmallDisk(scratch.root.path, capacity: 1 << 20, code: code)
        let store = scratch.store(disk)
        let repository = MuxRepository(store: store, durability: .full)
        let map = Map(cacheKey: "Map", repository: repository) { _ in "fetched" }
        for key in 0..<9 { map.store(self.value(key, 0, 5_000), key: key) }
        #expect(await repository.saveAll().saved == 9)
        disk.capacity = disk.used

        #expect(await map.clear(key: 3).isComplete)
        let other = scratch.store()
        #expect(try await other.load(name("3", domain: "Map")) == nil)
        for key in [0, 1, 2, 4, 5, 6, 7, 8] {
            #expect(try await other.load(name("\(key)", domain: "Map")) != nil, "not cleared: \(key)")
        }
        #expect(scratch.find("value 3 ").isEmpty)
        disk.capacity = disk.used
        #expect(await repository.clearAll().isComplete)
        #expect(try await scratch.store().sessionEpoch() == 1)
        #expect(try await scratch.store().load(name("5", domain: "Map")) == nil)
        #expect(scratch.find("value ").isEmpty)
        disk.capacity = 1 << 20
        map.store("new", key: 1)
        #expect(await repository.saveAll().saved == 1)
    }

    @Test func `DS-02 the space of replaced values is used before a live value is evicted`() async throws {
        let scratch = Scratch()
        let disk = SmallDisk(scratch.root.path, capacity: 1 << 20, code: ENOSPC)
        let store = scratch.store(disk)
        for key in 0..<12 { try await store.save([self.entry(key, 0)], durability: .relaxed) }
        for key in 0..<2 { try await store.save([self.entry(key, 1)], durability: .relaxed) }
        disk.capacity = disk.used

        try await store.save([self.entry(12, 0)], durability: .relaxed)

        #expect(disk.refusals > 0)
        let later = scratch.store()
        for key in 0...12 { #expect(try await later.load(name("\(key)")) == self.entry(key, key < 2 ? 1 : 0)) }
    }

    @Test func `DS-02 a value that does not fit removes its older version`() async throws {
        let scratch = Scratch()
        let disk = SmallDisk(scratch.root.path, capacity: 64 << 10, code: ENOSPC)
        let store = scratch.store(disk)
        try await store.save([self.entry(0, 0), self.entry(1, 0)], durability: .relaxed)

        let error = await #expect(throws: MuxStoreError.PartialSave.self) {
            try await store.save([self.entry(0, 1, size: 100_000), self.entry(2, 0)], durability: .relaxed)
        }

        #expect(error?.failures.map(\.name) == [name("0")])
        let later = scratch.store()
        #expect(try await later.load(name("0")) == nil)
        for key in 1...2 { #expect(try await later.load(name("\(key)")) == self.entry(key, 0)) }
    }

    @Test func `DS-02 a sign-out on a full disk frees the records' space and keeps the session file`()
        async throws
    {
        let scratch = Scratch()
        let disk = SmallDisk(scratch.root.path, capacity: 1 << 20, code: ENOSPC)
        let files = RecordingFileSystem(disk)
        let store = scratch.store(files)
        try await store.save((0..<4).map { self.entry($0, 0) }, durability: .relaxed)
        disk.capacity = disk.used
        files.restart()

        try await store.raiseSessionEpoch(to: 1)

        #expect(disk.refusals > 0)
        #expect(!files.calls.contains { $0.operation == .remove && $0.name == scratch.session.lastPathComponent })
        #expect(try await scratch.store().sessionEpoch() == 1)
    }

    @Test func `DS-02 a save that stops at any call on a full disk leaves the folder intact`() async throws {
        let prepared = Scratch()
        let size = Int64(64 << 10)
        for key in 0..<9 { try await prepared.store().save([self.entry(key, 0)], durability: .full) }
        for key in 0..<5 { try await prepared.store().save([self.entry(key, 1)], durability: .full) }

        var number = 0
        var isOver = false
        while !isOver {
            number += 1
            let scratch = try Scratch(copyOf: prepared)
            let fault = number
            let fileSystem = RecordingFileSystem(SmallDisk(scratch.root.path, capacity: size, code: ENOSPC)) {
                count,
                _ in
                count == fault ? .fail(after: 100, EIO) : nil
            }
            let store = scratch.store(fileSystem)
            try? await store.save([self.entry(0, 2), self.entry(10, 2), self.entry(11, 2)], durability: .full)
            isOver = fileSystem.calls.count < number
            let later = scratch.store()
            for key in 0..<12 {
                let found = try await later.load(name("\(key)"))
                let isOfAnyTime = found == nil || (0..<3).contains { found == self.entry(key, $0) }
                #expect(isOfAnyTime, "stopped at call \(number)")
                if isOver { #expect(found != nil || key == 9, "key \(key)") }
                if isOver, key < 5 { #expect(found == self.entry(key, key == 0 ? 2 : 1)) }
            }
            try await later.save([self.entry(1, 3)], durability: .full)
            #expect(try await scratch.store().load(name("1")) == self.entry(1, 3))
            #expect(try await later.brokenInvariants().isEmpty, "stopped at call \(number)")
        }
        #expect(number > 20)
    }
}
