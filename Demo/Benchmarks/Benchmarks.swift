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
        BenchmarkGroup("sessions", "Many users in one object", SessionsGroup.rows),
        BenchmarkGroup("fleet", "Fetches of machines in each time to live, by what they share", FleetGroup.rows),
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
        if !Set(arguments).isDisjoint(with: ["help", "--help", "-h"]) { return print(self.manual) }
        let options = Set(arguments.filter { $0.hasPrefix("-") })
        let names = arguments.filter { !$0.hasPrefix("-") }
        let known = ["--json", "--markdown", "--check", "--long"] + self.groups.map(\.name)
        if let unknown = arguments.first(where: { !known.contains($0) }) {
            self.complain("there is no '\(unknown)'\n\n\(self.manual)")
            exit(2)
        }
        try await self.run(names, options)
    }

    private static var manual: String {
        """
        swift run -c release benchmarks [group …] [options]

          --json       prints the rows as JSON
          --markdown   prints them as the table of a document
          --check      exits with 1 if a count is off, such as one of allocations; never for a time
          --long       plays four times as many rounds
          --help       prints this

        The groups; all without a name:

        \(self.groups.map { "  \(Text.left($0.name, 12)) \($0.title)" }.joined(separator: "\n"))

        Exit codes: 0 it ran, 1 a count was off, 2 the arguments were not understood.
        """
    }

    /// Writes to standard error, because standard output is the report.
    private static func complain(_ text: String) {
        try? FileHandle.standardError.write(contentsOf: Data("benchmarks: \(text)\n".utf8))
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
        let groups = self.groups.filter { names.isEmpty || names.contains($0.name) }
        for (index, group) in groups.enumerated() {
            if isatty(2) == 1 { self.complain("\(group.name), \(index + 1) of \(groups.count)") }
            let more = try await group.rows(effort)
            report.show(group.title, more)
            fflush(nil)  // A pipe gets each group when it is done.
            rows += more
        }
        let wrong = rows.filter(\.isWrongCount)
        try report.end(rows)
        if options.contains("--check"), !wrong.isEmpty {
            for row in wrong { self.complain("count off: \(row.group), \(row.name)") }
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
