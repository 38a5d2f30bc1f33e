import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// A model of ``WaitTable`` that searches all waits.
private struct NaiveWaits {
    struct Wait {
        let waiting: WaitForNode
        var awaited: WaitForNode
        let isCertain: Bool
    }

    var waits: [Ticket: Wait] = [:]

    /// The flights that wait for `node`, directly or indirectly, and `node` itself.
    func dependents(of node: WaitForNode, certainOnly: Bool) -> Set<WaitForNode> {
        var seen: Set<WaitForNode> = [node]
        var open = [node]
        while let next = open.popLast() {
            for wait in self.waits.values where wait.awaited == next && (wait.isCertain || !certainOnly) {
                if seen.insert(wait.waiting).inserted { open.append(wait.waiting) }
            }
        }
        return seen
    }

    func permits(_ wait: Wait, sameKey: [WaitForNode]) -> Bool {
        let dependents = self.dependents(of: wait.waiting, certainOnly: wait.isCertain)
        if wait.isCertain, dependents.contains(wait.awaited) { return false }
        return sameKey.count { dependents.contains($0) } < (wait.isCertain ? 1 : 16)
    }
}

private func node(_ number: Int) -> WaitForNode { WaitForNode(engine: 1, flight: FlightID(number)) }

private func id(_ number: Int) -> WaitForGraph.WaitID { WaitForGraph.WaitID(2, Ticket(number)) }

@Suite(.standard)
struct WaitTableTests {
    /// Few flights give dense cycles, many flights give long chains, and all seeds end with an empty table.
    @Test(arguments: [3, 8, 40, 200])
    func `DS-08 a wait is refused exactly if a search through all waits finds a cycle`(flightCount: Int) throws {
        for seed in 1...UInt64(repetitions(12)) {
            var random = SplitMix64(state: seed)
            var (table, naive) = (WaitTable(), NaiveWaits())
            let (certain, ends) = (Int.random(in: 1...10, using: &random), Int.random(in: 1...4, using: &random))
            for number in 1...400 {
                let ended = naive.waits.keys.sorted().randomElement(using: &random)
                switch Int.random(in: 0..<10, using: &random) {
                case ..<ends:
                    guard let ended else { continue }
                    table.end(id(Int(ended)))
                    naive.waits[ended] = nil
                case 8:
                    let (former, next) = (
                        node(.random(in: 0..<flightCount, using: &random)),
                        node(.random(in: 0..<flightCount, using: &random))
                    )
                    guard former != next else { continue }
                    let tickets = Set(naive.waits.keys.filter { $0 % 2 == 0 })
                    var closing: [Ticket] = []
                    for ticket in tickets.sorted() {
                        guard var wait = naive.waits[ticket], wait.awaited == former else { continue }
                        naive.waits[ticket] = nil
                        wait.awaited = next
                        if naive.permits(wait, sameKey: []) {
                            naive.waits[ticket] = wait
                        } else {
                            closing.append(ticket)
                        }
                    }
                    let moved = table.move(tickets, from: former, to: next)
                    #expect(moved == closing)
                case 9:
                    let nodes = (0..<min(flightCount, 5)).map { _ in node(.random(in: 0..<flightCount, using: &random))
                    }
                    let found = table.ticketsInCycles(with: nodes)
                    for node in nodes {
                        let expected = naive.waits.filter { wait in
                            wait.value.awaited == node
                                && naive.dependents(of: wait.value.waiting, certainOnly: false).contains(node)
                        }
                        #expect(found[node] ?? [] == expected.keys.sorted())
                    }
                default:
                    let wait = NaiveWaits.Wait(
                        waiting: node(.random(in: 0..<flightCount, using: &random)),
                        awaited: node(.random(in: 0..<flightCount, using: &random)),
                        isCertain: Int.random(in: 1...10, using: &random) <= certain
                    )
                    let sameKey =
                        Int.random(in: 0..<4, using: &random) == 0
                        ? (0..<20).map { node(($0 * 7 + number) % flightCount) } : []
                    let isPermitted = naive.permits(wait, sameKey: Array(Set(sameKey)))
                    let isBegun = table.begin(
                        id(number),
                        of: wait.waiting,
                        for: wait.awaited,
                        isCertain: wait.isCertain,
                        sameKey: Array(Set(sameKey))
                    )
                    try #require(isBegun == isPermitted, "seed \(seed), wait \(number)")
                    if isPermitted { naive.waits[Ticket(number)] = wait }
                }
                #expect(table.count == naive.waits.count)
                if let violation = table.violation() { Issue.record("\(violation), seed \(seed), step \(number)") }
            }
            for ticket in naive.waits.keys { table.end(id(Int(ticket))) }
            #expect(table.count == 0 && table.violation() == nil)
        }
    }

