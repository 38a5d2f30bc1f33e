import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// A full, read-only or failing disk affects users only through reports.
@Suite(.standard)
struct DiskTroubleTests {
    enum FailureRecord: CaseIterable, Sendable {
        case full
        case readOnly
        case failing

        var fault: FileFault {
            switch self {
            case .full: .refuse(ENOSPC)
            case .readOnly: .refuse(EROFS)
            case .failing: .refuse(EIO)
            }
        }

        func concerns(_ operation: MuxStoreError.FileOperation) -> Bool {
            switch self {
            case .full: operation == .write
            case .readOnly: [.open, .write, .makeFolder, .rename, .remove, .truncate].contains(operation)
            case .failing: ![.status, .lock, .unlock].contains(operation)
            }
        }
    }

    @Test(arguments: FailureRecord.allCases)
    func `DK-12 requests succeed without the disk, and the next save stores all values`(failureRecord: FailureRecord)
        async throws
    {
        let scratch = Scratch()
        let isBroken = Locked(true)
        let fileSystem = RecordingFileSystem { _, call in
            isBroken.withLock { $0 } && failureRecord.concerns(call.operation) ? failureRecord.fault : nil
        }
        let store = scratch.store(fileSystem, byteLimit: 20_000, indexFloor: 2)
        let repository = MuxRepository(store: store)
        let map = MultiplexerMap<Int, Int>(cacheKey: "map", repository: repository) { $0 * 2 }

        for key in 0..<5 { #expect(try await map.request(key: key) == key * 2) }
        let failed = await repository.saveAll()
        #expect(failed.saved == 0 && failed.failed.count == 5)
        #expect(try await map.request(key: 3) == 6)

        isBroken.withLock { $0 = false }
        let repaired = await repository.saveAll()
        #expect(repaired.saved == 5 && repaired.failed.isEmpty)
        let fetched = Locked(0)
        let later = MultiplexerMap<Int, Int>(cacheKey: "map", repository: MuxRepository(store: scratch.store())) {
            key in
            fetched.withLock { $0 += 1 }
            return key * 2
        }
        for key in 0..<5 { #expect(try await later.request(key: key) == key * 2) }
        #expect(fetched.withLock { $0 } == 0)
        #expect(try await store.brokenInvariants().isEmpty)
    }

    @Test func `DK-12 the next save creates a deleted folder again`() async throws {
        let scratch = Scratch()
        let store = scratch.store(byteLimit: 20_000, indexFloor: 2)
        try await store.save((0..<5).map { sample("\($0)", $0) }, durability: .full)
        try FileManager.default.removeItem(at: scratch.root)

        #expect(try await store.load(name("1")) == nil)
        try FileManager.default.removeItem(at: scratch.root)
        let epoch = try await store.sessionEpoch()
        try FileManager.default.removeItem(at: scratch.root)
        try await store.save([sample("6", 6, epoch: epoch)], durability: .full)

        #expect(try await scratch.store().load(name("6")) == sample("6", 6, epoch: epoch))
        #expect(try await store.brokenInvariants().isEmpty)
        try FileManager.default.removeItem(at: scratch.root.appending(component: "journal"))
        try await store.save([sample("7", 7, epoch: epoch)], durability: .full)
        #expect(try await scratch.store().load(name("7")) == sample("7", 7, epoch: epoch))
    }
}
