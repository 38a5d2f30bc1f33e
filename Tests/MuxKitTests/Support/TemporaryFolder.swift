import Foundation

/// The location of a temporary folder, which is not created.
struct TemporaryFolder: Sendable {
    let url = FileManager.default.temporaryDirectory.appending(component: "MuxKitTests-\(UUID().uuidString)")

    func remove() { try? FileManager.default.removeItem(at: self.url) }

    /// Every file in the folder, with its bytes.
    func contents() -> [String: Data] {
        let files = FileManager.default.enumerator(atPath: self.url.path)?.compactMap { $0 as? String } ?? []
        return files.reduce(into: [:]) { contents, file in
            contents[file] = try? Data(contentsOf: self.url.appending(path: file))
        }
    }
}
