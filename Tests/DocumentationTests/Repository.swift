import Foundation

/// The files of this repository, as a reader finds them.
enum Repository {
    static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    static func text(_ path: String) throws -> String {
        try String(contentsOf: self.root.appending(path: path), encoding: .utf8)
    }

    /// The paths, from the repository's root, of the files in a folder whose names have the ending.
    static func files(_ folder: String, _ ending: String) -> [String] {
        self.everything(folder).filter { $0.hasSuffix(ending) }
    }

    /// The paths, from `folder`, of all folders in a folder that contain Swift files.
    static func folders(_ folder: String) -> [String] {
        let files = self.files(folder, ".swift").map { URL(filePath: $0).deletingLastPathComponent().relativePath }
        return Set(files).map { String($0.dropFirst(folder.count + 1)) }.filter { !$0.isEmpty }.sorted()
    }

    private static func everything(_ folder: String) -> [String] {
        let paths = FileManager.default.enumerator(atPath: self.root.appending(path: folder).path)
        return (paths?.compactMap { $0 as? String } ?? []).sorted().map { "\(folder)/\($0)" }
    }
}
