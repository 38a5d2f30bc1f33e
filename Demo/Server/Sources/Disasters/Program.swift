import ArgumentParser
import Engines
import Foundation

/// Machines in separate processes, a real engine, and their failures.
@main
struct Disasters: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "disasters",
        abstract: "Draws disasters for fleets of processes that share an engine, and checks what is promised.",
        subcommands: [Coordinate.self, RunMachine.self, Guard.self],
        defaultSubcommand: Coordinate.self
    )

    struct Coordinate: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "run",
            abstract: "Draws disasters; ends with status 1 if a promise was not kept."
        )

        @Option(help: "How many disasters.")
        var count = 1_000

        @Option(help: "What the draws follow from; at random if missing.")
        var seed: UInt64?

        @Option(help: "How many machines a fleet has, each a process: 2 to 32.")
        var machines = 8

        @Option(help: "How many fleets there are at the same time.")
        var fleets = 3

        @Option(help: "A part of the path of the engines to use; all take their turns if missing.")
        var engine = ""

        @Option(help: "After how many seconds no new disaster begins.")
        var secondsLimit = 3_600.0

        @Option(help: "A part of the name of the kinds to draw.")
        var only = ""

        @Option(help: "Repeats one episode of a seed.")
        var episode: Int?

        @Option(help: "The folder for journals of violations; one among the temporary files if missing.")
        var journals: String?

        func run() async throws {
            let programs = Engine.programs.filter { self.engine.isEmpty || $0.path.contains(self.engine) }
            let kinds = Kind.allCases.filter { self.only.isEmpty || $0.rawValue.contains(self.only) }
            guard !programs.isEmpty else { throw ValidationError(Engine.missing) }
            guard !kinds.isEmpty, (2...32).contains(self.machines), self.fleets > 0 else {
                throw ValidationError("no such kind, or not so many machines")
            }
            let seed = self.seed ?? .random(in: 0..<1_000_000)
            let campaign = Campaign(
                seed: seed,
                machines: self.machines,
                programs: programs,
                kinds: kinds,
                journals: self.journals.map { URL(filePath: $0) }
                    ?? FileManager.default.temporaryDirectory.appending(component: "disasters"),
                repeating: "disasters --seed \(seed) --machines \(self.machines)"
                    + (self.engine.isEmpty ? "" : " --engine \(self.engine)")
                    + (self.only.isEmpty ? "" : " --only \"\(self.only)\"")
            )
            let isKept = try await campaign.run(
                count: self.count,
                fleets: self.fleets,
                limit: .seconds(self.secondsLimit),
                only: self.episode
            )
            guard isKept else { throw ExitCode(1) }
        }
    }

    struct RunMachine: AsyncParsableCommand {
        static let configuration = CommandConfiguration(commandName: "machine", shouldDisplay: false)

        @Option var number: Int
        @Option var port: Int
        @Option var engines: String
        @Option var prefix: String

        func run() async throws {
            let engines = self.engines.split(separator: ",").compactMap { Int($0) }
            try await Machine.run(self.number, port: self.port, engines: engines, prefix: self.prefix)
        }
    }

    struct Guard: ParsableCommand {
        static let configuration = CommandConfiguration(commandName: "guard", shouldDisplay: false)

        func run() { Guardian.run() }
    }
}
