#if compiler(>=6.3) && (os(macOS) || os(Linux))
import Foundation
import MuxGRDB
import MuxKit
import Testing

/// Two concurrent processes on one file, each killed after a random time.
///
/// `MUX_KILLS=1000` multiplies the number of rounds.
@Suite(.timeLimit(.minutes(60)))
struct KillTests {
    /// A log of a process's changes outside the store, with a line before and a line after each change.
    private struct Ledger {
        let url: URL

        init(_ folder: URL, _ process: Int) { self.url = folder.appending(component: "ledger-\(process)") }

        func note(_ line: String) throws {
            if !FileManager.default.fileExists(atPath: self.url.path()) { try Data().write(to: self.url) }
            let handle = try FileHandle(forWritingTo: self.url)
            try handle.seekToEnd()
            try handle.write(contentsOf: Data((line + "\n").utf8))
            try handle.close()
        }

        /// The last certain number of each key, 0 for no entry, and the pending change.
        func read() -> (certain: [Int: Int], pending: (key: Int, number: Int)?) {
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

    private static func entry(_ process: Int, _ key: Int, _ number: Int) -> MuxStoredEntry {
        MuxStoredEntry(
            name: MuxStoreKey(domain: "\(process)", key: "\(key)"),
            schemaVersion: 1,
            sessionEpoch: 0,
            fetchedAt: Date(timeIntervalSinceReferenceDate: Double(number)),
            timeToLive: .seconds(60),
            tags: (0..<(number % 3)).map { "tag \($0)" },
            tagNumber: UInt64(number),
            payload: Data("\"\(String(repeating: "\(number) ", count: 1 + number % 500))\"".utf8)
        )
    }

    /// Changes entries at random until the end of the process.
    private static func work(_ path: String, _ process: Int, _ round: Int) async throws {
        Thread.detachNewThread {
            usleep(UInt32.random(in: 0..<400_000))
            kill(getpid(), SIGKILL)
        }
        let folder = URL(filePath: path)
        let ledger = Ledger(folder, process)
        var store = try GRDBStore(url: folder.appending(component: "mux.sqlite"))
        for step in 1...1_000_000 {
            let key = Int.random(in: 0..<5)
            let isRemoval = Int.random(in: 0..<4) == 0
            let number = isRemoval ? 0 : round * 1_000_000 + step
            let entry = Self.entry(process, key, number)
            let durability = step % 3 == 0 ? MuxDurability.full : .relaxed
            try ledger.note("\(key) \(number)")
            // The other process may hold the lock for longer than the limit.
            while true {
                do {
                    if isRemoval {
                        try await store.remove([entry.name], durability: durability)
                    } else {
                        try await store.save([entry], durability: durability)
                    }
                    break
                } catch MuxStoreError.fileSystem(.lock, code: EAGAIN) {}
            }
            try ledger.note("done")
            if step % 20 == 19 { store = try GRDBStore(url: folder.appending(component: "mux.sqlite")) }
        }
    }

    @Test func `NB-01 after random kills each entry is old or new and no reported change is lost`() async throws {
        let rounds = 8 * max(1, ProcessInfo.processInfo.environment["MUX_KILLS"].flatMap(Int.init) ?? 1)
        let folder = try Folder().made
        let path = folder.url.path()
        var known: [String: Int] = [:]
        var changes = 0

        for round in 1...rounds {
            await withTaskGroup { group in
                for process in 0..<2 {
                    group.addTask {
                        await #expect(processExitsWith: .signal(SIGKILL)) {
                            [path = path as String, process = process as Int, round = round as Int] in
                            try await Self.work(path, process, round)
                        }
                    }
                }
            }
            let store = try GRDBStore(url: folder.file)
            for process in 0..<2 {
                let ledger = Ledger(folder.url, process)
                let (certain, pending) = ledger.read()
                changes += certain.count
                for key in 0..<5 {
                    let name = Self.entry(process, key, 0).name
                    let entry = try await store.load(name)
                    let expected = certain[key] ?? known["\(process) \(key)"] ?? 0
                    let possible = pending?.key == key ? [expected, pending?.number ?? 0] : [expected]
                    let number = possible.first { entry == ($0 == 0 ? nil : Self.entry(process, key, $0)) }
                    #expect(
                        number != nil,
                        "round \(round), \(process)/\(key): \(possible), found \(String(describing: entry))"
                    )
                    known["\(process) \(key)"] = number ?? 0
                }
                try? FileManager.default.removeItem(at: ledger.url)
            }
        }
        #expect(changes > rounds, "the processes made no change")
        print("NB-01: \(rounds * 2) processes killed at random")
    }
}
#endif