    @Test func `DS-08 a chain of flights that each start the next flight takes no search`() {
        var table = WaitTable()
        for number in 0..<16_000 {
            let isBegun = table.begin(id(number), of: node(number), for: node(number + 1), isCertain: number % 3 != 1)
            #expect(isBegun)
        }
        #expect(table.stepCount == 0)

        let isBegun = table.begin(id(65_535), of: node(16_000), for: node(15_999), isCertain: true)
        #expect(!isBegun)
        for number in 0..<16_000 { table.end(id(number)) }
        #expect(table.count == 0)
    }

    @Test func `DS-08 a chain that grows at its front takes a constant number of steps for each flight`() {
        var table = WaitTable()
        let count = 16_000
        for number in 0..<count {
            let isBegun = table.begin(id(number), of: node(number + 1), for: node(number), isCertain: true)
            #expect(isBegun)
        }
        #expect(table.stepCount <= 4 * count)
        let isBegun = table.begin(id(count), of: node(0), for: node(count), isCertain: true)
        #expect(!isBegun)
    }

    @Test func `DS-08 a long chain that joins another chain repeatedly is searched once`() {
        var table = WaitTable()
        let count = 8_000
        for number in 0..<count {
            let isBegun = table.begin(id(number), of: node(number), for: node(number + 1), isCertain: true)
            #expect(isBegun)
            let second = 20_000 + number
            let isSecond = table.begin(id(second), of: node(second), for: node(second + 1), isCertain: true)
            #expect(isSecond)
        }
        for round in 0..<count {
            // The last flight of the first chain waits for flights of the second chain, in varying order.
            let awaited = 20_000 + (round * 7_919) % count
            let isBegun = table.begin(id(50_000), of: node(count), for: node(awaited), isCertain: true)
            #expect(isBegun)
            if round < count - 1 { table.end(id(50_000)) }
        }
        #expect(table.stepCount <= 8 * count)
        let isBegun = table.begin(id(60_000), of: node(20_000 + count), for: node(0), isCertain: true)
        #expect(!isBegun)
    }

    @Test func `DS-08 a fenced flight of the same key is found without a search of the chain`() {
        var table = WaitTable()
        let count = 8_000
        for number in 0..<count {
            let isBegun = table.begin(id(number), of: node(number), for: node(number + 1), isCertain: true)
            #expect(isBegun)
        }
        // All keys are refreshed, and a second chain of the same keys starts.
        for number in 0..<count {
            let isBegun = table.begin(
                id(20_000 + number),
                of: node(20_000 + number),
                for: node(20_001 + number),
                isCertain: true,
                sameKey: [node(number + 1)]
            )
            #expect(isBegun)
        }
        #expect(table.stepCount <= 16 * count)
        let isNested = table.begin(
            id(50_000),
            of: node(20_000 + count),
            for: node(60_000),
            isCertain: true,
            sameKey: [node(20_100)]
        )
        #expect(!isNested)
    }

