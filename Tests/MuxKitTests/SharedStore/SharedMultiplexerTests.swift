import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Multiplexers of several machines with a common shared store.
@Suite(.standard)
struct SharedMultiplexerTests {
    @Test func `FL-03 of many machines that request a value at once a single machine fetches it`() async throws {
        try await SeededExecutor.explore(50) { schedule in
            let fleet = MachineFleet(schedule, machines: 5)
            let keys = ["a", "b", "c"]
            let values = try await withThrowingTaskGroup(of: String.self) { group in
                for machine in fleet.machines {
                    for key in keys { for _ in 0..<2 { group.addTask { try await machine.values.request(key: key) } } }
                }
                return try await group.reduce(into: Set<String>()) { $0.insert($1) }
            }
            try expect(values == ["a 0", "b 0", "c 0"], "\(values)")
            for key in keys {
                let count = fleet.origin.fetchCount(of: key)
                try expect(count == 1, "\(count) fetches of \(key)")
            }
            // Hits in memory make no call to the store.
            try await fleet.settle()
            let trips = fleet.store.callCount
            for machine in fleet.machines { for key in keys { _ = try await machine.values.request(key: key) } }
            try expect(fleet.store.callCount == trips, "a hit asks the store")
            let statistics = fleet.machines.reduce(MuxRepository.Statistics()) { $0 + $1.repository.statistics }
            try expect(statistics.fetches == 3 && statistics.sharedHits == 12, "\(statistics)")
        }
    }

    @Test func `FL-03 a miss makes one claim, and a fetch adds one put`() async throws {
        try await SeededExecutor.explore(20) { schedule in
            let fleet = MachineFleet(schedule)
            let (first, second) = (fleet.machines[0].values, fleet.machines[1].values)
            try expect(try await first.requestEntry(key: "a").source == .fetch)
            try expect(fleet.store.callCount == 2, "a claim and a put: \(fleet.store.callCount)")
            let entry = try await second.requestEntry(key: "a")
            try expect(entry.source == .sharedStore && !entry.isStale && entry.value == "a 0", "\(entry)")
            try expect(fleet.store.callCount == 3, "one claim: \(fleet.store.callCount)")
        }
    }

