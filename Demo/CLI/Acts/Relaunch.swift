import Foundation
import MuxKit
import MuxTesting

/// The second process of the act "Relaunch": this program, in the role of the relaunched app.
enum Relaunch {
    /// The report of the process.
    struct Outcome: Codable, Sendable {
        var succeeded = 0
        var misses = 0
        var diskHits = 0
        var fetches = 0
    }

    /// The first argument of the process.
    static let argument = "relaunched"

    /// Starts the process and waits for its report.
    static func run(on stage: Stage) async throws -> Outcome {
        let process = Process()
        process.executableURL = Bundle.main.executableURL ?? URL(filePath: CommandLine.arguments[0])
        let ids = stage.placeIDs.map(String.init).joined(separator: ",")
        process.arguments = [self.argument, stage.backend.url.absoluteString, stage.folder.path, ids]
        let pipe = Pipe()
        process.standardOutput = pipe
        try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
            process.terminationHandler = { _ in continuation.resume() }
            do {
                try process.run()
            } catch {
                continuation.resume(throwing: error)
            }
        }
        return try JSONDecoder().decode(Outcome.self, from: pipe.fileHandleForReading.readDataToEndOfFile())
    }

    /// Requests all values and reports.
    static func play(_ arguments: [String]) async throws {
        guard arguments.count == 3, let backend = URL(string: arguments[0]) else {
            throw CocoaError(.featureUnsupported)
        }
        let folder = URL(filePath: arguments[1], directoryHint: .isDirectory)
        let app = try App(backend: backend, folder: folder) { Stage.credentials("alice") }
        var outcome = Outcome()
        if try await app.profile.request().user == "alice" { outcome.succeeded += 1 }
        for id in arguments[2].split(separator: ",").compactMap({ Int($0) })
        where try await app.places.request(key: id).id == id {
            outcome.succeeded += 1
        }
        outcome.misses = app.statistics.misses
        outcome.diskHits = app.statistics.diskHits
        outcome.fetches = app.statistics.fetches
        FileHandle.standardOutput.write(try JSONEncoder().encode(outcome))
    }
}
