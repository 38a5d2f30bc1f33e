import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// The order of changes of tags, and their exchange between processes.
@Suite(.standard(minutes: 10))
struct TagLogTests {
    /// Processes with changes of tags and entries, and the entries and changes on disk.
    ///
    /// Every event has a place in one order, which the processes do not know.
    private struct Fleet {
        struct Entry {
            let tag: Int
            let place: Int
            let number: UInt64
        }

        struct Process {
            var changes: TagChanges
            var exchange: TagChanges.Exchange
            var entries: [Entry] = []

            init(_ now: UInt64) {
                self.changes = TagChanges(number: now)
                self.exchange = TagChanges.Exchange(start: now)
            }
        }

        /// The last refresh and clear of each tag that is on disk, and those of each process that are not.
        var random: SplitMix64
        var now: UInt64 = 1_000
        var place = 0
        var processes: [Process] = []
        var disk: TagChanges?
        var saved: [Entry] = []
        /// The places of changes, by tag; the process that made the change, until the change is on disk.
        var changed: [(tag: Int, place: Int, isClear: Bool, process: Int?)] = []

        init(seed: UInt64) {
            self.random = SplitMix64(state: seed)
            self.processes = (0..<3).map { _ in Process(self.now) }
        }

        static func tag(_ number: Int) -> String { "tag \(number)" }

        private mutating func draw(_ count: Int) -> Int { Int.random(in: 0..<count, using: &self.random) }

        /// Performs a random event, and returns a violation.
        mutating func step() -> String? {
            self.place += 1
            self.now += UInt64(self.draw(3))
            let process = self.draw(self.processes.count)
            switch self.draw(9) {
            case 0...1:
                // Tag 3 never changes.
                let (tag, isClear) = (self.draw(3), self.draw(2) == 0)
                self.processes[process].changes.record([Self.tag(tag)], isClear: isClear, at: self.now)
                self.changed.append((tag, self.place, isClear, process))
            case 2...4:
                let number = self.processes[process].changes.number
                self.processes[process].entries.append(Entry(tag: self.draw(4), place: self.place, number: number))
            case 5...6:
                self.exchange(process)
                // The save of entries follows.
                self.saved += self.processes[process].entries
            case 7: self.read(process)
            default:
                guard self.draw(4) == 0 else { return nil }
                self.changed.removeAll { $0.process == process }
                self.processes[process] = Process(self.now)
                if self.draw(4) == 0 { self.stepBack() }
            }
            return self.check(process)
        }

        /// All processes end, and the clock is set back.
        private mutating func stepBack() {
            self.now = max(1, self.now / 2)
            self.changed.removeAll { $0.process != nil }
            self.processes = (0..<3).map { _ in Process(self.now) }
        }

        private mutating func read(_ number: Int) {
            guard let disk else { return }
            var process = self.processes[number]
            _ = process.changes.merge(disk, &process.exchange)
            self.processes[number] = process
        }

        private mutating func exchange(_ process: Int) {
            self.read(process)
            let changes = self.processes[process].changes
            self.disk = changes
            self.processes[process].exchange.wrote(changes)
            for index in self.changed.indices where self.changed[index].process == process {
                self.changed[index].process = nil
            }
        }

        private func check(_ process: Int) -> String? {
            let log = TagLog(self.processes[process].changes)
            // In memory, own changes apply; on disk, after a read, also the changes of others.
            var other = self.processes[process]
            if let disk { _ = other.changes.merge(disk, &other.exchange) }
            let read = TagLog(other.changes)
            for entry in self.processes[process].entries {
                if let fault = self.fault(entry, log, in: process, isRead: false) { return "in memory: \(fault)" }
                if let fault = self.fault(entry, read, in: process, isRead: true) { return "after a read: \(fault)" }
            }
            for entry in self.saved {
                if let fault = self.fault(entry, read, in: process, isRead: true) { return "on disk: \(fault)" }
            }
            return nil
        }