    @Test func `FL-06 a hit takes one lock and makes no call to the store`() async throws {
        let store = MemorySharedStore()
        let repository = MuxRepository(sharedStore: store.connection())
        let map = MultiplexerMap<String, String>(cacheKey: "Values", repository: repository) { $0 }
        _ = try await map.request(key: "a")
        // A request from an actor stays on the actor, so no job is enqueued.
        let (trips, locks) = (store.callCount, map.lockCount)
        let jobs = try await CountedActor().jobs {
            for _ in 0..<1_000 { _ = try await map.request(key: "a") }
        }
        #expect(jobs == 0)
        #expect(store.callCount == trips)
        if let locks, let after = map.lockCount { #expect(after - locks <= 1_001) }
        #expect(map.statistics.hits == 1_000)
    }

    @Test func `HS-04 a fetch with a claim takes the lock at most eight times`() async throws {
        try await SeededExecutor.explore(5) { schedule in
            let map = MachineFleet(schedule, machines: 1).machines[0].values
            // The first fetch also starts the watch of deadlines. Each sleep lasts until the flight has ended.
            _ = try await map.request(key: "a")
            try await schedule.clock.sleep(for: .seconds(1))
            guard let before = map.lockCount else { return }  // a release build does not count
            _ = try await map.request(key: "b")
            try await schedule.clock.sleep(for: .seconds(1))
            let count = (map.lockCount ?? 0) - before
            try expect(count <= 8, "\(count)")
        }
    }

    @Test func `FL-02 a value has the same age on every machine, regardless of the machine's clock`() async throws {
        try await SeededExecutor.explore(20) { schedule in
            let fleet = MachineFleet(schedule, machines: 3)
            _ = try await fleet.machines[0].values.request(key: "a")
            try await schedule.clock.sleep(for: .seconds(40))
            for machine in fleet.machines {
                let entry = try await machine.values.requestEntry(key: "a")
                try expect(entry.age >= .seconds(40) && entry.age < .seconds(41), "\(entry.age)")
            }
            try await schedule.clock.sleep(for: .seconds(20))
            for machine in fleet.machines { _ = try await machine.values.request(key: "a") }
            try expect(fleet.origin.fetchCount == 2, "\(fleet.origin.fetchCount)")
        }
    }

    @Test func `FL-03 a waiting machine takes over after a failure, and many machines do not wait in turn`()
        async throws
    {
        try await SeededExecutor.explore(25) { schedule in
            let fleet = MachineFleet(schedule, machines: 6)
            fleet.origin.take(.seconds(1))
            fleet.origin.fail(with: FetchFailed())
            let start = schedule.clock.now
            await withTaskGroup { group in
                for machine in fleet.machines { group.addTask { _ = try? await machine.values.request(key: "a") } }
            }
            let time = start.duration(to: schedule.clock.now)
            // Two machines fail in turn, then all other machines fetch at once.
            try expect(time <= .milliseconds(3_100), "\(time)")
            try expect(fleet.origin.fetchCount <= 6, "\(fleet.origin.fetchCount)")
        }
    }

    @Test func `FL-03 a machine that ends during its fetch delays other machines for their patience`()
        async throws
    {
        try await SeededExecutor.explore(15) { schedule in
            let fleet = MachineFleet(schedule, machines: 2)
            // A claim of a machine that is gone.
            let gone = fleet.store.connection()
            let name = MuxShared.Name(MuxStoreKey(domain: "Values", key: "a"))
            _ = try await gone.claim(name, maximumAge: nil, digest: nil, for: .seconds(60))
            let start = schedule.clock.now
            _ = try await fleet.machines[0].values.request(key: "a")
            let time = start.duration(to: schedule.clock.now)
            try expect(time >= .seconds(5) && time <= .milliseconds(5_600), "\(time)")
            try await schedule.clock.sleep(for: .seconds(60))
            _ = try await fleet.machines[1].values.request(key: "a")
            _ = try await fleet.machines[0].values.request(key: "a")
            try expect(fleet.origin.fetchCount == 2, "the claim is over, and the value is shared")
        }
    }

    @Test func `FT-06 a machine waits once for the claim of a machine that is gone, not at each renewal`() async throws
    {
        try await SeededExecutor.explore(15) { schedule in
            let policy = MuxPolicy(timeToLive: .seconds(10), fetchTimeout: .seconds(60))
            let fleet = MachineFleet(schedule, machines: 2, policy: policy)
            let name = MuxShared.Name(MuxStoreKey(domain: "Values", key: "a"))
            let gone = fleet.store.connection()
            let time = { (machine: MachineFleet.Machine) async throws -> Duration in
                let start = schedule.clock.now
                _ = try await machine.values.request(key: "a")
                return start.duration(to: schedule.clock.now)
            }
            for round in 0..<3 {
                let claim = try await gone.claim(name, maximumAge: nil, digest: nil, for: .seconds(60))
                guard case .granted(let ticket, _) = claim else { throw Violation("\(claim)") }
                for renewal in 0..<3 {
                    for machine in fleet.machines {
                        let time = try await time(machine)
                        let expected = renewal == 0 ? Duration.seconds(5) : .zero
                        let limits = expected...(expected + .milliseconds(600))
                        try expect(limits.contains(time), "round \(round), renewal \(renewal): \(time)")
                    }
                    try await schedule.clock.sleep(for: .seconds(11))
                }
                // The machines wait again for the next claim.
                try await gone.giveUp(ticket)
            }
            let before = fleet.origin.fetchCount
            for machine in fleet.machines { _ = try await machine.values.request(key: "a") }
            try expect(fleet.origin.fetchCount == before + 1, "the value is shared again")
        }
    }

    @Test func `FL-04 no machine returns a value that a machine has cleared, or keeps an earlier fetch`() async throws {
        try await SeededExecutor.explore(75) { schedule in
            let fleet = MachineFleet(schedule, machines: 3)
            for machine in fleet.machines { _ = try await machine.values.request(key: "a") }
            fleet.origin.take(.seconds(2))
            let late = Task(executorPreference: schedule) { try await fleet.machines[0].values.request(key: "b") }
            try await schedule.clock.sleep(for: .seconds(1))
            fleet.origin.take(.milliseconds(100))
            for key in ["a", "b"] { fleet.origin.change(key) }
            let report: MuxRepository.ClearReport
            switch schedule.draw(0..<3) {
            case 0: report = await fleet.machines[1].values.clear()
            case 1: report = await fleet.machines[1].repository.clearAll()
            default:
                _ = await fleet.machines[1].values.clear(key: "b")
                report = await fleet.machines[1].values.clear(key: "a")
            }
            try expect(report.isComplete, "\(report)")
            try await fleet.settle()
            let old = try await late.value
            try expect(old == "b 0", old)
            for machine in fleet.machines {
                for key in ["a", "b"] {
                    let value = try await machine.values.request(key: key)
                    try expect(value == "\(key) 1", "\(value) on a machine that was told")
                }
            }
            let count = fleet.origin.fetchCount
            try expect(count == 4, "\(count) fetches")
        }
    }

    @Test func `FL-04 a refresh on one machine reaches all machines and keeps the old value as a fallback`()
        async throws
    {
        try await SeededExecutor.explore(25) { schedule in
            let policy = MuxPolicy(timeToLive: .seconds(60), staleIfError: .seconds(600), isSilenceable: { _ in true })
            let fleet = MachineFleet(schedule, machines: 2, policy: policy)
            for machine in fleet.machines { _ = try await machine.values.request(key: "a") }
            fleet.origin.change("a")
            if schedule.draw(0..<2) == 0 {
                fleet.machines[0].values.refresh(key: "a")
            } else {
                fleet.machines[0].values.refresh()
            }
            try await fleet.settle()
            fleet.origin.fail(with: FetchFailed())
            let entry = try await fleet.machines[0].values.requestEntry(key: "a")
            try expect(entry.value == "a 0" && entry.staleReason == .fetchFailed, "\(entry)")
            fleet.origin.fail(with: nil)
            try await schedule.clock.sleep(for: .seconds(60))
            for machine in fleet.machines.reversed() {
                let value = try await machine.values.request(key: "a")
                try expect(value == "a 1", value)
            }
            try expect(fleet.origin.fetchCount == 3, "\(fleet.origin.fetchCount)")
        }
    }

    @Test func `FL-04 an explicitly stored value replaces other machines' values without a fetch`() async throws {
        try await SeededExecutor.explore(50) { schedule in
            let fleet = MachineFleet(schedule, machines: 2)
            let (first, second) = (fleet.machines[0].values, fleet.machines[1].values)
            _ = try await first.request(key: "a")
            _ = try await second.request(key: "a")
            first.store("by hand", key: "a")
            try await fleet.settle()
            for map in [second, first] {
                let value = try await map.request(key: "a")
                try expect(value == "by hand", value)
            }
            try expect(fleet.origin.fetchCount == 1, "\(fleet.origin.fetchCount)")
        }
    }

    @Test func `FL-03 a reload waits for another machine's fetch, and not for an older fetch`() async throws {
        try await SeededExecutor.explore(25) { schedule in
            let fleet = MachineFleet(schedule, machines: 3)
            for machine in fleet.machines { _ = try await machine.values.request(key: "a") }
            fleet.origin.change("a")
            let values = try await withThrowingTaskGroup(of: String.self) { group in
                for machine in fleet.machines {
                    group.addTask { try await machine.values.request(key: "a", .reload) }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            try expect(values == ["a 1", "a 1", "a 1"], "\(values)")
            try expect(fleet.origin.fetchCount == 2, "\(fleet.origin.fetchCount)")
            // All machines have the new value now.
            for machine in fleet.machines {
                let value = try await machine.values.request(key: "a")
                try expect(value == "a 1", value)
            }
        }
    }

    @Test func `FL-03 a stale value, also of another machine, is served at once if the policy permits`() async throws {
        try await SeededExecutor.explore(25) { schedule in
            let policy = MuxPolicy(timeToLive: .seconds(10), staleWhileRevalidate: .seconds(100))
            let fleet = MachineFleet(schedule, machines: 2, policy: policy)
            _ = try await fleet.machines[0].values.request(key: "a")
            try await schedule.clock.sleep(for: .seconds(20))
            fleet.origin.change("a")
            let start = schedule.clock.now
            let entry = try await fleet.machines[1].values.requestEntry(key: "a")
            try expect(entry.value == "a 0" && entry.staleReason == .revalidating, "\(entry)")
            try expect(schedule.clock.now == start, "it waited")
            try await schedule.clock.sleep(for: .seconds(1))
            for machine in fleet.machines {
                let value = try await machine.values.request(key: "a", .maxAge(.seconds(5)))
                try expect(value == "a 1", value)
            }
            try expect(fleet.origin.fetchCount == 2, "\(fleet.origin.fetchCount)")
        }
    }

    @Test func `FL-05 an unavailable store costs one budget for each pause, and no additional fetch`()
        async throws
    {
        try await SeededExecutor.explore(15) { schedule in
            let sharing = MuxShared.Policy(budget: .milliseconds(200), pause: .seconds(10), maximumPause: .seconds(10))
            let fleet = MachineFleet(schedule, machines: 2, sharing: sharing)
            fleet.origin.take(.zero)
            let isSlow = schedule.draw(0..<2) == 0
            if isSlow { fleet.store.delay = .seconds(30) } else { fleet.store.isDown = true }
            var waited = 0
            for number in 0..<40 {
                let start = schedule.clock.now
                _ = try await fleet.machines[0].values.request(key: "\(number)")
                let time = start.duration(to: schedule.clock.now)
                try expect(time <= .milliseconds(201), "\(time)")
                if time > .milliseconds(10) { waited += 1 }
                try await schedule.clock.sleep(for: .milliseconds(500))
            }
            // 20 seconds in total, with pauses of 5 to 10 seconds.
            try expect(isSlow ? waited <= 5 : waited == 0, "\(waited) requests waited")
            try expect(fleet.origin.fetchCount == 40, "\(fleet.origin.fetchCount)")
            let hits = fleet.machines[0].repository.statistics.hits
            for number in 0..<40 { _ = try await fleet.machines[0].values.request(key: "\(number)") }
            try expect(fleet.machines[0].repository.statistics.hits == hits + 40, "memory goes on")
        }
    }

    @Test func `FL-05 a slow store costs a request one budget, for any number of calls`() async throws {
        let slowest = Locked(Duration.zero)
        try await SeededExecutor.explore(50) { schedule in
            let sharing = MuxShared.Policy(budget: .milliseconds(200))
            let fleet = MachineFleet(schedule, machines: 2, sharing: sharing)
            let machine = fleet.machines[0]
            _ = try await machine.values.request(key: "a")
            switch schedule.draw(0..<3) {
            case 0: break
            case 1:  // a pending invalidation is sent first
                machine.connection.isCut = true
                _ = await machine.values.clear(key: "b")
                machine.connection.isCut = false
            default:  // entries in memory are verified and put again
                fleet.store.loseEverything()
                try await fleet.settle()
            }
            fleet.store.delay = .milliseconds(Int64(schedule.draw(10..<300)))
            try await withThrowingTaskGroup { group in
                for key in ["a", "b", "c"] {
                    group.addTask {
                        let start = schedule.clock.now
                        _ = try await machine.values.request(key: key)
                        let time = start.duration(to: schedule.clock.now)
                        try expect(time <= .milliseconds(301), "\(time)")
                        slowest.withLock { $0 = max($0, time) }
                    }
                }
                if schedule.draw(0..<2) == 0 { group.addTask { _ = await machine.values.clear(key: "d") } }
                try await group.waitForAll()
            }
        }
        let time = slowest.withLock { $0 }
        #expect(time > .milliseconds(295), "no request waited for its whole budget: \(time)")
    }

    @Test func `FL-05 when the store is back, entries in memory are verified before any fetch`() async throws {
        try await SeededExecutor.explore(25) { schedule in
            let fleet = MachineFleet(schedule, machines: 2)
            let keys = (0..<10).map { "\($0)" }
            for machine in fleet.machines { for key in keys { _ = try await machine.values.request(key: key) } }
            let cut = fleet.machines[1]
            cut.connection.isCut = true
            fleet.origin.change("3")
            _ = await fleet.machines[0].values.clear(key: "3")
            // The cut connection receives no invalidation.
            let old = try await cut.values.request(key: "3")
            try expect(old == "3 0", old)
            cut.connection.isCut = false
            try await schedule.clock.sleep(for: .seconds(2))
            for key in keys {
                let value = try await cut.values.request(key: key)
                try expect(value == "\(key) \(fleet.origin.version(of: key))", value)
            }
            try expect(fleet.origin.fetchCount == 11, "\(fleet.origin.fetchCount)")
            let trips = fleet.store.callCount
            for key in keys { _ = try await cut.values.request(key: key) }
            try expect(fleet.store.callCount == trips, "it is verified once")
        }
    }

    @Test func `FL-05 a refresh after an outage keeps its effect if memory is cleared during the next fetch`()
        async throws
    {
        try await SeededExecutor.explore(25) { schedule in
            let fleet = MachineFleet(schedule, machines: 1)
            let (values, connection) = (fleet.machines[0].values, fleet.machines[0].connection)
            _ = try await values.request(key: "a")
            connection.isCut = true
            try await schedule.clock.sleep(for: .seconds(2))
            connection.isCut = false
            try await schedule.clock.sleep(for: .seconds(2))
            values.refresh(key: "a")
            try await schedule.clock.sleep(for: .seconds(2))
            fleet.origin.fail(with: offline)
            let caller = Task(executorPreference: schedule) { try await values.request(key: "a") }
            try await schedule.clock.sleep(for: .milliseconds(50))
            values.clearMemory()
            _ = await caller.result
            connection.isCut = true
            try await schedule.clock.sleep(for: .seconds(20))
            let count = fleet.origin.fetchCount
            _ = try? await values.request(key: "a")
            try expect(fleet.origin.fetchCount > count, "the refreshed value is used without a fetch")
        }
    }

    @Test func `FL-05 when the store is back empty, a request puts the entry in memory again`() async throws {
        try await SeededExecutor.explore(25) { schedule in
            let fleet = MachineFleet(schedule, machines: 3)
            let keys = (0..<10).map { "\($0)" }
            for key in keys { _ = try await fleet.machines[0].values.request(key: key) }
            try await schedule.clock.sleep(for: .seconds(30))
            let trips = fleet.store.callCount
            fleet.store.loseEverything()
            try await fleet.settle()
            try expect(fleet.store.callCount == trips, "something is offered before it is asked for")
            for key in keys {
                let entry = try await fleet.machines[0].values.requestEntry(key: key)
                try expect(!entry.isStale && entry.age > .seconds(29), "\(entry)")
                let other = try await fleet.machines[1].values.requestEntry(key: key)
                try expect(other.source == .sharedStore && other.age > .seconds(29), "\(other)")
            }
            try expect(fleet.origin.fetchCount == 10, "\(fleet.origin.fetchCount)")
        }
    }

    @Test func `FL-05 a value that is cleared during an outage is cleared on all machines afterwards`() async throws {
        try await SeededExecutor.explore(25) { schedule in
            let fleet = MachineFleet(schedule, machines: 2)
            for machine in fleet.machines { _ = try await machine.values.request(key: "a") }
            fleet.machines[0].connection.isCut = true
            fleet.origin.change("a")
            let report = await fleet.machines[0].values.clear(key: "a")
            try expect(!report.isComplete, "nobody was told")
            let own = try await fleet.machines[0].values.request(key: "a")
            try expect(own == "a 1", own)
            fleet.machines[0].connection.isCut = false
            // The invalidation is sent without a request, within the longest pause.
            try await schedule.clock.sleep(for: .seconds(31))
            let other = try await fleet.machines[1].values.request(key: "a")
            try expect(other == "a 1", other)
        }
    }

    @Test func `FL-03 a value that all machines renew in the background is fetched once`() async throws {
        try await SeededExecutor.explore(50) { schedule in
            let isAhead = schedule.draw(0..<2) == 0
            let policy = MuxPolicy(
                timeToLive: .seconds(10),
                staleWhileRevalidate: isAhead ? .zero : .seconds(100),
                refreshAhead: isAhead ? .seconds(4) : nil
            )
            let fleet = MachineFleet(schedule, machines: 4, policy: policy)
            for machine in fleet.machines { _ = try await machine.values.request(key: "a") }
            try await schedule.clock.sleep(for: isAhead ? .milliseconds(9_990) : .seconds(12))
            try await withThrowingTaskGroup { group in
                for machine in fleet.machines {
                    group.addTask {
                        _ = try await machine.values.request(key: "a")
                        // Some requests begin after the renewal by another machine.
                        try await schedule.clock.sleep(for: .milliseconds(Int64(schedule.draw(0..<300))))
                        _ = try await machine.values.request(key: "a")
                    }
                }
                try await group.waitForAll()
            }
            try await schedule.clock.sleep(for: .seconds(1))
            // By chance no machine may renew ahead of time.
            // By chance a machine may renew the previous value a second time.
            let count = fleet.origin.fetchCount
            try expect(isAhead ? (1...3).contains(count) : count == 2, "\(count) fetches")
        }
    }

    @Test func `FL-04 a value that is cleared right after an explicit store is on no machine`() async throws {
        try await SeededExecutor.explore(75) { schedule in
            let fleet = MachineFleet(schedule, machines: 2)
            let (first, second) = (fleet.machines[0], fleet.machines[1])
            first.values.store("by hand", key: "a")
            if schedule.draw(0..<2) == 0 { try await schedule.clock.sleep(for: .nanoseconds(1)) }
            first.values.store("again", key: "a")
            let isCleared = schedule.draw(0..<3) > 0
            if isCleared {
                let report =
                    schedule.draw(0..<2) == 0
                    ? await first.values.clear(key: "a") : await first.repository.clearAll()
                try expect(report.isComplete, "\(report)")
            }
            try await fleet.settle()
            for machine in [second, first] {
                let value = try await machine.values.request(key: "a")
                try expect(value == (isCleared ? "a 0" : "again"), value)
            }
        }
    }

    @Test func `FL-05 a claim that was granted too late or could not be used delays no machine`() async throws {
        try await SeededExecutor.explore(25) { schedule in
            let fleet = MachineFleet(schedule, machines: 2)
            let (first, second) = (fleet.machines[0], fleet.machines[1])
            fleet.origin.take(.seconds(1))
            switch schedule.draw(0..<3) {
            case 0:  // the reply arrives after the budget
                fleet.store.delay = .milliseconds(300)
                let value = Task(executorPreference: schedule) { try await first.values.request(key: "a") }
                try await schedule.clock.sleep(for: .milliseconds(260))
                fleet.store.delay = .zero
                _ = try await value.value
            case 1:  // the fetched value cannot be put
                let value = Task(executorPreference: schedule) { try await first.values.request(key: "a") }
                try await schedule.clock.sleep(for: .milliseconds(500))
                fleet.store.delay = .seconds(20)
                _ = try await value.value
                fleet.store.delay = .zero
            default:  // the fetch fails, and the claim cannot be given up
                fleet.origin.fail(with: FetchFailed())
                let value = Task(executorPreference: schedule) { try await first.values.request(key: "a") }
                try await schedule.clock.sleep(for: .milliseconds(500))
                first.connection.isCut = true
                _ = try? await value.value
                fleet.origin.fail(with: nil)
                first.connection.isCut = false
            }
            try await schedule.clock.sleep(for: .seconds(2))
            let start = schedule.clock.now
            _ = try await second.values.request(key: "a")
            let time = start.duration(to: schedule.clock.now)
            try expect(time <= .milliseconds(1_100), "\(time)")
        }
    }

    @Test func `FL-05 a caller that leaves during a call to the store costs others no time and no fetch`()
        async throws
    {
        try await SeededExecutor.explore(15) { schedule in
            let policy = MuxPolicy(timeToLive: .seconds(60), whenAbandoned: .cancel(linger: .zero))
            let fleet = MachineFleet(schedule, machines: 2, policy: policy, areImpatient: true)
            let caller = Task(executorPreference: schedule) { try await fleet.machines[0].values.request(key: "a") }
            // The claim takes 100 ms, the fetch 100, and the put 100.
            let isPutting = schedule.draw(0..<2) == 0
            try await schedule.clock.sleep(for: .milliseconds(isPutting ? 250 : 50))
            caller.cancel()
            _ = try? await caller.value
            try await schedule.clock.sleep(for: .seconds(1))
            let start = schedule.clock.now
            _ = try await fleet.machines[1].values.request(key: "a")
            let time = start.duration(to: schedule.clock.now)
            try expect(time <= .milliseconds(310), "\(time)")
            try expect(fleet.origin.fetchCount == 1, "\(fleet.origin.fetchCount) fetches")
        }
    }

    @Test func `FL-05 a value that was cleared after the store had lost its entries is not put again`() async throws {
        try await SeededExecutor.explore(25) { schedule in
            let fleet = MachineFleet(schedule, machines: 2)
            for machine in fleet.machines { _ = try await machine.values.request(key: "a") }
            fleet.store.loseEverything()
            try await fleet.settle()
            fleet.machines[0].connection.isCut = true
            fleet.origin.change("a")
            let report = await fleet.machines[1].values.clear(key: "a")
            try expect(report.isComplete, "\(report)")
            fleet.machines[0].connection.isCut = false
            try await fleet.settle()
            for machine in fleet.machines {
                let value = try await machine.values.request(key: "a")
                try expect(value == "a 1", value)
            }
        }
    }

    @Test func `FL-04 a value that must not be kept removes the previous value on every machine`() async throws {
        try await SeededExecutor.explore(25) { schedule in
            let fleet = MachineFleet(schedule, machines: 2)
            let isKept = schedule.draw(0..<2) == 0
            let maps = fleet.machines.map { machine in
                MultiplexerMap<String, String>(cacheKey: "Passing", repository: machine.repository) { key, _ in
                    let value = try await fleet.origin.fetch(key)
                    guard value != "a 1" else { return Fetched(value, timeToLive: .zero, isKept: isKept) }
                    return Fetched(value)
                }
            }
            for map in maps { _ = try await map.request(key: "a") }
            fleet.origin.change("a")
            let passing = try await maps[0].request(key: "a", .reload)
            try expect(passing == "a 1", passing)
            fleet.origin.change("a")
            try await fleet.settle()
            for map in maps {
                let value = try await map.request(key: "a")
                try expect(value == "a 2", value)
            }
        }
    }

    @Test func `FL-03 a wait for another machine leaves time for a fetch`() async throws {
        try await SeededExecutor.explore(20) { schedule in
            let policy = MuxPolicy(timeToLive: .seconds(60), fetchTimeout: .seconds(3))
            let fleet = MachineFleet(schedule, machines: 1, policy: policy)
            let name = MuxShared.Name(MuxStoreKey(domain: "Values", key: "a"))
            let gone = fleet.store.connection()
            _ = try await gone.claim(name, maximumAge: nil, digest: nil, for: .seconds(60))
            let value = try await fleet.machines[0].values.request(key: "a")
            try expect(value == "a 0", value)
        }
    }

    @Test func `FL-04 names and tags that differ only in their Unicode form are distinct`() async throws {
        try await SeededExecutor.explore(20) { schedule in
            let fleet = MachineFleet(schedule, machines: 2)
            let keys = ["\u{E9}", "e\u{301}"]
            let maps = fleet.machines.map { machine in
                MultiplexerMap<String, String>(
                    cacheKey: .init("Folded") { [$0] },
                    repository: machine.repository
                ) { try await fleet.origin.fetch($0) }
            }
            for map in maps { for key in keys { _ = try await map.request(key: key) } }
            fleet.origin.change(keys[0])
            if schedule.draw(0..<2) == 0 {
                await maps[0].clear(key: keys[0])
            } else {
                await fleet.machines[0].repository.clear(tags: [keys[0]])
            }
            try await fleet.settle()
            for map in maps {
                let values = try await [map.request(key: keys[0]), map.request(key: keys[1])]
                try expect(values[0].hasSuffix("1") && values[1].hasSuffix("0"), "\(values)")
            }
        }
    }

    @Test func `FL-04 a value that a machine has fetched past its claim is refused and not kept`() async throws {
        try await SeededExecutor.explore(15) { schedule in
            let policy = MuxPolicy(timeToLive: .seconds(6_000), fetchTimeout: .seconds(2_000))
            let fleet = MachineFleet(schedule, machines: 2, policy: policy)
            fleet.origin.take(.seconds(700))
            let slow = Task(executorPreference: schedule) {
                try await fleet.machines[0].values.requestEntry(key: "a")
            }
            // Ten minutes are the longest claim.
            try await schedule.clock.sleep(for: .seconds(650))
            fleet.origin.change("a")
            fleet.origin.take(.seconds(1))
            let newer = try await fleet.machines[1].values.request(key: "a")
            try expect(newer == "a 1", newer)
            let old = try await slow.value
            try expect(old.value == "a 0" && old.staleReason == .fenced, "\(old)")
            for machine in fleet.machines {
                let value = try await machine.values.request(key: "a")
                try expect(value == "a 1", value)
            }
        }
    }

    @Test func `FL-04 a value that is cleared during a machine's wait does not return after a failed fetch`()
        async throws
    {
        try await SeededExecutor.explore(15) { schedule in
            let fleet = MachineFleet(schedule, machines: 2)
            let (first, second) = (fleet.machines[0], fleet.machines[1])
            _ = try await first.values.request(key: "a")
            try await schedule.clock.sleep(for: .seconds(20))
            // A slow machine holds the claim. The second machine waits and has an old value as a fallback.
            let gone = fleet.store.connection()
            let name = MuxShared.Name(MuxStoreKey(domain: "Values", key: "a"))
            _ = try await gone.claim(name, maximumAge: .zero, digest: nil, for: .seconds(60))
            let waiting = Task(executorPreference: schedule) {
                try? await second.values.request(key: "a", .maxAge(.seconds(5)))
            }
            try await schedule.clock.sleep(for: .milliseconds(500))
            fleet.origin.change("a")
            fleet.origin.fail(with: FetchFailed())
            let report = await first.values.clear(key: "a")
            try expect(report.isComplete, "\(report)")
            _ = await waiting.value
            fleet.origin.fail(with: nil)
            try await schedule.clock.sleep(for: .seconds(2))
            let value = try await second.values.request(key: "a")
            try expect(value == "a 1", value)
        }
    }

    @Test func `FL-04 an entry of another version or application is a miss and affects no other entry`() async throws {
        try await SeededExecutor.explore(15) { schedule in
            let fleet = MachineFleet(schedule, machines: 2)
            let other = fleet.store.connection()
            for (key, payload, version) in [("new", "\"x\"", 9), ("garbage", "\u{1}{", 1), ("empty", "", 1)] {
                let name = MuxShared.Name(MuxStoreKey(domain: "Values", key: key))
                let claim = try await other.claim(name, maximumAge: nil, digest: nil, for: .seconds(1))
                guard case .granted(let ticket, nil) = claim else { throw Violation("\(claim)") }
                let entry = MuxShared.Entry(
                    payload: Data(payload.utf8),
                    digest: "x",
                    timeToLive: .longest,
                    age: .seconds(-5),
                    schemaVersion: version
                )
                try expect(try await other.put(entry, with: ticket), "it is stored")
            }
            for machine in fleet.machines {
                for key in ["new", "garbage", "empty"] {
                    let value = try await machine.values.request(key: key)
                    try expect(value == "\(key) 0", value)
                }
            }
            // The entry of the later version stays. The other entries are replaced for all machines.
            try expect(fleet.origin.fetchCount(of: "new") == 2)
            try expect(fleet.origin.fetchCount(of: "garbage") == 1)
            try expect(fleet.origin.fetchCount(of: "empty") == 1)
        }
    }

    @Test func `FL-07 a clear of a tag clears its entries and running fetches on every machine`() async throws {
        try await SeededExecutor.explore(25) { schedule in
            let fleet = MachineFleet(schedule, machines: 3)
            let maps = fleet.machines.map { machine in
                MultiplexerMap<String, String>(
                    cacheKey: .init("Tagged") { ["of \($0.prefix(1))", "all"] },
                    policy: MuxPolicy(timeToLive: .seconds(600)),
                    repository: machine.repository
                ) { try await fleet.origin.fetch($0) }
            }
            for map in maps { for key in ["a1", "a2", "b1"] { _ = try await map.request(key: key) } }
            fleet.origin.take(.seconds(2))
            let late = Task(executorPreference: schedule) { try await maps[2].request(key: "a3") }
            try await schedule.clock.sleep(for: .seconds(1))
            fleet.origin.take(.zero)
            for key in ["a1", "a2", "a3", "b1"] { fleet.origin.change(key) }
            let report = await fleet.machines[0].repository.clear(tags: ["of a", "of x"])
            try expect(report.isComplete, "\(report)")
            try await fleet.settle()
            for map in maps.reversed() {
                for (key, value) in [("a1", "a1 1"), ("a2", "a2 1"), ("a3", "a3 1"), ("b1", "b1 0")] {
                    let found = try await map.request(key: key)
                    try expect(found == value, "\(found), not \(value)")
                }
            }
            _ = try await late.value
            try expect(fleet.origin.fetchCount == 7, "\(fleet.origin.fetchCount)")
            try expect(maps.allSatisfy { $0.sharedFactCount == 4 }, "facts are left behind")
        }
    }

    @Test func `FL-04 evicted entries leave no facts behind`() async throws {
        try await SeededExecutor.explore(20) { schedule in
            let policy = MuxPolicy(timeToLive: .seconds(60), maximumCount: 4)
            let fleet = MachineFleet(schedule, machines: 2, policy: policy)
            for number in 0..<40 {
                for machine in fleet.machines { _ = try await machine.values.request(key: "\(number)") }
            }
            try expect(fleet.origin.fetchCount == 40, "\(fleet.origin.fetchCount)")
            try expect(fleet.machines[0].values.sharedFactCount <= 8, "\(fleet.machines[0].values.sharedFactCount)")
            fleet.machines[0].values.clearMemory()
            try expect(fleet.machines[0].values.sharedFactCount == 0)
            let found = await fleet.machines[0].values.loadCachedValue(key: "39")
            try expect(found == "39 0", "\(found ?? "")")
        }
    }

    /// Draws the machines' operations, and compares the read values with the acknowledged clears.
    @Test(arguments: stride(from: 0, to: 8, by: repetitionStep).map(\.self))
    func `FL-04 FL-05 in random histories no machine reads a cleared value`(part: Int) async throws {
        try await SeededExecutor.explore(15) { schedule in
            for _ in 0..<part { _ = schedule.draw(0..<7) }
            let sharing = MuxShared.Policy(budget: .milliseconds(100), pause: .seconds(1), maximumPause: .seconds(2))
            let fleet = MachineFleet(schedule, machines: 3, sharing: sharing)
            let keys = ["a", "b"]
            // The least version of each key that a machine with an undisturbed connection may return.
            var acknowledged: [String: Int] = [:]
            // Machines that missed a change, and were not always able to ask the store since the change.
            var behind: Set<Int> = []
            var (isSlow, hasLost) = (false, false)
            var readers: [Task<Void, any Error>] = []
            for _ in 0..<40 {
                let number = schedule.draw(0..<fleet.machines.count)
                let (machine, key) = (fleet.machines[number], keys[schedule.draw(0..<keys.count)])
                switch schedule.draw(0..<12) {
                case 0:
                    fleet.origin.change(key)
                    let version = fleet.origin.version(of: key)
                    let report =
                        schedule.draw(0..<4) == 0 ? await machine.values.clear() : await machine.values.clear(key: key)
                    try await fleet.settle()
                    if report.isComplete { acknowledged[key] = max(acknowledged[key] ?? 0, version) }
                case 1:
                    fleet.origin.change(key)
                    machine.values.refresh(key: key)
                case 2: try await schedule.clock.sleep(for: .seconds(Int64(schedule.draw(1..<40))))
                case 9 where schedule.draw(0..<2) == 0:
                    fleet.origin.fail(with: schedule.draw(0..<2) == 0 ? FetchFailed() : nil)
                    fleet.origin.take(.milliseconds(Int64([0, 100, 2_000][schedule.draw(0..<3)])))
                case 8 where schedule.draw(0..<6) == 0:
                    for key in keys { fleet.origin.change(key) }
                    let versions = keys.map { ($0, fleet.origin.version(of: $0)) }
                    let report = await machine.repository.clearAll()
                    try await fleet.settle()
                    if report.isComplete { for (key, version) in versions { acknowledged[key] = version } }
                case 3: machine.connection.isCut.toggle()
                case 4 where schedule.draw(0..<3) == 0: fleet.store.isDown.toggle()
                case 5 where schedule.draw(0..<4) == 0:
                    fleet.store.loseEverything()
                    hasLost = true
                case 6 where part > 3: fleet.store.delay = .milliseconds(Int64(schedule.draw(0..<150)))
                case 7 where part > 3: machine.connection.losesReplies.toggle()
                default:
                    let least = acknowledged[key] ?? 0
                    let options: [RequestOptions] = [.init(), .init(), .init(), .reload, .maxAge(.seconds(5))]
                    let option = options[schedule.draw(0..<options.count)]
                    let isTold = !hasLost && !behind.contains(number) && !machine.connection.isCut
                    readers.append(
                        Task(executorPreference: schedule) {
                            guard let entry = try? await machine.values.requestEntry(key: key, option) else { return }
                            let version = Int(entry.value.dropFirst(2)) ?? -1
                            try expect(!isTold || version >= least, "\(entry.value) after \(least) was acknowledged")
                        }
                    )
                }
                if fleet.store.delay > sharing.budget { isSlow = true }
                let formerlyBehind = behind
                for (number, machine) in fleet.machines.enumerated() {
                    let cannotAsk = isSlow || machine.connection.losesReplies
                    if cannotAsk || machine.connection.isCut || fleet.store.isDown { behind.insert(number) }
                    if !cannotAsk && !machine.connection.isCut && !fleet.store.isDown && part <= 3 {
                        behind.remove(number)
                    }
                }
                // A reconnected machine may return its values before the notification of the reconnection.
                let isBack = !formerlyBehind.isSubset(of: behind)
                if schedule.draw(0..<2) == 0 || isBack { try await fleet.settle() }
            }
            fleet.store.delay = .zero
            fleet.store.isDown = false
            fleet.origin.fail(with: nil)
            for machine in fleet.machines {
                machine.connection.losesReplies = false
                machine.connection.isCut = true
                machine.connection.isCut = false
            }
            for reader in readers { try await reader.value }
            try await schedule.clock.sleep(for: .seconds(10))
            for machine in fleet.machines {
                let (statistics, events) = (machine.values.statistics, machine.events)
                let counters: [(MuxEvent.Kind, Int)] = [
                    (.hit, statistics.hits), (.joined, statistics.joins), (.missed, statistics.misses),
                    (.fetchStarted, statistics.fetches), (.fetchFailed, statistics.failures),
                    (.servedStale, statistics.staleServed), (.fenceDropped, statistics.fenceDrops),
                ]
                for (kind, count) in counters {
                    try expect(
                        events.count(of: kind) == count,
                        "\(kind): \(count) and \(events.count(of: kind)) events"
                    )
                }
            }
            // All machines observe the acknowledged clears again.
            for key in keys {
                for machine in fleet.machines {
                    let value = try await machine.values.request(key: key)
                    let version = Int(value.dropFirst(2)) ?? -1
                    try expect(hasLost || version >= acknowledged[key] ?? 0, "\(value) at the end")
                }
            }
        }
    }
}
