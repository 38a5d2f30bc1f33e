import Foundation

/// What things cost, beside the cheapest code that could do them and what a user would write instead.
///
/// `swift run -c release benchmarks`, or with the names of groups as arguments: `hit`, `memory`. Contestants take turns in one process; figures are medians, and the ratios are what counts.
@main
struct Benchmarks {
    static func main() async throws {
        #if DEBUG
        print("This is a debug build; for figures that mean something: swift run -c release benchmarks\n")
        #endif
        let groups = CommandLine.arguments.dropFirst().filter { !$0.hasPrefix("-") }
        if groups.isEmpty || groups.contains("hit") { try await HitBenchmark.run() }
        if groups.isEmpty || groups.contains("memory") { try await MemoryBenchmark.run() }
    }
}
