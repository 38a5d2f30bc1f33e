import Foundation
import MuxKit

/// How often a value is fetched by machines that ask for it at random times, by what they share.
///
/// Virtual: the events of a time line that is drawn from a seed. The policy's own function says when a machine renews ahead of time.
package struct FleetSimulation: Sendable {
    /// What the machines share.
    package enum Sharing: Sendable, CaseIterable {
        /// Nothing: each has a memory of its own.
        case nothing
        /// A store, in which each looks before it fetches.
        case store
        /// A store, and each renews ahead of time at random.
        case storeWithEarlyExpiry
        /// A store that says who fetches.
        case claims
    }

    /// A value with the time of its fetch, and from when it is renewed.
    private struct Entry {
        var fetchedAt: Double
        var renewsAt: Double
    }

    private let machines: Int
    private let sharing: Sharing
    private let policy: MuxPolicy
    /// How often each machine asks, in requests to the second.
    private let rate = 2.0
    /// How long a fetch takes, in seconds.
    private let fetchTime = 0.1...0.3
    private let timeToLive = 60.0

    /// Describes a fleet whose machines ask twice a second for a value with a time to live of a minute.
    package init(machines: Int, sharing: Sharing) {
        self.machines = machines
        self.sharing = sharing
        // The mean lead is a quarter of this: the time of a long fetch.
        let isEarly = sharing == .storeWithEarlyExpiry
        self.policy = MuxPolicy(timeToLive: .seconds(60), refreshAhead: isEarly ? .milliseconds(1_200) : nil)
    }

    /// The number of fetches in each time to live.
    ///
    /// - Parameters:
    ///   - cycles: How many times to live to simulate.
    ///   - seed: Determines all that is left to chance.
    /// - Returns: The mean.
    package func fetchesPerTimeToLive(cycles: Int, seed: UInt64) -> Double {
        var random = SplitMix64(state: seed)
        func entry(_ fetchedAt: Double, _ random: inout SplitMix64) -> Entry {
            let draw = Double.random(in: 0..<1, using: &random)
            let age = self.policy.renewalAge(.seconds(self.timeToLive), random: draw)
            return Entry(fetchedAt: fetchedAt, renewsAt: fetchedAt + (age?.secondsValue ?? .infinity))
        }
        var memories: [Entry?] = Array(repeating: nil, count: self.machines)
        var store: Double?
        var fetches: [(machine: Int, end: Double)] = []
        var count = 0
        // Not the first time to live, in which no machine has anything.
        let (begin, end) = (self.timeToLive, self.timeToLive * Double(cycles + 1))
        var now = 0.0
        while now < end {
            let pause = -Foundation.log(1 - Double.random(in: 0..<1, using: &random))
            now += pause / (self.rate * Double(self.machines))
            for fetch in fetches where fetch.end <= now {
                memories[fetch.machine] = entry(fetch.end, &random)
                store = max(store ?? 0, fetch.end)
            }
            fetches.removeAll { $0.end <= now }
            let machine = Int.random(in: 0..<self.machines, using: &random)
            func isGood(_ entry: Entry?) -> Bool {
                entry.map { now < $0.fetchedAt + self.timeToLive && now < $0.renewsAt } ?? false
            }
            guard !isGood(memories[machine]), !fetches.contains(where: { $0.machine == machine }) else { continue }
            if self.sharing != .nothing {
                // Another machine's newer entry.
                if let store, store > memories[machine]?.fetchedAt ?? -1 { memories[machine] = entry(store, &random) }
                guard !isGood(memories[machine]), self.sharing != .claims || fetches.isEmpty else { continue }
            }
            if now >= begin { count += 1 }
            fetches.append((machine, now + Double.random(in: self.fetchTime, using: &random)))
        }
        return Double(count) / Double(cycles)
    }
}
