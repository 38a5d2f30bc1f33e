import Foundation
import MuxKit
import MuxTesting

/// Simulates machines that request a value at random times, and counts the fetches for a kind of sharing.
///
/// The simulation uses virtual time and random numbers from a seed. `MuxPolicy` determines the times of early
/// renewals.
package struct FleetSimulation: Sendable {
    /// The kind of sharing between machines.
    package enum Sharing: Sendable, CaseIterable {
        /// No sharing: each machine has a separate memory.
        case nothing
        /// A shared store, which a machine reads before each fetch.
        case store
        /// A shared store, with early renewals at random times.
        case storeWithEarlyExpiry
        /// A shared store that grants the right to fetch to a single machine at a time.
        case claims
    }

    /// The times of a value's fetch and early renewal, in seconds.
    private struct Entry {
        var fetchedAt: Double
        var renewsAt: Double
    }

    private let machines: Int
    private let sharing: Sharing
    private let policy: MuxPolicy
    /// The request rate of each machine, in requests per second.
    private let rate = 2.0
    /// The duration of a fetch, in seconds.
    private let fetchTime = 0.1...0.3
    private let timeToLive = 60.0

    /// Makes a simulation with two requests per second and machine, and a time to live of a minute.
    package init(machines: Int, sharing: Sharing) {
        self.machines = machines
        self.sharing = sharing
        // The mean lead is a quarter of `refreshAhead`: the duration of a long fetch.
        let isEarly = sharing == .storeWithEarlyExpiry
        self.policy = MuxPolicy(timeToLive: .seconds(60), refreshAhead: isEarly ? .milliseconds(1_200) : nil)
    }

    /// The mean number of fetches per time to live.
    ///
    /// - Parameters:
    ///   - cycles: The duration of the measurement, as a multiple of the time to live.
    ///   - seed: The seed of the random numbers.
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
        // Fetches in the first time to live do not count: at its beginning, no machine has a value.
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
                // Takes the newer entry of another machine.
                if let store, store > memories[machine]?.fetchedAt ?? -1 { memories[machine] = entry(store, &random) }
                guard !isGood(memories[machine]), self.sharing != .claims || fetches.isEmpty else { continue }
            }
            if now >= begin { count += 1 }
            fetches.append((machine, now + Double.random(in: self.fetchTime, using: &random)))
        }
        return Double(count) / Double(cycles)
    }
}
