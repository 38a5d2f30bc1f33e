import Foundation
import MuxKit

/// The page's worker, as the child process that it is: tells what it finds, then saves whenever it is told to.
enum WorkerProcess {
    /// What it finds when it starts.
    struct Found: Codable, Sendable {
        var entries = 0
        var isWhole = true
        /// Bytes at the end of the journal that belong to no whole record.
        var tornBytes = 0
    }

    /// The first argument that makes a process this one.
    static let argument = "worker"

    /// What it does until its input ends, or it is killed.
    static func play(_ folder: String) async throws {
        let store = JournalStore(directory: URL(filePath: folder, directoryHint: .isDirectory))
        let repository = MuxRepository(store: store, durability: .relaxed)
        let map = MultiplexerMap(cacheKey: "Places", repository: repository, onFetch: KilledSave.nothing)
        let places = try Place.all()
        var found = Found()
        for place in places {
            guard let kept = await map.loadCachedValue(key: place.id) else { continue }
            found.entries += 1
            if kept.id != place.id || kept.name != place.name { found.isWhole = false }
        }
        found.tornBytes = await store.statistics().tornBytes
        try self.say(String(decoding: JSONEncoder().encode(found), as: UTF8.self))
        while readLine() == "save" {
            await map.clear()
            for (index, place) in places.enumerated() {
                map.store(place, key: place.id)
                await map.save(key: place.id)
                if index % 10 == 9 { try self.say("saved \(index + 1)") }
            }
        }
    }

    private static func say(_ line: String) throws {
        try FileHandle.standardOutput.write(contentsOf: Data("\(line)\n".utf8))
    }
}
