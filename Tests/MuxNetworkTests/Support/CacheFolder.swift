import Foundation

/// A temporary folder for a single test of the cache, removed with this object.
final class CacheFolder {
    /// A URL of the simulated server.
    static func url(_ path: String) -> URL {
        var components = URLComponents()
        (components.scheme, components.host, components.path) = ("http", "example.org", path)
        return components.url ?? URL(filePath: path)
    }

    let url: URL

    init() throws {
        self.url = FileManager.default.temporaryDirectory.appending(component: "mux-cache-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: self.url, withIntermediateDirectories: true)
    }

    deinit { try? FileManager.default.removeItem(at: self.url) }

    func files() throws -> [URL] {
        let found = FileManager.default.enumerator(at: self.url, includingPropertiesForKeys: nil)?.allObjects as? [URL]
        return (found ?? []).filter { !$0.hasDirectoryPath }
    }

    func size() throws -> Int {
        try self.files().reduce(0) { try $0 + Data(contentsOf: $1).count }
    }
}
