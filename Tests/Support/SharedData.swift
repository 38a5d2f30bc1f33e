package import Foundation

/// Third-party input that is not part of the repository: in the folder of `MUX_DATA`, by default in
/// `../shared/data` beside the repository.
package enum SharedData {
    private static let folder: URL = {
        if let path = ProcessInfo.processInfo.environment["MUX_DATA"] { return URL(filePath: path) }
        let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        return root.deletingLastPathComponent().appending(path: "shared/data")
    }()

    /// Whether the file exists.
    package static func has(_ path: String) -> Bool {
        FileManager.default.fileExists(atPath: self.folder.appending(path: path).path)
    }

    /// The content of a file.
    package static func content(_ path: String) throws -> Data {
        try Data(contentsOf: self.folder.appending(path: path))
    }

    #if os(macOS) || os(Linux)
    /// The files of a gzip archive by the last components of the paths; of equal names, one file.
    ///
    /// Blocks until `tar` ends, so callers must not be on the concurrent pool.
    package static func files(in archive: String) throws -> [String: Data] {
        let manager = FileManager.default
        let target = manager.temporaryDirectory.appending(component: "MuxKit-" + UUID().uuidString)
        try manager.createDirectory(at: target, withIntermediateDirectories: true)
        defer { try? manager.removeItem(at: target) }
        let tar = Process()
        tar.executableURL = URL(filePath: "/usr/bin/env")
        tar.arguments = ["tar", "-xzf", self.folder.appending(path: archive).path, "-C", target.path]
        try tar.run()
        tar.waitUntilExit()
        var files: [String: Data] = [:]
        for case let path as String in manager.enumerator(atPath: target.path) ?? .init() {
            let url = target.appending(path: path)
            guard let content = try? Data(contentsOf: url) else { continue }
            files[url.lastPathComponent] = content
        }
        return files
    }
    #endif
}
