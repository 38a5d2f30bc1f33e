import Foundation

/// The simplest disk cache: one JSON file for each key.
struct FilePerKey: Sendable {
    let folder: URL

    init(_ folder: URL) throws {
        self.folder = folder
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    }

    func url(_ key: Int) -> URL { self.folder.appending(component: "\(key).json") }

    func save(_ article: Article) throws {
        try JSONEncoder().encode(article).write(to: self.url(article.id), options: .atomic)
    }

    func data(_ key: Int) throws -> Data { try Data(contentsOf: self.url(key)) }
}

/// Runs `body` with a temporary folder.
func withFolder<Result>(_ body: (URL) async throws -> Result) async throws -> Result {
    let folder = FileManager.default.temporaryDirectory.appending(component: "MuxBenchmarks-\(UUID().uuidString)")
    defer { try? FileManager.default.removeItem(at: folder) }
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    return try await body(folder)
}
