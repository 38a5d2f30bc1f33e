#if compiler(>=6.3) && (os(macOS) || os(Linux))
import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Real processes on one folder; each writes an index after every few records, so accesses often collide.
@Suite(.standard)
struct ManyProcessesTests {
    private static let rounds = 24

    /// Saves and removes entries, causes compactions and sometimes reopens the store; each saved entry must
    /// be found at once.
    private static func work(_ scratch: Scratch, _ who: String) async throws {
        var store = scratch.store(indexFloor: 3)
        for round in 0..<Self.rounds {
            var churn = sample("churn \(who)")
            churn.payload = Data("\"\(String(repeating: "x", count: 9_000))\"".utf8)
            try await store.save([churn, sample("\(who)/\(round)", round)], durability: .relaxed)
            if round % 4 == 3 { try await store.remove([name("\(who)/\(round - 1)")], durability: .relaxed) }
            if round % 7 == 6 { store = scratch.store(indexFloor: 3) }
            for earlier in 0...round {
                let isRemoved = earlier % 4 == 2 && earlier < round
                let expected = isRemoved ? nil : sample("\(who)/\(earlier)", earlier)
                #expect(try await store.load(name("\(who)/\(earlier)")) == expected, "\(who), \(round), \(earlier)")
            }
        }
        #expect(await store.statistics().damagedRecords == 0)
    }

    @Test(.ownThreads) func `DK-10 processes that concurrently save, compact and write indexes lose no entry`()
        async throws
    {
        let scratch = Scratch()
        let path = scratch.folder.path
        try await withThrowingTaskGroup(of: Void.self) { group in
            for child in ["one", "two"] {
                group.addTask {
                    await #expect(processExitsWith: .success) { [path = path as String, child = child as String] in
                        try await Self.work(Scratch(path), child)
                    }
                }
            }
            try await Self.work(scratch, "parent")
            try await group.waitForAll()
        }

        let fresh = scratch.store(indexFloor: 3)
        for who in ["one", "two", "parent"] {
            for round in 0..<Self.rounds {
                let expected = round % 4 == 2 ? nil : sample("\(who)/\(round)", round)
                #expect(try await fresh.load(name("\(who)/\(round)")) == expected)
            }
        }
        #expect(await fresh.statistics() == JournalStore.Statistics())
        #expect(try await fresh.brokenInvariants().isEmpty)
    }

    @Test(.ownThreads)
    func `DK-10 sign-outs during the saves of other processes leave no entry`() async throws {
        let scratch = Scratch()
        let path = scratch.folder.path
        try await withThrowingTaskGroup(of: Void.self) { group in
            for child in ["one", "two"] {
                group.addTask {
                    await #expect(processExitsWith: .success) { [path = path as String, child = child as String] in
                        let store = Scratch(path).store(byteLimit: 60_000, indexFloor: 2)
                        for round in 0..<60 {
                            let epoch = try await store.sessionEpoch()
                            try await store.save([sample(child, round, epoch: epoch)], durability: .relaxed)
                            for other in ["one", "two"] {
                                guard let found = try await store.load(name(other)) else { continue }
                                #expect(found.sessionEpoch >= epoch)
                            }
                        }
                    }
                }
            }
            let store = scratch.store(byteLimit: 60_000, indexFloor: 2)
            for epoch: UInt64 in 1...30 {
                try await store.raiseSessionEpoch(to: epoch)
                try await store.removeEverything()
                for who in ["one", "two"] {
                    guard let found = try await store.load(name(who)) else { continue }
                    #expect(found.sessionEpoch >= epoch)
                }
            }
            try await group.waitForAll()
            try await store.raiseSessionEpoch(to: 31)
            try await store.removeEverything()
        }

        let fresh = scratch.store(indexFloor: 2)
        #expect(try await fresh.sessionEpoch() == 31)
        #expect(try await fresh.load(name("one")) == nil)
        #expect(try await fresh.load(name("two")) == nil)
        #expect(try Data(contentsOf: scratch.segment).isEmpty)
        #expect(try await fresh.brokenInvariants().isEmpty)
    }
}
#endif
