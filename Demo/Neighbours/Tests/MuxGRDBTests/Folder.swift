import Foundation

/// A temporary folder, which is removed with this object.
final class Folder: Sendable {
    let url: URL
    private let isKept: Bool

    /// - Parameter isKept: Whether the folder stays after the test.
    init(isKept: Bool = false) {
        self.url = FileManager.default.temporaryDirectory.appending(component: "MuxGRDB-\(UUID().uuidString)")
        self.isKept = isKept
    }

    deinit { if !self.isKept { try? FileManager.default.removeItem(at: self.url) } }

    /// The file of the database.
    var file: URL { self.url.appending(component: "mux.sqlite") }

    /// This folder, which exists.
    var made: Folder {
        get throws {
            try FileManager.default.createDirectory(at: self.url, withIntermediateDirectories: true)
            return self
        }
    }

    /// Whether a file of the folder contains `text`.
    func contains(_ text: String) -> Bool {
        let files = (try? FileManager.default.contentsOfDirectory(at: self.url, includingPropertiesForKeys: nil)) ?? []
        return files.contains { (try? Data(contentsOf: $0))?.firstRange(of: Data(text.utf8)) != nil }
    }
}
