import Foundation
import Synchronization

/// Compares the reads of machines with the acknowledged invalidations.
///
/// **Reads.** An invalidation is acknowledged to the coordinator; then a machine passes a barrier
/// (``WatchedStore/barrier(within:)``); then the machine is asked to read. The result must not be older than
/// the invalidation if the machine is connected: if no call of the store has failed or was slow from before
/// the barrier until after the read (``WatchedStore/disturbances``). The rule contains no times.
///
/// A machine without a connection returns the value in its memory. The value must not be older than
/// - the machine's own clears, acknowledged or not;
/// - an invalidation that began after the machine passed a barrier, and was acknowledged before the machine
///   passed another barrier, without a gap in the messages in between: the machine has received such an
///   invalidation;
/// - an invalidation that was acknowledged before a read of the same or a newer version, whose value the
///   machine kept.
///
/// **Writes.** A put that began after the acknowledgement of an invalidation, by the clock that all processes
/// share, is refused if its value is older. No machine stores the value of a call that is too late
/// (``forbid(_:besides:)``), and no other machine reads such a value.
///
/// **Staleness.** A machine that cannot receive changes reads no value older than the time to live: see
/// `Kind.deaf`.
final class History: Sendable {
    /// The counts since the last call of ``takeCounts()``.
    struct Counts: Sendable {
        var disasters = 0
        var gets = 0
        /// Reads with an oldest permitted version.
        var checked = 0
        var failedGets = 0
        var cleared = 0
        var owed = 0
        var barriers = 0
        var calls = 0
        var exactKeys = 0
        var disturbedChecks = 0
        var refused = 0
        var violations = 0

        static func += (a: inout Counts, b: Counts) {
            a.disasters += b.disasters
            a.gets += b.gets
            a.checked += b.checked
            a.failedGets += b.failedGets
            a.cleared += b.cleared
            a.owed += b.owed
            a.barriers += b.barriers
            a.calls += b.calls
            a.exactKeys += b.exactKeys
            a.disturbedChecks += b.disturbedChecks
            a.refused += b.refused
            a.violations += b.violations
        }
    }

    private struct MachineState {
        /// For each key, the oldest version that the machine may read in any case.
        var forgotten: [Int: Int] = [:]
        /// The versions that were acknowledged when the machine last passed a barrier, and the counters of
        /// that moment.
        var barrier: (acknowledged: [Int: Int], at: UInt64, gaps: Int, disturbances: Int)?
        /// The machine's clears without an acknowledgement.
        var owed: [Int: Int] = [:]
    }

    private struct State {
        /// For each key, the versions whose invalidation was acknowledged, with times.
        var acknowledged: [Int: [(version: Int, at: UInt64)]] = [:]
        var newest: [Int: Int] = [:]
        /// The moment of each version, in the order of the coordinator's events.
        var changes: [Int: [Int: UInt64]] = [:]
        var order: UInt64 = 0
        var machines: [MachineState]
        /// Late calls, each with the machine that may have the value.
        var forbidden: [Int: Int] = [:]
        var counts = Counts()
        var journal: [String] = []
        var violations: [String] = []

        mutating func acknowledge(_ key: Int, _ version: Int, _ now: UInt64) {
            self.acknowledged[key, default: []].append((version, now))
            self.newest[key] = max(version, self.newest[key] ?? 0)
        }
    }

    private let state: Mutex<State>
    private let start = WatchedStore.now

    init(machines: Int) {
        self.state = Mutex(State(machines: Array(repeating: MachineState(), count: machines)))
    }

    /// Returns the counts since the previous call.
    func takeCounts() -> Counts {
        self.state.withLock { state in
            defer { state.counts = Counts() }
            return state.counts
        }
    }

    func count(_ change: (inout Counts) -> Void) { self.state.withLock { change(&$0.counts) } }

    // MARK: - Journal

    private static let longestJournal = 20_000

    func note(_ text: @autoclosure () -> String) {
        let line = "\(Double((WatchedStore.now - self.start) / 1_000) / 1_000) ms: \(text())"
        self.state.withLock { state in
            state.journal.append(line)
            if state.journal.count > 2 * Self.longestJournal { state.journal.removeFirst(Self.longestJournal) }
        }
    }

    func violation(_ text: String) {
        self.note("VIOLATION \(text)")
        self.state.withLock { state in
            state.counts.violations += 1
            state.violations.append(text)
        }
    }

    /// Returns the violations since the previous call, with the journal of preceding events.
    func takeViolations() -> (texts: [String], journal: [String]) {
        self.state.withLock { state in
            defer { state.violations = [] }
            return (state.violations, state.violations.isEmpty ? [] : state.journal)
        }
    }

    // MARK: - Invalidations

    /// Keys have changed at the origin, and are about to be cleared.
    func changed(_ versions: [Int: Int]) {
        self.state.withLock { state in
            state.order += 1
            for (key, version) in versions { state.changes[key, default: [:]][version] = state.order }
        }
    }

