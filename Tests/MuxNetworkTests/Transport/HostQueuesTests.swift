import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// The queues in which calls wait for a connection.
@Suite(.standard)
struct HostQueuesTests {
    @Test(arguments: 0..<UInt64(repetitions(50)))
    func `TR-07 each host serves its calls in order, up to the limit of concurrent calls`(seed: UInt64) {
        var random = SplitMix64(state: seed)
        let limit = Int.random(in: 1...4, using: &random)
        var queues = HostQueues<Int, Int>(limit: limit)
        // The expected calls of each host, in order: the first calls run, and the others wait.
        var running: [Int: [Int]] = [:]
        var waiting: [Int: [Int]] = [:]
        for id in 0..<2_000 {
            if Int.random(in: 0..<5, using: &random) < 3 {
                let host = Int.random(in: 0..<4, using: &random)
                let begins = running[host, default: []].count < limit
                #expect(queues.add(id, id, at: host) == begins)
                if begins { running[host, default: []].append(id) } else { waiting[host, default: []].append(id) }
            } else {
                let known = (running.values.flatMap(\.self) + waiting.values.flatMap(\.self) + [-1]).sorted()
                let gone = known.randomElement(using: &random) ?? -1
                var next: Int?
                for host in running.keys where running[host]?.contains(gone) ?? false {
                    running[host]?.removeAll { $0 == gone }
                    if waiting[host]?.isEmpty == false { next = waiting[host]?.removeFirst() }
                    if let next { running[host]?.append(next) }
                }
                for host in waiting.keys { waiting[host]?.removeAll { $0 == gone } }
                #expect(queues.remove(gone) == next)
            }
        }
        for id in running.values.flatMap(\.self) + waiting.values.flatMap(\.self) { _ = queues.remove(id) }
        // Ends the calls that started meanwhile.
        for id in 0..<2_000 { _ = queues.remove(id) }
        #expect(queues.counts == (0, 0, 0))
    }

    @Test func `TR-07 the queue of a host that is always busy does not grow`() {
        var queues = HostQueues<Int, Int>(limit: 1)
        _ = queues.add(0, 0, at: 0)
        for id in 1..<10_000 {
            let begins = queues.add(id, id, at: 0)
            let next = queues.remove(id - 1)
            #expect(!begins && next == id && queues.counts.calls == 1 && queues.counts.slots < 64)
        }
    }
}
