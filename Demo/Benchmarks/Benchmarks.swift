import Foundation

/// Measures costs, and compares them with the cheapest possible code and with a typical hand-written
/// alternative.
///
/// ```
/// swift run -c release benchmarks [group …] [--json | --markdown] [--check] [--long]
/// ```
///
/// Contestants take turns in one process. Figures are medians; a ratio is the median of the ratios of all
/// rounds, and is more reliable than a figure. `--check` fails if a count is wrong (allocations, executor
/// jobs, fetches), never for a time.
@main
struct Benchmarks {
    /// The groups in the order of the table.
    static let groups = [
        BenchmarkGroup("hit", "A fresh value of a Multiplexer", HitGroup.rows),
        BenchmarkGroup("map", "A fresh value of a MultiplexerMap of 1,000 keys, bounded and counted", MapHitGroup.rows),
        BenchmarkGroup("locks", "Hits of a map with several locks instead of one", LocksGroup.rows),
        BenchmarkGroup("events", "A hit without and with an observer", EventsGroup.rows),
        BenchmarkGroup("runner", "A call with a valid dependency", RunnerGroup.rows),
        BenchmarkGroup("storm", "10,000 callers of one cold key", StormGroup.rows),
        BenchmarkGroup("tokens", "10,000 callers whose token has expired", TokenGroup.rows),
        BenchmarkGroup("keys", "10,000 cold keys at once", ManyKeysGroup.rows),
        BenchmarkGroup("cold", "A cold request of a new key, one after another", ColdRequestGroup.rows),
        BenchmarkGroup("memory", "The memory of a map", MemoryGroup.rows),
        BenchmarkGroup("sessions", "Many users in one object", SessionsGroup.rows),
        BenchmarkGroup("fleet", "Fetches of a fleet in each time to live, by kind of sharing", FleetGroup.rows),
        BenchmarkGroup("eviction", "Hit ratio, 10,000 of 1,000,000 keys", EvictionGroup.rows),
        BenchmarkGroup("cache", "MemoryCache, beside a cache in the app's own code", MemoryCacheGroup.rows),
        BenchmarkGroup("save", "Saving 10,000 entries of 1 KB, safe from a power cut", SaveGroup.rows),
        BenchmarkGroup("million", "Operations on a map of 1,000,000 entries, and concurrent hits", MillionGroup.rows),
        BenchmarkGroup("load", "Reading from disk", LoadGroup.rows),
        BenchmarkGroup("envelope", "The overhead of the journal's format over JSON", EnvelopeGroup.rows),
        BenchmarkGroup("signout", "Signing out with 50,000 entries on disk", SignOutGroup.rows),
        BenchmarkGroup("outbox", "Offline writes", OutboxGroup.rows),
        BenchmarkGroup("transport", "Small requests over loopback", TransportGroup.rows),
        BenchmarkGroup("caching", "Responses in a private cache", CachingGroup.rows),
        BenchmarkGroup("media", "A large file over loopback", MediaGroup.rows),
        BenchmarkGroup(
            "growth",
            "The cost per element at a base size, and at 10 and 100 times the size",
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
          --markdown   prints the rows as a Markdown table
          --check      exits with 1 if a count is wrong, such as a number of allocations; never for a time
          --long       plays four times as many rounds
          --help       prints this help

        The groups; without a name, all groups run:

        \(self.groups.map { "  \(Text.left($0.name, 12)) \($0.title)" }.joined(separator: "\n"))

        Exit codes: 0 success, 1 a wrong count, 2 invalid arguments.
        """
    }

    /// Writes to standard error, because standard output is the report.
    private static func complain(_ text: String) {
        try? FileHandle.standardError.write(contentsOf: Data("benchmarks: \(text)\n".utf8))
    }

    /// Runs on the concurrent pool, like most callers.
    ///
    /// Rows of measurements on the main actor name the main actor.
    @concurrent private static func run(_ names: [String], _ options: Set<String>) async throws {
        let format: Report.Format =
            options.contains("--json") ? .json : options.contains("--markdown") ? .markdown : .text
        let report = Report(format: format)
        report.begin()
        let effort = Effort(isLong: options.contains("--long"))
        var rows = try await SelfCheck.rows()
        report.show("Self-check of the counters", rows)
        let groups = self.groups.filter { names.isEmpty || names.contains($0.name) }
        for (index, group) in groups.enumerated() {
            if isatty(2) == 1 { self.complain("\(group.name), \(index + 1) of \(groups.count)") }
            let more = try await group.rows(effort)
            report.show(group.title, more)
            fflush(nil)  // A pipe receives each group at once.
            rows += more
        }
        let wrong = rows.filter(\.isWrongCount)
        try report.end(rows)
        if options.contains("--check"), !wrong.isEmpty {
            for row in wrong { self.complain("wrong count: \(row.group), \(row.name)") }
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

    /// `count` rounds, or four times `count` in a long run.
    func rounds(_ count: Int) -> Int { self.isLong ? count * 4 : count }
}