    /// A machine has cleared something.
    func cleared(_ machine: Int, _ versions: [Int: Int], isAcknowledged: Bool) {
        let now = WatchedStore.now
        self.state.withLock { state in
            for (key, version) in versions {
                state.machines[machine].forgotten.raise(key, to: version)
                if isAcknowledged {
                    state.acknowledge(key, version, now)
                } else {
                    state.machines[machine].owed.raise(key, to: version)
                }
            }
            if isAcknowledged { state.counts.cleared += 1 } else { state.counts.owed += 1 }
        }
    }

    /// The pending clears of a machine, read before the machine is asked for their confirmation.
    func owed(by machine: Int) -> [Int: Int] { self.state.withLock { $0.machines[machine].owed } }

    /// The pending clears of a machine were confirmed.
    func settled(_ machine: Int, _ owed: [Int: Int]) {
        let now = WatchedStore.now
        self.state.withLock { state in
            for (key, version) in owed {
                state.acknowledge(key, version, now)
                if state.machines[machine].owed[key] == version { state.machines[machine].owed[key] = nil }
            }
        }
    }

    // MARK: - Reads

    /// The acknowledged versions, read before a machine is asked to pass a barrier.
    var acknowledged: [Int: Int] { self.state.withLock { $0.newest } }

    /// A machine has passed a barrier.
    ///
    /// - Parameters:
    ///   - machine: The number of the machine.
    ///   - acknowledged: The versions that were acknowledged before the request for the barrier.
    ///   - gaps: The number of reports that the machine may have missed changes.
    ///   - disturbances: The number of failed or slow calls of the store when the barrier began.
    func passed(_ machine: Int, _ acknowledged: [Int: Int], gaps: Int, disturbances: Int) {
        self.state.withLock { state in
            state.order += 1
            state.counts.barriers += 1
            if let last = state.machines[machine].barrier, last.gaps == gaps {
                for (key, version) in acknowledged where state.changes[key]?[version] ?? 0 > last.at {
                    state.machines[machine].forgotten.raise(key, to: version)
                }
            }
            state.machines[machine].barrier = (acknowledged, state.order, gaps, disturbances)
        }
    }

    /// A machine has a new process.
    func restarted(_ machine: Int) { self.state.withLock { $0.machines[machine] = MachineState() } }

    /// The limits of a read, determined at its start.
    struct Known: Sendable {
        /// The oldest version that the machine may read in any case.
        let forgotten: Int
        /// The oldest version that the machine may read while connected: while the number of disturbances is
        /// unchanged.
        let acknowledged: (version: Int, disturbances: Int)?
        /// The newest acknowledged version at the start.
        let newest: Int
    }

    func known(_ machine: Int, _ key: Int) -> Known {
        self.state.withLock { state in
            let known = state.machines[machine]
            return Known(
                forgotten: known.forgotten[key] ?? 0,
                acknowledged: known.barrier.map { ($0.acknowledged[key] ?? 0, $0.disturbances) },
                newest: state.newest[key] ?? 0
            )
        }
    }

    /// A read that has ended.
    struct Read: Sendable {
        let machine: Int
        let key: Int
        let place: Place
        let known: Known
        /// The origin's version after the read.
        let current: Int
        /// The number of failed or slow calls of the store after the read.
        let disturbances: Int
        /// Whether the machine has kept the value.
        let isKept: Bool
        let details: String
    }

    func ended(_ read: Read) {
        let (place, known) = (read.place, read.known)
        let connected = known.acknowledged.map { $0.disturbances == read.disturbances ? $0.version : 0 } ?? 0
        let keeper = self.state.withLock { state in
            state.counts.gets += 1
            if max(known.forgotten, connected) > 0 { state.counts.checked += 1 }
            if read.isKept, place.version >= known.newest {
                state.machines[read.machine].forgotten.raise(read.key, to: known.newest)
            }
            return state.forbidden[place.call]
        }
        let text =
            "machine \(read.machine) read version \(place.version) of key \(read.key) (call \(place.call), "
            + "\(read.details))"
        if place.version < known.forgotten {
            self.violation("\(text), though it has forgotten all before \(known.forgotten)")
        } else if place.version < connected {
            self.violation("\(text), though it is connected and \(connected) is acknowledged")
        }
        if place.version > read.current { self.violation("\(text), which is not there yet") }
        if let keeper, keeper != read.machine { self.violation("\(text), which machine \(keeper) put too late") }
    }

    // MARK: - Writes

    /// A put has ended.
    func put(_ machine: Int, _ key: Int, _ place: Place, since start: UInt64, _ result: String) {
        let (newer, isForbidden) = self.state.withLock { state in
            if result == "refused" { state.counts.refused += 1 }
            let newer = state.acknowledged[key]?.last { $0.version > place.version && $0.at < start }
            return (newer?.version, state.forbidden[place.call] != nil)
        }
        guard result == "stored" else { return }
        let put = "machine \(machine) put version \(place.version) of key \(key) (call \(place.call))"
        if let newer { self.violation("\(put) after the acknowledgement of \(newer), and it was stored") }
        if isForbidden { self.violation("\(put) too late, and it was stored") }
    }

    /// From now on, no other machine may read the value of a call, and no machine may store the value.
    func forbid(_ call: Int, besides machine: Int) { self.state.withLock { $0.forbidden[call] = machine } }
}

extension [Int: Int] {
    fileprivate mutating func raise(_ key: Int, to version: Int) { self[key] = Swift.max(version, self[key] ?? 0) }
}