        private func fault(_ entry: Entry, _ log: TagLog, in process: Int, isRead: Bool) -> String? {
            let condition = EntryCondition([.tag(Self.tag(entry.tag))], since: entry.number, in: log)
            let effect = condition.effect().effect
            if entry.tag == 3 { return effect == .none ? nil : "a change of another tag has an effect" }
            let later = self.changed.filter { change in
                change.tag == entry.tag && change.place > entry.place
                    && (change.process == process || change.process == nil && isRead)
            }
            if later.contains(where: \.isClear), effect != .cleared { return "a clear of \(entry) is lost: \(effect)" }
            return later.isEmpty || effect != .none ? nil : "a refresh of \(entry) is lost"
        }
    }

    @Test func `SC-07 no change of tags is lost between processes, and no other tag changes`() throws {
        for seed in 0..<UInt64(repetitions(2_000)) {
            var fleet = Fleet(seed: seed)
            for step in 0..<60 {
                if let violation = fleet.step() {
                    Issue.record("seed \(seed), step \(step): \(violation)")
                    return
                }
            }
        }
    }

    @Test func `SC-07 a change of one tag by another process does not repeat changes of other tags`() {
        var (first, second) = (TagChanges(number: 100), TagChanges(number: 100))
        var exchange = TagChanges.Exchange(start: 100)
        first.record(["a"], isClear: true, at: 200)
        #expect(second.merge(first, &exchange))
        let number = second.number
        first.record(["b"], isClear: false, at: 300)
        #expect(second.merge(first, &exchange))
        let log = TagLog(second)
        #expect(EntryCondition([.tag("a")], since: number, in: log).effect().effect == .none, "fetched after the clear")
        #expect(EntryCondition([.tag("b")], since: number, in: log).effect().effect == .refreshed)
        #expect(second == first, "nothing to write")
    }

    @Test(arguments: [true, false])
    func `SC-07 a refresh by another process during an unwritten change repeats no earlier clear`(isOfAll: Bool) {
        var first = TagChanges(number: 100)
        first.record(["a"], isClear: true, at: 200)
        if isOfAll { first.recordAll(isClear: true) }
        var (second, exchange) = (TagChanges(number: 100), TagChanges.Exchange(start: 100))
        #expect(second.merge(first, &exchange))
        exchange.wrote(second)
        let number = second.number
        if isOfAll { first.recordAll(isClear: false) } else { first.record(["a"], isClear: false, at: 300) }
        second.record(["b"], isClear: true, at: 300)

        #expect(second.merge(first, &exchange))

        let log = TagLog(second)
        #expect(EntryCondition([.tag("a")], since: number, in: log).effect().effect == .refreshed)
        #expect(EntryCondition([.tag("b")], since: number, in: log).effect().effect == .cleared)
    }

