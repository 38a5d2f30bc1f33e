import ArgumentParser
import Engines
import Foundation
import MuxValkey

/// Shows the page of `swift run demo fleet`, with a real engine that the program starts and kills.
@main
struct Program: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "fleet",
        abstract: "Shows machines that share an engine in a browser, at 127.0.0.1 only."
    )

    @Option(help: "The port; a free one if there is none.")
    var port: UInt16?

    func run() async throws {
        guard let program = Engine.programs.last else { throw ValidationError(Engine.missing) }
        let engine = try await Engine(program)
        let stage = FleetStage(
            FleetEngine(
                name: program.name,
                connect: {
                    var configuration = MuxValkey.Configuration(addresses: [engine.address], prefix: "fleet")
                    // With a long heartbeat, a busy machine keeps its connection.
                    configuration.heartbeat = .seconds(5)
                    let store = MuxValkey(configuration)
                    return .init(store: store) { store.close() }
                },
                start: { try await engine.start() },
                stop: { engine.kill() },
                patience: .seconds(5)
            )
        )
        try await Page.serve(stage, html: FleetStage.html, port: self.port)
    }
}
