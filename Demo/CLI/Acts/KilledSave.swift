import Foundation
import MuxKit

/// A process that puts a thousand places into a map and is killed while it saves them.
enum KilledSave {
    /// The first argument that makes a process that one.
    static let argument = "killed-save"

    /// A fetch that brings nothing: these maps have what is stored or saved.
    static let nothing: @Sendable (Int) async throws -> Place = { _ in throw CocoaError(.featureUnsupported) }

    /// Starts the process, kills it as soon as it says that it has saved so many places, and waits for its end.
    static func run(in folder: URL, afterSaves count: Int) async throws {
        let process = Process()
        process.executableURL = Bundle.main.executableURL ?? URL(filePath: CommandLine.arguments[0])
        process.arguments = [self.argument, folder.path, String(count)]
        let pipe = Pipe()
        process.standardOutput = pipe
        try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
            process.terminationHandler = { _ in continuation.resume() }
            do {
                try process.run()
            } catch {
                continuation.resume(throwing: error)
            }
            // One byte says that they are saved. How far it comes after that is up to the machine.
            _ = try? pipe.fileHandleForReading.read(upToCount: 1)
            kill(process.processIdentifier, SIGKILL)
        }
    }

    /// What the process does.
    static func play(_ folder: String, afterSaves count: Int) async throws {
        let repository = MuxRepository(
            directory: URL(filePath: folder, directoryHint: .isDirectory),
            durability: .relaxed
        )
        let places = try Place.all()
        let map = MultiplexerMap(cacheKey: "Places", repository: repository, onFetch: Self.nothing)
        for (index, place) in places.enumerated() {
            map.store(place, key: place.id)
            await map.save(key: place.id)
            if index + 1 == count { FileHandle.standardOutput.write(Data("s".utf8)) }
        }
        // Not killed in time: then everything is saved.
    }
}
