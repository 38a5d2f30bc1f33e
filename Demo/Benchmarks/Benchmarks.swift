import Foundation

/// Costs, compared with the cheapest possible code and with what a user would write instead.
///
/// ```
/// swift run -c release benchmarks [group …] [--json | --markdown] [--check] [--long]
/// ```
///
/// Contestants take turns in one process. Figures are medians; a ratio is the median of the ratios of all rounds, and is more
/// reliable than a figure. `--check` fails if a count is wrong (allocations, executor jobs, fetches), never for a time.
@main
struct Benchmarks {
    /// The groups in the order of the table.
    static let groups = [
        BenchmarkGroup("hit", "A fresh value of a Multiplexer", HitGroup.rows),
        BenchmarkGroup("map", "A fresh value of a MultiplexerMap of 1,000 keys, bounded and counted", MapHitGroup.rows),
        BenchmarkGroup("locks", "What other locks than one would make of a map's hits", LocksGroup.rows),
        BenchmarkGroup("events", "A hit without and with an observer", EventsGroup.rows),
        BenchmarkGroup("runner", "A call with a good dependency", RunnerGroup.rows),
        BenchmarkGroup("storm", "10,000 callers of one cold key", StormGroup.rows),
        BenchmarkGroup("tokens", "10,000 callers whose token has expired", TokenGroup.rows),
        BenchmarkGroup("keys", "10,000 cold keys at once", ManyKeysGroup.rows),
        BenchmarkGroup("cold", "A cold request of a new key, one after another", ColdRequestGroup.rows),
        BenchmarkGroup("memory", "What a map takes in memory", MemoryGroup.rows),
        BenchmarkGroup("eviction", "Hit ratio, 10,000 of 1,000,000 keys", EvictionGroup.rows),
        BenchmarkGroup("save", "Saving 10,000 entries of 1 KB, safe from a power cut", SaveGroup.rows),
        BenchmarkGroup("million", "What is done to a map of 1,000,000, and the hits beside it", MillionGroup.rows),
        BenchmarkGroup("load", "Reading from disk", LoadGroup.rows),
        BenchmarkGroup("envelope", "What the journal's format adds to JSON", EnvelopeGroup.rows),
        BenchmarkGroup("signout", "Signing out with 50,000 entries on disk", SignOutGroup.rows),
        BenchmarkGroup("transport", "Small requests over loopback", TransportGroup.rows),
        BenchmarkGroup("caching", "Answers that a private cache keeps", CachingGroup.rows),
        BenchmarkGroup("media", "A large file over loopback", MediaGroup.rows),
        BenchmarkGroup(
            "growth",
            "The cost of one among as many, ten times and a hundred times as many",
            GrowthGroup.rows
        ),
    ]

    static func main() async throws {
        let arguments = Array(CommandLine.arguments.dropFirst())
        let options = Set(arguments.filter { $0.hasPrefix("-") })
        let names = arguments.filter { !$0.hasPrefix("-") }
        let known: Set = ["--json", "--markdown", "--check", "--long"]
        let isUnknown = !options.isSubset(of: known) || !Set(names).isSubset(of: self.groups.map(\.name))
        guard !isUnknown else {
            print("benchmarks [group …] [--json | --markdown] [--check] [--long]")
            print("groups: " + self.groups.map(\.name).joined(separator: " "))
            exit(2)
        }
        try await self.run(names, options)
    }

    /// Runs on the pool, like most callers; measurements on the main actor are named so.
    @concurrent private static func run(_ names: [String], _ options: Set<String>) async throws {
        let format: Report.Format =
            options.contains("--json") ? .json : options.contains("--markdown") ? .markdown : .text
        let report = Report(format: format)
        report.begin()
        let effort = Effort(isLong: options.contains("--long"))
        var rows = try await SelfCheck.rows()
        report.show("The counters themselves", rows)
        for group in self.groups where names.isEmpty || names.contains(group.name) {
            let more = try await group.rows(effort)
            report.show(group.title, more)
            rows += more
        }
        let wrong = rows.filter(\.isWrongCount)
        try report.end(rows)
        if options.contains("--check"), !wrong.isEmpty {
            for row in wrong { FileHandle.standardError.write(Data("count off: \(row.group), \(row.name)\n".utf8)) }
            exit(1)
        }
    }
}

/// A group of rows that are measured together.
struct BenchmarkGroup: Sendable {
    let name: String
    let title: String
    private let make: @Sendable (String, Effort) async throws -> [Row]

    init(_ name: String, _ title: String, _ make: @escaping @Sendable (String, Effort) async throws -> [Row]) {
        self.name = name
        self.title = title
        self.make = make
    }

    func rows(_ effort: Effort) async throws -> [Row] { try await self.make(self.name, effort) }
}

/// The extent of the measurements.
struct Effort: Sendable {
    let isLong: Bool

    /// `count` rounds, or four times as many.
    func rounds(_ count: Int) -> Int { self.isLong ? count * 4 : count }
}
