#if compiler(>=6.3) && (os(macOS) || os(Linux))
import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Two concurrent processes on one folder, each killed at a random call or byte of a write.
///
/// `MUX_KILLS=1000` multiplies the number of rounds; `MUX_SEED=7` begins with that seed.
@Suite(.standard(minutes: 600))
struct RandomKillTests {
    /// A log of a process's changes outside the store, with a line before and a line after each change.
    private struct Ledger: Sendable {
        let url: URL

        init(_ folder: URL, _ who: Int) { self.url = folder.appending(component: "ledger-\(who)") }

        func note(_ line: String) throws {
            if !FileManager.default.fileExists(atPath: self.url.path) { try Data().write(to: self.url) }
            let handle = try FileHandle(forWritingTo: self.url)
            try handle.seekToEnd()
            try handle.write(contentsOf: Data((line + "\n").utf8))
            try handle.close()
        }

        /// The last certain number of each key, 0 for no entry, and the pending change.
        func read() throws -> (certain: [Int: Int], pending: (key: Int, number: Int)?) {
            guard let text = try? String(contentsOf: self.url, encoding: .utf8) else { return ([:], nil) }
            var certain: [Int: Int] = [:]
            var pending: (key: Int, number: Int)?
            for line in text.split(separator: "\n") {
                if line == "done" {
                    if let pending { certain[pending.key] = pending.number }
                    pending = nil
                } else {
                    let words = line.split(separator: " ").compactMap { Int($0) }
                    if words.count == 2 { pending = (words[0], words[1]) }
                }
            }
            return (certain, pending)
        }
    }

    private static func key(_ who: Int, _ key: Int) -> String { "\(who)/\(key)" }

    /// Changes entries at random until a call to the file system ends the process.
    private static func work(_ path: String, _ who: Int, _ seed: Int, _ round: Int) async throws {
        var random = SplitMix64(state: UInt64(seed))
        let call = Int.random(in: 1...120, using: &random)
        let bytes = Int.random(in: 0...600, using: &random)
        let fileSystem = RecordingFileSystem { count, _ in
            count >= call ? .performInWrite(after: bytes) { raise(SIGKILL) } : nil
        }
        let scratch = Scratch(path)
        let ledger = Ledger(scratch.folder, who)
        var store = scratch.store(fileSystem, indexFloor: 3)
        for step in 1...1_000 {
            let key = Int.random(in: 0..<5, using: &random)
            let isRemoval = Int.random(in: 0..<4, using: &random) == 0
            let number = isRemoval ? 0 : round * 1_000 + step
            try ledger.note("\(key) \(number)")
            if isRemoval {
                try await store.remove([name(Self.key(who, key))], durability: .relaxed)
            } else {
                var churn = sample("churn \(who)", number)
                churn.payload = Data("\"\(String(repeating: "x", count: 3_000))\"".utf8)
                try await store.save(
                    [sample(Self.key(who, key), number), churn],
                    durability: step % 3 == 0 ? .full : .relaxed
                )
            }
            try ledger.note("done")
            if step % 9 == 8 { store = scratch.store(fileSystem, indexFloor: 3) }
        }
    }

    @Test(.ownThreads)
    func `Q-05 after random kills each entry is old or new and no reported change is lost`()
        async throws
    {
        let first = ProofEnvironment.number("MUX_SEED") ?? 1
        let rounds = ProofEnvironment.count(8, "MUX_KILLS")
        let scratch = Scratch()
        try FileManager.default.createDirectory(at: scratch.folder, withIntermediateDirectories: true)
        let path = scratch.folder.path
        var known: [String: Int] = [:]

        for round in 1...rounds {
            await withTaskGroup { group in
                for who in 0..<2 {
                    let seed = (first + round) * 2 + who
                    group.addTask {
                        await #expect(processExitsWith: .signal(SIGKILL)) {
                            [path = path as String, who = who as Int, seed = seed as Int, round = round as Int] in
                            try await Self.work(path, who, seed, round)
                        }
                    }
                }
            }
            let fresh = scratch.store(indexFloor: 3)
            for who in 0..<2 {
                let ledger = Ledger(scratch.folder, who)
                let (certain, pending) = try ledger.read()
                for key in 0..<5 {
                    let text = Self.key(who, key)
                    let entry = try await fresh.load(name(text))
                    let expected = certain[key] ?? known[text] ?? 0
                    let possible = pending?.key == key ? [expected, pending?.number ?? 0] : [expected]
                    let number = possible.first { entry == ($0 == 0 ? nil : sample(text, $0)) }
                    #expect(number != nil, "MUX_SEED=\(first), round \(round), \(text): \(possible)")
                    known[text] = number ?? 0
                }
                try? FileManager.default.removeItem(at: ledger.url)
            }
            #expect(try await fresh.brokenInvariants().isEmpty, "MUX_SEED=\(first), round \(round)")
            #expect(await fresh.statistics().damagedRecords == 0, "MUX_SEED=\(first), round \(round)")
        }
        print("Q-05: \(rounds * 2) processes killed at random")
    }
}
#endif
