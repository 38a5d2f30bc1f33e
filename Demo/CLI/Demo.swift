import Foundation

/// Demonstrates the library end to end, over real HTTP on loopback, and checks its promises.
@main
struct Demo {
    static func main() async throws {
        let command: Command
        do {
            command = try Command(Array(CommandLine.arguments.dropFirst()))
        } catch {
            self.complain("\(error.text)\n\n\(Command.manual)")
            exit(2)
        }
        switch command {
        case .play(let act, let asJSON): exit(try await self.play(act, asJSON: asJSON) ? 0 : 1)
        case .help: print(Command.manual)
        case .child(let arguments): try await self.child(arguments)
        case .serve(let port):
            await self.serve { try await Page.serve(LiveStage(), html: LiveStage.html(), port: port) }
        case .fleet(let port):
            await self.serve { try await Page.serve(FleetStage(.inMemory()), html: FleetStage.html, port: port) }
        }
    }

    private static func serve(_ page: () async throws -> Void) async {
        do {
            try await page()
        } catch {
            self.complain(error.localizedDescription)
            exit(1)
        }
    }

    /// Writes to standard error, because standard output is the report.
    private static func complain(_ text: String) {
        try? FileHandle.standardError.write(contentsOf: Data("demo: \(text)\n".utf8))
    }

    /// The main function of a child process of the demo.
    private static func child(_ arguments: [String]) async throws {
        switch (arguments.first, arguments.count) {
        case (Relaunch.argument, 4): try await Relaunch.play(Array(arguments.dropFirst()))
        case (WorkerProcess.argument, 2): try await WorkerProcess.play(arguments[1])
        case (WriterProcess.argument, 4): try await WriterProcess.play(arguments[1], arguments[2], arguments[3])
        default: exit(2)
        }
    }

    /// Plays the acts up to `last`, or all; returns whether all expectations hold.
    private static func play(_ last: String?, asJSON: Bool) async throws -> Bool {
        let console = Console(isSilent: asJSON)
        let stage = try Stage(console: console)
        let clock = ContinuousClock()
        let start = clock.now
        console.say(Act.header)
        let count = (Play.all.firstIndex { $0.argument == last } ?? Play.all.count - 1) + 1
        let plays = Play.all.prefix(count)
        var acts: [Act] = []
        for (index, play) in plays.enumerated() {
            console.show("act \(index + 1) of \(plays.count)", fraction: Double(index) / Double(plays.count))
            acts.append(await play(on: stage))
            console.say(acts[index].text)
        }
        await stage.close()
        let elapsed = start.duration(to: clock.now)
        let failures = acts.count { !$0.holds }
        console.say(
            failures == 0
                ? "\nAll \(acts.count) acts went as promised, in \(elapsed.formatted(.units(allowed: [.seconds], fractionalPart: .show(length: 1))))."
                : "\n\(failures) acts FAILED."
        )
        if asJSON { print(Report(acts, after: elapsed).json) }
        return failures == 0
    }
}
