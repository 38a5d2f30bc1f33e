#if os(macOS) || os(Linux)
import Foundation
import MuxKit
import MuxTestSupport
import Testing

private let archive = "etcd-histories/logs.tar.gz"

/// Recorded histories of etcd with the verdicts of other checkers, compared with this package's checker.
///
/// The histories come from porcupine (https://github.com/anishathalye/porcupine, `test_data/jepsen`) and are
/// not part of this repository: see ``SharedData``.
@Suite(.standard, .enabled(if: SharedData.has(archive), "not at hand"))
struct RecordedHistoryTests {
    /// A register with read, write and compare-and-set.
    private struct Register: SequentialModel {
        enum Action: Hashable, Sendable {
            case read(Int?)
            case write(Int)
            /// A compare-and-set. `isDone` is `nil` if the outcome is unknown.
            case change(from: Int, to: Int, isDone: Bool?)
        }

        var value: Int?

        mutating func perform(_ operation: Linearizability.Operation<Action>) -> Bool {
            switch operation.action {
            case .read(let value): return value == self.value
            case .write(let value): self.value = value
            case .change(let former, let value, let isDone):
                let isDoneNow = self.value == former
                if let isDone, isDone != isDoneNow { return false }
                if isDoneNow { self.value = value }
            }
            return true
        }
    }

    /// The operations of a log.
    ///
    /// A line contains a process, `:invoke`, `:ok`, `:fail` or `:info`, the operation and its argument.
    private func operations(_ log: String) throws -> [Linearizability.Operation<Register.Action>] {
        var operations: [Linearizability.Operation<Register.Action>] = []
        var open: [String: (called: Int, kind: String, argument: [Int?])] = [:]
        func close(_ process: String, at moment: Int, _ outcome: String, _ answer: [Int?]) throws {
            let (called, kind, argument) = try #require(open[process])
            open[process] = nil
            let isKnown = outcome != ":info"
            let action: Register.Action =
                switch kind {
                case ":read": .read(answer[0])
                case ":write": .write(argument[0] ?? -1)
                default:
                    .change(
                        from: argument[0] ?? -1,
                        to: argument[1] ?? -1,
                        isDone: isKnown ? outcome == ":ok" : nil
                    )
                }
            // An operation without a response may take effect at any later time.
            operations.append(.init(action: action, called: called, returned: isKnown ? moment : .max))
        }
        for (moment, line) in log.split(separator: "\n").enumerated() {
            let fields = line.split { $0 == "\t" || $0 == " " }.map(String.init)
            guard let dash = fields.firstIndex(of: "-"), fields.count > dash + 3 else { continue }
            let (process, outcome, kind) = (fields[dash + 1], fields[dash + 2], fields[dash + 3])
            let numbers = fields[(dash + 4)...].map { Int($0.trimmingCharacters(in: ["[", "]"])) }
            if outcome == ":invoke" {
                open[process] = (moment, kind, numbers)
            } else if kind == ":read", outcome != ":ok" {
                open[process] = nil  // A read without a response constrains no order.
            } else {
                try close(process, at: moment, outcome, numbers)
            }
        }
        for process in open.keys where open[process]?.kind != ":read" { try close(process, at: .max, ":info", []) }
        return operations
    }

    @Test func `Q-12 the checker agrees with other checkers about recorded histories`() async throws {
        let verdicts = String(bytes: try SharedData.content("etcd-histories/verdicts.csv"), encoding: .utf8) ?? ""
        let lines = verdicts.split(separator: "\n")
        try #require(lines.count == 102)
        let files = try await BlockingWork.run { Result { try SharedData.files(in: archive) } }.get()
        var judged = 0
        for verdict in stride(from: 0, to: 102, by: repetitionStep).map({ lines[$0] }) {
            let fields = verdict.split(separator: ",")
            guard fields.count == 2, let number = Int(fields[0]) else { continue }
            let name = "etcd_" + String(repeating: "0", count: 3 - "\(number)".count) + "\(number).log"
            let log = try #require(files[name].flatMap { String(bytes: $0, encoding: .utf8) }, "\(name)")
            let operations = try self.operations(log)
            #expect(operations.count > 20, "\(name)")
            let holds = await BlockingWork.run { Linearizability.holds(operations, from: Register()) }
            #expect(holds == (fields[1] == "true"), "\(name)")
            judged += 1
        }
        #expect(judged == (101 / repetitionStep) + 1)
    }
}
#endif
