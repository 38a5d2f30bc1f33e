import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Each figure of the reports, statistics and gauges, separately.
@Suite(.standard)
struct ReportTests {
    private typealias Failure = MuxRepository.SaveReport.Failure

    private let name = MuxStoreKey(domain: "Values", key: "secret")

    /// The integer members of a value by their names.
    private func numbers(_ value: Any) -> [String: Int] {
        let children = Mirror(reflecting: value).children
        return Dictionary(
            uniqueKeysWithValues: children.compactMap { child in
                (child.value as? Int).map { (child.label ?? "", $0) }
            }
        )
    }

    @Test func `PT-01 the sum of statistics has every counter`() {
        var statistics = MuxRepository.Statistics()
        (statistics.hits, statistics.joins, statistics.misses) = (1, 2, 4)
        (statistics.diskHits, statistics.sharedHits, statistics.fetches) = (8, 16, 32)
        (statistics.retries, statistics.failures, statistics.staleServed) = (64, 128, 256)
        (statistics.fenceDrops, statistics.evictions) = (512, 1_024)
        statistics.fetchTime = .seconds(5)
        let parts = self.numbers(statistics)
        let sums = self.numbers(statistics + statistics)
        #expect(parts.count == Mirror(reflecting: statistics).children.count - 1, "all but the time are numbers")
        for (name, part) in parts {
            #expect(part > 0, "the test does not set \(name)")
            #expect(sums[name] == 2 * part, "\(name)")
        }
        #expect((statistics + statistics).fetchTime == .seconds(10))
        #expect(statistics.requests == 7)
    }

    @Test func `PT-01 the gauges of a repository are the sums over its multiplexers`() async throws {
        let world = World()
        let gate = Gate<Int>()
        let maps = ["A", "B"].map { name in
            MultiplexerMap<Int, Int>(cacheKey: .init(name), repository: world.repository) { key in
                key < 0 ? try await gate.pass() : key
            }
        }
        for key in 1...3 { _ = try await maps[0].request(key: key) }
        _ = try await maps[1].request(key: 1)
        await maps[1].save()
        let callers = [(0, -1), (0, -1), (1, -1)].map { map, key in Task { try await maps[map].request(key: key) } }
        await gate.waitForCall(2)
        await world.events.wait(for: .joined)

        let gauges = await world.repository.gauges()

        #expect(gauges.entries == 4)
        #expect(gauges.unsaved == 3)
        #expect(gauges.waiters == 3)
        #expect(gauges.flights == 2)
        gate.openForGood(returning: 0)
        for caller in callers { _ = try await caller.value }
    }

    /// The report of a save without values.
    private func emptyReport() async -> MuxRepository.SaveReport { await World().repository.saveAll() }

    @Test func `PT-01 a save with a failure or with an unsaved value is not complete`() async {
        var report = await self.emptyReport()
        (report.saved, report.unchanged, report.refreshed, report.superseded) = (1, 2, 3, [self.name])
        #expect(report.isComplete)
        let faults: [(inout MuxRepository.SaveReport) -> Void] = [
            { $0.failed = [Failure(name: self.name, error: FetchFailed())] },
            { $0.repairFailures = [FetchFailed()] },
            { $0.leftOverNames = [self.name] },
            { $0.evictedUnsaved = 1 },
        ]
        for fault in faults {
            var faulty = report
            fault(&faulty)
            #expect(!faulty.isComplete)
        }
        var cleared = await World().repository.clearAll()
        #expect(cleared.isComplete)
        cleared.failures = [FetchFailed()]
        #expect(!cleared.isComplete)
    }

    @Test func `PT-01 the text of a report has every count, and no name`() async {
        let failure = Failure(name: self.name, error: FetchFailed())
        var report = await self.emptyReport()
        #expect(report.description == "nothing to save")
        (report.saved, report.refreshed, report.unchanged, report.evictedUnsaved) = (11, 12, 13, 14)
        report.failed = Array(repeating: failure, count: 15)
        report.superseded = Array(repeating: self.name, count: 16)
        report.leftOverNames = Array(repeating: self.name, count: 17)
        report.repairFailures = Array(repeating: FetchFailed(), count: 18)
        let counts = [
            "11 saved", "12 refreshed", "13 unchanged", "15 failed", "16 superseded", "17 left over",
            "14 evicted unsaved",
            "18 repairs failed",
        ]
        #expect(report.description.hasPrefix(counts.joined(separator: ", ") + ": "), "\(report)")
        #expect(!"\(report)".contains("secret") && !String(reflecting: report).contains("secret"))
    }

    @Test func `PT-01 a refused save reports its unsaved values as failed`() async throws {
        let store = UnreliableStore()
        let world = World(store: store)
        let map = MultiplexerMap<Int, Int>(cacheKey: "Map", repository: world.repository) { $0 }
        for key in 1...2 { _ = try await map.request(key: key) }
        #expect(await world.repository.saveAll().saved == 2)
        for key in 3...5 { _ = try await map.request(key: key) }
        let reports = Locked<[MuxRepository.SaveReport]>([])
        store.beforeSave.withLock { action in
            action = {
                let inner = await world.repository.saveAll()
                reports.withLock { $0.append(inner) }
            }
        }

        let outer = await world.repository.saveAll()

        let inner = try #require(reports.withLock { $0.first })
        #expect(inner.unchanged == 2 && inner.failed.count == 3 && inner.repairFailures.count == 1, "\(inner)")
        #expect(Set(inner.failed.map(\.name.key)) == ["3", "4", "5"])
        #expect(outer.saved == 3 && outer.unchanged == 2 && outer.isComplete, "\(outer)")
    }
}
