package import Foundation

/// The name of a file or folder that belongs to exactly one text, such as the name of an account's tokens.
///
/// The file name is a SHA-256 digest: two texts with one hash of 64 bits can be computed in seconds. The file or folder stores
/// the full name as well. If that is another name, because the digests collide or because the file is a copy, the file or
/// folder is neither used nor removed.
///
/// Names are compared by their UTF-8 bytes, so that texts which differ only in Unicode normalization are different names.
package struct OwnedName: Sendable {
    /// The kind of a file or folder, and the beginning of its name.
    package enum Kind: String, Sendable, CaseIterable {
        /// A file of tokens.
        case tokens
        /// A file of a lease.
        case lease
        /// A folder of media.
        case media = "MuxMedia"
        /// A folder of the bodies of stored responses.
        case bodies = "MuxHTTP"
    }

    /// The parts of the full name.
    package let fields: [String]
    /// The name in the file system: the kind and 64 hexadecimal digits.
    package let fileName: String

    /// Makes the name of `fields`; tests pass a `digest` that collides.
    package init(_ kind: Kind, _ fields: [String], digest: ([UInt8]) -> [UInt8] = { SHA256.hash($0) }) {
        self.fields = fields
        var bytes: [UInt8] = []
        for field in [kind.rawValue] + fields {
            // With the length before each field, so that ["ab", "c"] and ["a", "bc"] differ.
            let count = UInt64(field.utf8.count)
            bytes += (0..<8).map { UInt8(truncatingIfNeeded: count >> ($0 * 8)) }
            bytes += field.utf8
        }
        self.fileName = kind.rawValue + "-" + SHA256.text(digest(bytes))
    }

    /// Whether `other` are the same fields, byte for byte.
    package func matches(_ other: [String]) -> Bool {
        self.fields.count == other.count && zip(self.fields, other).allSatisfy { $0.utf8.elementsEqual($1.utf8) }
    }

    /// The name of the file that stores the full name of a folder.
    package static let folderFile = "owner"
}

/// A file that is replaced atomically and stores its full name: in a line of JSON before the content.
package struct OwnedFile: Sendable {
    private struct Header: Codable {
        var mux = 1
        var name: [String]
    }

    private let name: OwnedName
    private let file: DurableFile
    private let fileSystem: CheckedFileSystem

    /// Describes the file of `name` in `folder`; does no I/O.
    ///
    /// - Parameters:
    ///   - name: The full name.
    ///   - fileName: The name in the file system; `nil` for that of `name`.
    ///   - folder: The path of the folder.
    ///   - fileSystem: The file system.
    package init(_ name: OwnedName, as fileName: String? = nil, in folder: String, fileSystem: CheckedFileSystem) {
        self.name = name
        self.file = DurableFile(fileName ?? name.fileName, in: folder, fileSystem: fileSystem)
        self.fileSystem = fileSystem
    }

    /// The content; empty if the file is damaged, `nil` if there is no file.
    ///
    /// - Throws: ``MuxStoreError/otherName`` if the file belongs to another name.
    package func read() throws(MuxStoreError) -> Data? {
        let data: Data
        do {
            guard let found = try self.file.read() else { return nil }
            data = found
        } catch .fileSystem(.read, code: POSIXFileSystem.tooLarge) {
            return Data()
        }
        guard let end = data.firstIndex(of: 0x0a),
            let header = try? JSONDecoder().decode(Header.self, from: data[..<end])
        else { return Data() }
        guard header.mux == 1 else { throw .newerFormat }
        guard self.name.matches(header.name) else { throw self.fileSystem.refused(.otherName) }
        return Data(data[data.index(after: end)...])
    }

    /// Replaces the content, unless the file belongs to another name.
    package func write(_ content: Data, durability: MuxDurability) throws(MuxStoreError) {
        _ = try self.read()
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        // Texts and a number are always encodable.
        let header = (try? encoder.encode(Header(name: self.name.fields))) ?? Data()
        try self.file.write(header + [0x0a] + content, durability: durability)
    }

    /// Removes the file and the temporary files of killed writers, unless the file belongs to another name.
    package func remove(durability: MuxDurability) throws(MuxStoreError) {
        _ = try self.read()
        // First, so that a process that is killed in between finds the file, and removes both.
        try self.file.removeLeftovers()
        try self.file.remove(durability: durability)
    }

    /// Removes the temporary files of killed writers, unless the file belongs to another name.
    package func removeLeftovers() throws(MuxStoreError) {
        _ = try self.read()
        try self.file.removeLeftovers()
    }
}

/// The folder of a store: its path, or the reason why there is none.
package struct StoreFolder: Sendable {
    /// The path, without a slash at its end.
    package let location: Result<String, MuxStoreError>
    /// The full name of a folder that is named by a digest.
    package let owner: OwnedName?

    package init(_ location: Result<String, MuxStoreError>, owner: OwnedName? = nil) {
        self.location = location
        self.owner = owner
    }

    /// The folder of a URL.
    package init(_ url: URL) {
        self.init(Result { () throws(MuxStoreError) in try FilePath.path(of: url) })
    }

    /// The folder of the app among the user's caches or data.
    package static func standard(_ purpose: MuxStoreLocation.Purpose = .caches) -> StoreFolder {
        StoreFolder(
            Result { () throws(MuxStoreError) in try FilePath.path(of: try MuxStoreLocation.standard(purpose)) }
        )
    }

    /// The path; empty if there is none, in which case ``refusal`` keeps the path from being used.
    package var path: String { (try? self.location.get()) ?? "" }

    /// Why there is no path.
    package var refusal: MuxStoreError? {
        if case .failure(let error) = self.location { error } else { nil }
    }

    /// The folder of that name in this one.
    package func appending(_ name: String, owner: OwnedName? = nil) -> StoreFolder {
        StoreFolder(self.location.map { FilePath.join($0, name) }, owner: owner)
    }

    /// Makes the folder, and stores its full name if it is named by a digest.
    ///
    /// - Throws: ``MuxStoreError/otherName`` if it belongs to another name.
    package func claim(_ fileSystem: CheckedFileSystem) throws(MuxStoreError) {
        try fileSystem.makeFolders(self.path)
        guard let file = self.ownerFile(fileSystem) else { return }
        // A damaged name, or one that is missing because a process was killed here, is written again.
        if try file.read() != Data([0x0a]) { try file.write(Data([0x0a]), durability: .relaxed) }
    }

    /// Checks that the folder does not belong to another name; creates nothing.
    ///
    /// - Returns: Whether the folder exists.
    package func isPresent(_ fileSystem: CheckedFileSystem) throws(MuxStoreError) -> Bool {
        guard try fileSystem.checkFolder(self.path) else { return false }
        _ = try self.ownerFile(fileSystem)?.read()
        return true
    }

    private func ownerFile(_ fileSystem: CheckedFileSystem) -> OwnedFile? {
        self.owner.map { OwnedFile($0, as: OwnedName.folderFile, in: self.path, fileSystem: fileSystem) }
    }

    /// The place of a folder as a text that is unambiguous: relative to the home folder, which an update of an app moves,
    /// or absolute.
    package static func place(of path: String, home: String) -> String {
        var home = home.utf8[...]
        while home.last == UInt8(ascii: "/") { home.removeLast() }
        guard !home.isEmpty, path.utf8.starts(with: home) else { return "path:" + path }
        let rest = path.utf8.dropFirst(home.count)
        guard rest.isEmpty || rest.first == UInt8(ascii: "/") else { return "path:" + path }
        return "home:" + String(decoding: rest, as: UTF8.self)
    }
}
