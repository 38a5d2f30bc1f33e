import Foundation
import Synchronization

/// A value that several tasks change.
final class Shared<Value: Sendable>: Sendable {
    private let stored: Mutex<Value>

    init(_ value: Value) { self.stored = Mutex(value) }

    var value: Value {
        get { self.stored.withLock { $0 } }
        set { self.stored.withLock { $0 = newValue } }
    }

    func change(_ body: (inout Value) -> Void) { self.stored.withLock { body(&$0) } }
}

/// One disaster, and the checks around it.
struct Round: Sendable {
    let fleet: Fleet
    let kind: Kind

    /// Machines read and clear during the disaster.
    ///
    /// Then all machines recover, and their reads are checked. Finally, the calls of the origin after a
    /// change are counted.
    ///
    /// - Throws: ``Trouble``, or the error of an engine.
    func run(_ random: inout SeededRandom) async throws {
        let history = self.fleet.history
        history.note("ROUND \(self.kind.rawValue)")
        var generators = self.fleet.machines.flatMap { machine in
            [(machine.number, random.split()), (machine.number, random.split())]
        }
        if self.kind.isSlow { generators = generators.filter { $0.0 % 2 == 0 } }
        let isOver = Shared(false)
        var own = random.split()
        try await withThrowingTaskGroup(of: Void.self) { group in
            for (machine, generator) in generators {
                group.addTask {
                    var generator = generator
                    while !isOver.value {
                        do {
                            try await self.act(machine, &generator)
                        } catch is Trouble where self.kind == .holderKilled {
                            // The process of the machine was replaced.
                        }
                        try await Task.sleep(for: generator.milliseconds(0...12))
                    }
                }
            }
            do {
                try await self.kind.strike(self.fleet, &own)
            } catch {
                isOver.value = true
                group.cancelAll()
                throw error
            }
            history.note("the disaster is over")
            isOver.value = true
            try await group.waitForAll()
        }
        try await self.fleet.recover()
        history.note("all have recovered")
        try await self.fleet.onEachMachine { machine in
            for key in Keys.common { try await self.fleet.get(machine, key) }
        }
        try await self.countCalls(&random)
        history.count { $0.disasters += 1 }
    }

    /// A random command to a machine during a disaster.
    private func act(_ machine: Int, _ random: inout SeededRandom) async throws {
        let key = Int.random(in: Keys.common, using: &random)
        switch Double.random(in: 0..<1, using: &random) {
        case ..<0.82: try await self.fleet.get(machine, key)
        case ..<0.90: try await self.fleet.change(.entry(key), by: machine)
        case ..<0.93 where self.kind.permitsAllClears: try await self.fleet.change(.group(key % 3), by: machine)
        case ..<0.94 where self.kind.permitsAllClears: try await self.fleet.change(.domain, by: machine)
        case ..<0.945 where self.kind.permitsAllClears: try await self.fleet.change(.everything, by: machine)
        case 0.945... where self.kind.hasOneOrder: try await self.fleet.sync(machine, within: .milliseconds(300))
        default: try await self.fleet.get(machine, key)
        }
    }

    /// Checks that the origin is called exactly once for each changed key when all machines request all keys
    /// at the same time.
    ///
    /// The promise applies to machines that can use the store. After a call of the store that failed, or was
    /// so slow that a machine may have abandoned the call, the count is inconclusive and is repeated.
    private func countCalls(_ random: inout SeededRandom) async throws {
        let fleet = self.fleet
        for _ in 0..<3 {
            let scope: Fleet.Scope =
                switch Int.random(in: 0..<10, using: &random) {
                case ..<4: .entry(Int.random(in: Keys.common, using: &random))
                case ..<7: .group(Int.random(in: Keys.groups, using: &random))
                case ..<9: .domain
                default: .everything
                }
            let failures = Shared(0)
            let before = (try await fleet.facts(), fleet.origin.calls)
            let machine = Int.random(in: 0..<fleet.machines.count, using: &random)
            let isAcknowledged = try await fleet.change(scope, by: machine)
            try await fleet.onEachMachine { machine in
                if try await !fleet.sync(machine, within: .seconds(10)) { failures.change { $0 += 1 } }
            }
            fleet.history.note("all ask for everything")
            try await fleet.onEachMachine { machine in
                try await withThrowingTaskGroup(of: Void.self) { group in
                    for key in Keys.common.flatMap({ [$0, $0] }) {
                        group.addTask {
                            if try await fleet.get(machine, key) == nil { failures.change { $0 += 1 } }
                        }
                    }
                    try await group.waitForAll()
                }
            }
            let after = (try await fleet.facts(), fleet.origin.calls)
            guard isAcknowledged, failures.value == 0, after.0.disturbances == before.0.disturbances else {
                fleet.history.count { $0.disturbedChecks += 1 }
                fleet.history.note("the count says nothing")
                try await fleet.recover()
                continue
            }
            for key in Keys.common {
                let count = after.1[key, default: 0] - before.1[key, default: 0]
                let expected = scope.keys.contains(key) ? 1 : 0
                guard count != expected else { continue }
                fleet.history.violation("\(count) calls for key \(key) in place of \(expected), after \(scope)")
            }
            fleet.history.count { $0.exactKeys += Keys.common.filter { scope.keys.contains($0) }.count }
            return
        }
    }
}