    @Test func `DS-08 a flight with many callers raises the level of all flights that the flight awaits`() {
        var table = WaitTable()
        func begin(_ number: Int, _ waiting: Int, _ awaited: Int) -> Bool {
            table.begin(id(number), of: node(waiting), for: node(awaited), isCertain: true)
        }
        // More waits for flight 0 than one backward search examines.
        for caller in 100..<164 { #expect(begin(caller, caller, 0)) }
        #expect(begin(1, 1, 10) && begin(2, 2, 20))

        #expect(begin(3, 0, 1))
        #expect(begin(4, 1, 2))

        #expect(table.violation() == nil)
        for (number, waited) in [1, 0, 100].enumerated() { #expect(!begin(200 + number, 2, waited)) }
    }

    @Test func `DS-08 the time-outs of a chain of possible waits are searched together`() {
        var table = WaitTable()
        let count = 16_000
        for number in 0..<count {
            let isBegun = table.begin(id(number), of: node(number), for: node(number + 1), isCertain: false)
            #expect(isBegun)
        }
        let none = table.ticketsInCycles(with: (0...count).map(node)).values.flatMap(\.self)
        #expect(none.isEmpty)
        let isBegun = table.begin(id(count), of: node(count), for: node(0), isCertain: false)
        #expect(isBegun)

        let tickets = table.ticketsInCycles(with: (0...count).map(node))

        #expect(tickets.count == count + 1 && tickets.values.allSatisfy { $0.count == 1 })
        #expect(table.stepCount <= 4 * count)
    }
}

/// Chains of fetches, each of which requests the next key.
@Suite(.standard, .serialized)
struct DependentChainTests {
    @Test(arguments: [false, true])
    func `DS-08 a chain of dependent fetches takes no search`(isUnawaited: Bool) async throws {
        let world = World()
        let count = 4_000
        let later = Later<MultiplexerMap<Int, Int>>()
        let map = MultiplexerMap<Int, Int>(repository: world.repository) { key in
            guard key < count else { return 0 }
            if isUnawaited { return try await Task { try await later().request(key: key + 1) }.value + 1 }
            return try await later().request(key: key + 1) + 1
        }
        later.set(map)
        let before = WaitForGraph.stepCount

        #expect(try await map.request(key: 0) == count)

        // Other tests may add steps at the same time.
        #expect(WaitForGraph.stepCount - before < count)
        await map.expectAtRest()
    }

    @Test func `DS-08 the last fetch of a long chain that requests the first key fails at once`() async throws {
        let world = World()
        let count = 2_000
        let later = Later<MultiplexerMap<Int, Int>>()
        let map = MultiplexerMap<Int, Int>(repository: world.repository) { key in
            try await later().request(key: (key + 1) % count)
        }
        later.set(map)
        let before = WaitForGraph.stepCount

        await #expect(throws: MuxError.wouldDeadlock) { try await map.request(key: 0) }

        #expect(WaitForGraph.stepCount - before <= 4 * count)
        await map.expectAtRest()
    }

    @Test(arguments: [false, true])
    func `DS-08 a long chain without linger is cancelled from its head to its end`(isByGroup: Bool) async throws {
        let world = World()
        let count = repetitions(16_000)
        let end = Gate<Int>()
        let later = Later<MultiplexerMap<Int, Int>>()
        let policy = MuxPolicy(whenAbandoned: .cancel(linger: .zero))
        let map = MultiplexerMap<Int, Int>(policy: policy, repository: world.repository) { key in
            guard key < count else { return try await end.pass() }
            return try await later().request(key: key + 1) + 1
        }
        later.set(map)

        if isByGroup {
            await withThrowingTaskGroup(of: Int.self) { group in
                group.addTask { try await map.request(key: 0) }
                await end.waitForCall(1)
                group.cancelAll()
            }
        } else {
            let caller = Task { try await map.request(key: 0) }
            await end.waitForCall(1)
            caller.cancel()
            await #expect(throws: CancellationError.self) { try await caller.value }
        }

        await map.expectAtRest()
    }
}