    @Test func `SC-07 changes of damaged or foreign data are not read, and no number overflows`() throws {
        func entry(_ text: String) -> MuxStoredEntry {
            MuxStoredEntry(
                name: TagLog.name,
                schemaVersion: -2,
                sessionEpoch: 0,
                fetchedAt: Date(),
                timeToLive: .zero,
                payload: Data(text.utf8)
            )
        }
        let none = #""forgotten":{"tag":""}"#
        for text in [
            "", "{}", "[]", "null", #"{"number":-1,"tags":[],\#(none)}"#,
            #"{"number":18446744073709551615,"tags":[],\#(none)}"#,
            #"{"number":7,"tags":[{"tag":"a","refresh":8}],\#(none)}"#,
            #"{"number":7,"tags":[{"tag":1,"refresh":7}],\#(none)}"#,
        ] {
            let damaged = TagLog(TagChanges(number: 5))
            #expect(damaged.read(entry(text), since: damaged.progress) == .changes, "\(text)")
            #expect(damaged.lastNumber == 6, "any value may be cleared")
            #expect(damaged.read(entry(text), since: damaged.progress) == .none, "\(text), again")
        }
        let log = TagLog(TagChanges(number: 5))
        #expect(
            log.read(entry(#"{"number":7,"tags":[{"tag":"a","refresh":7}],\#(none)}"#), since: log.progress) == .changes
        )
        #expect(log.lastNumber == 7)
        let again = entry(#"{"number":7,"tags":[{"tag":"a","refresh":7}],\#(none)}"#)
        #expect(log.read(again, since: log.progress) == .none, "read twice")
        let start = log.progress
        log.sessionEnded()
        let late = log.read(entry(#"{"number":99,"tags":[{"tag":"a","refresh":99}],\#(none)}"#), since: start)
        #expect(late == .none && log.lastNumber == 8, "a read that began in the ended session")
        var other = entry(#"{"number":9,"tags":[{"tag":"a","refresh":9}],\#(none)}"#)
        other.schemaVersion = 1
        #expect(log.read(other, since: log.progress) == .changes, "the value of a map with this name")
        #expect(log.lastNumber == 9)
    }

    @Test func `SC-07 many tags are forgotten from the oldest, and count as changed afterwards`() {
        var changes = TagChanges(number: 0)
        let count = TagChanges.maximumOnDisk + 1
        for number in 0..<count { changes.record(["\(number)"], isClear: false, at: 0) }
        let onDisk = changes.forDisk
        #expect(onDisk.changes.count == TagChanges.maximumOnDisk / 2)
        let log = TagLog(onDisk)
        func effect(_ tag: String, _ number: UInt64) -> EntryCondition.Effect {
            EntryCondition([.tag(tag)], since: number, in: log).effect().effect
        }
        #expect(effect("\(count - 1)", UInt64(count - 1)) == .refreshed)
        #expect(effect("\(count - 1)", UInt64(count)) == .none)
        #expect(effect("other", 0) == .refreshed, "as old as a forgotten change")
        #expect(effect("other", UInt64(count)) == .none)
    }

    @Test func `SC-07 a full log forgets the older half of its tags`() {
        var changes = TagChanges(number: 0)
        for number in 0..<70_000 { changes.record(["\(number)"], isClear: false, at: 0) }
        changes.forget(through: 10)
        #expect(changes.changes.count == 69_990)
        changes.forget(through: .max)
        #expect(changes.changes.count > 34_000 && changes.changes.count < 36_000)
        #expect(changes.changes[.tag("69999")] != nil)
    }

    @Test func `SC-07 100,000 changed tags do not affect values with other tags`() async throws {
        let world = World()
        let map = MultiplexerMap<Int, Int>(repository: world.repository) { key, _ in
            Fetched(key, tags: key == 0 ? ["constant"] : ["tag \(key)"])
        }
        for key in [0, 7, 90_000] { _ = try await map.request(key: key) }
        for number in 0..<100 {
            world.repository.refresh(tags: (0..<1_000).map { "tag \(number * 1_000 + $0)" })
        }
        #expect(await settled({ world.repository.tagLog.isFull }, when: { !$0 }) == false)
        #expect(map.cachedEntry(key: 0)?.isStale == false)
        #expect(map.cachedEntry(key: 7)?.isStale == true)
        #expect(map.cachedEntry(key: 90_000)?.isStale == true)
    }

    #if compiler(>=6.3) && (os(macOS) || os(Linux))
    private static let changesOfEach = 40

    @Test(.ownThreads) func `SC-07 changes of tags by several processes at a time are all kept`() async throws {
        let scratch = Scratch()
        let path = scratch.folder.path
        // With the system's clocks, as in the other processes.
        let repository = MuxRepository(store: scratch.store(), durability: .relaxed)
        let count = 4 * Self.changesOfEach
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: repository) { key, _ in
            Fetched(key, tags: ["tag \(key)"])
        }
        _ = try await map.request(keys: 0..<count)
        #expect(await repository.saveAll().isComplete)
        try await withThrowingTaskGroup(of: Void.self) { group in
            for child in 0..<3 {
                group.addTask {
                    await #expect(processExitsWith: .success) { [path = path as String, child = child as Int] in
                        let repository = MuxRepository(store: Scratch(path).store(), durability: .relaxed)
                        for number in 0..<Self.changesOfEach {
                            let report = await repository.clear(tags: ["tag \(child * Self.changesOfEach + number)"])
                            #expect(report.isComplete, "\(report.failures)")
                        }
                    }
                }
            }
            try await group.waitForAll()
        }
        let next = MuxRepository(store: scratch.store(), durability: .relaxed)
        let again = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: next) { -$0 }
        for key in 0..<count {
            #expect(await again.loadCachedValue(key: key) == (key < 3 * Self.changesOfEach ? nil : key), "\(key)")
        }
    }
    #endif
}
