import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Two stores on one folder represent two processes: each store has separate open files and locks.
@Suite(.standard)
struct JournalSiblingTests {
    @Test func `DK-10 the next load finds a sibling's save`() async throws {
        let scratch = Scratch()
        let (one, other) = (scratch.store(), scratch.store())
        try await one.save([sample("a", 1)], durability: .relaxed)
        #expect(try await other.load(name("a")) == sample("a", 1))

        try await one.save([sample("a", 2), sample("b", 2)], durability: .relaxed)
        try await one.remove([name("c")], durability: .relaxed)

        #expect(try await other.load(name("a")) == sample("a", 2))
        try await other.removeAll(domain: "users", durability: .relaxed)
        #expect(try await one.load(name("b")) == nil)
    }

    @Test func `DK-10 entries of a removed domain are absent in all stores and do not count as damaged`() async throws {
        let scratch = Scratch()
        let (one, other) = (scratch.store(), scratch.store())
        let kept = sample("a", domain: "others")
        try await one.save([sample("a"), sample("b"), kept], durability: .relaxed)
        #expect(try await other.load(name("a")) == sample("a"))

        try await one.removeAll(domain: "users", durability: .relaxed)

        for store in [one, other, scratch.store()] {
            for key in ["a", "b"] { #expect(try await store.load(name(key)) == nil) }
            #expect(try await store.load(name("a", domain: "others")) == kept)
            #expect(await store.statistics().damagedRecords == 0)
            #expect(try await store.brokenInvariants().isEmpty)
        }
    }

    @Test func `DK-10 a removed folder counts as a loss, and a sibling's sign-out does not`() async throws {
        for isLost in [false, true] {
            let scratch = Scratch()
            let (one, other) = (scratch.store(), scratch.store())
            try await one.save([sample("a")], durability: .relaxed)

            if isLost {
                try FileManager.default.removeItem(at: scratch.root)
            } else {
                try await other.raiseSessionEpoch(to: 1)
                try await other.removeEverything()
            }

            #expect(try await one.load(name("a")) == nil)
            #expect(await one.statistics().losses == (isLost ? 1 : 0))
        }
    }

    @Test func `DK-10 a sibling's compaction is detected before a load and before a save`() async throws {
        let scratch = Scratch()
        let (one, other, third) = (scratch.store(), scratch.store(), scratch.store())
        var large = sample("large")
        large.payload = Data("\"\(String(repeating: "x", count: 70_000))\"".utf8)
        try await one.save([large, sample("a", 1)], durability: .relaxed)
        #expect(try await other.load(name("large")) == large)
        #expect(try await third.load(name("large")) == large)

        try await one.save([sample("large")], durability: .relaxed)

        #expect(await one.statistics().compactions == 1)
        #expect(try await other.load(name("large")) == sample("large"))
        try await third.save([sample("b", 3)], durability: .relaxed)
        #expect(try await one.load(name("b")) == sample("b", 3))
        #expect(try await other.load(name("a")) == sample("a", 1))
    }

    @Test func `DK-10 a journal replaced by a longer journal is read from its beginning`() async throws {
        let scratch = Scratch()
        let (one, other, third) = (scratch.store(), scratch.store(), scratch.store())
        try await one.save([sample("a", 1)], durability: .relaxed)
        #expect(try await other.load(name("a")) == sample("a", 1))
        #expect(try await third.load(name("a")) == sample("a", 1))

        try await one.removeEverything()
        try await one.save([sample("first", 1), sample("second", 2), sample("third", 3)], durability: .relaxed)

        #expect(try await other.load(name("a")) == nil)
        #expect(try await other.load(name("first")) == sample("first", 1))
        try await third.save([sample("fourth", 4)], durability: .relaxed)
        #expect(try await third.load(name("first")) == sample("first", 1))
        #expect(try await one.load(name("fourth")) == sample("fourth", 4))
    }

    #if compiler(>=6.3) && (os(macOS) || os(Linux))
    @Test(.ownThreads) func `DK-10 two processes that save concurrently lose no entry`() async throws {
        let scratch = Scratch()
        let store = scratch.store()
        let path = scratch.folder.path
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                await #expect(processExitsWith: .success) { [path = path as String] in
                    let store = Scratch(path).store()
                    for number in 0..<100 {
                        try await store.save([sample("child \(number)", number)], durability: .relaxed)
                    }
                }
            }
            for number in 0..<100 { try await store.save([sample("parent \(number)", number)], durability: .relaxed) }
            try await group.waitForAll()
        }

        for who in ["child", "parent"] {
            for number in 0..<100 {
                #expect(try await store.load(name("\(who) \(number)")) == sample("\(who) \(number)", number))
            }
        }
        #expect(await store.statistics() == JournalStore.Statistics())
    }
    #endif

    @Test func `RP-04 a late save of an earlier session leaves no trace on disk`() async throws {
        let scratch = Scratch()
        let store = scratch.store()
        try await store.raiseSessionEpoch(to: 1)

        try await store.save([sample("secret")], durability: .full)

        #expect(try Data(contentsOf: scratch.segment).isEmpty)
    }

    @Test func `DK-10 the torn record of a dead sibling is cut off before the next save`() async throws {
        let scratch = Scratch()
        let store = scratch.store()
        try await store.save([sample("a", 1)], durability: .relaxed)
        let torn = Array(try Data(contentsOf: scratch.segment).dropFirst(scratch.beginning()).dropLast(5))
        let file = try FileHandle(forWritingTo: scratch.segment)
        try file.seekToEnd()
        try file.write(contentsOf: torn)
        try file.close()

        try await store.save([sample("b", 2)], durability: .relaxed)

        #expect(await store.statistics().tornBytes == torn.count)
        let fresh = scratch.store()
        #expect(try await fresh.load(name("a")) == sample("a", 1))
        #expect(try await fresh.load(name("b")) == sample("b", 2))
        #expect(await fresh.statistics() == JournalStore.Statistics())
    }

    @Test func `RP-04 a sibling's sign-out ends the session in this process too`() async throws {
        let scratch = Scratch()
        let (one, other) = (scratch.store(), scratch.store())
        try await one.save([sample("a"), sample("b", epoch: 1)], durability: .relaxed)
        #expect(try await other.load(name("a")) == sample("a"))

        try await one.raiseSessionEpoch(to: 1)

        #expect(try await other.load(name("a")) == nil)
        #expect(try await other.load(name("b")) == sample("b", epoch: 1))
        #expect(try await other.sessionEpoch() == 1)
        try await one.removeEverything()
        #expect(try await other.load(name("b")) == nil)
        try await other.save([sample("a", 5), sample("c", epoch: 1)], durability: .relaxed)
        #expect(try await one.load(name("a")) == nil)
        #expect(try await one.load(name("c")) == sample("c", epoch: 1))
    }

    @Test func `RP-04 entries of an earlier session leave the disk at the next opening`() async throws {
        let scratch = Scratch()
        let store = scratch.store()
        try await store.save([sample("secret"), sample("kept", epoch: 1)], durability: .full)
        try await store.raiseSessionEpoch(to: 1)

        #expect(try await scratch.store().load(name("kept", domain: "users")) == sample("kept", epoch: 1))

        let text = try String(contentsOf: scratch.segment, encoding: .utf8)
        #expect(!text.contains("secret") && text.contains("kept"))
    }

    @Test func `DK-12 a deleted folder is created again, and the session epoch does not fall`() async throws {
        let scratch = Scratch()
        let (store, other) = (scratch.store(), scratch.store())
        try await store.raiseSessionEpoch(to: 4)
        try await store.save([sample("a", epoch: 4)], durability: .full)
        #expect(try await other.sessionEpoch() == 4)
        try FileManager.default.removeItem(at: scratch.folder)

        #expect(try await store.load(name("a")) == nil)
        #expect(try await store.sessionEpoch() == 4)
        try await store.save([sample("a", 2, epoch: 4)], durability: .full)
        #expect(try await other.load(name("a")) == sample("a", 2, epoch: 4))

        try FileManager.default.removeItem(at: scratch.segment)
        #expect(try await store.load(name("a")) == nil)
        try await store.save([sample("a", 3, epoch: 4)], durability: .full)
        #expect(try await other.load(name("a")) == sample("a", 3, epoch: 4))
    }

    @Test func `DK-10 two stores that save and compact concurrently lose no entry`() async throws {
        let scratch = Scratch()
        let stores = [scratch.store(), scratch.store()]

        try await withThrowingTaskGroup(of: Void.self) { group in
            for (index, store) in stores.enumerated() {
                group.addTask {
                    for number in 0..<60 {
                        var large = sample("shared", number)
                        large.payload = Data("\"\(String(repeating: "\(index)", count: 5000))\"".utf8)
                        try await store.save([large, sample("\(index)/\(number)", number)], durability: .relaxed)
                        #expect(try await stores[1 - index].load(large.name) != nil)
                    }
                }
            }
            try await group.waitForAll()
        }

        let fresh = scratch.store()
        for (index, store) in stores.enumerated() {
            for number in 0..<60 {
                let expected = sample("\(index)/\(number)", number)
                #expect(try await store.load(expected.name) == expected)
                #expect(try await fresh.load(expected.name) == expected)
            }
            #expect(await store.statistics().damagedRecords == 0)
        }
        #expect(await fresh.statistics() == JournalStore.Statistics())
    }
}
