package import Foundation

/// The name of a file or folder that belongs to exactly one *full name*, a list of strings of any length.
///
/// For example, the full name of a file of tokens is the name of the token store.
///
/// The file name contains a SHA-256 digest, because two full names with the same 64-bit hash can be computed
/// in seconds. The file or folder stores the full name as well. If the stored name differs, because of a
/// digest collision or a copied file, the file or folder is neither used nor removed.
///
/// Names are compared by UTF-8 bytes, so strings with different Unicode normalization are different names.
package struct OwnedName: Sendable {
    /// The kind of a file or folder, and the prefix of the file name.
    package enum Kind: String, Sendable, CaseIterable {
        /// A file of tokens.
        case tokens
        /// A file of a lease.
        case lease
        /// A folder of media.
        case media = "MuxMedia"
        /// A folder of the bodies of stored responses.
        case bodies = "MuxHTTP"
        /// A folder of an outbox.
        case outbox = "MuxOutbox"
    }

    /// The parts of the full name.
    package let fields: [String]
    /// The name in the file system: the kind, a hyphen and 64 hexadecimal digits.
    package let fileName: String

    /// Makes the name of `fields`; tests pass a `digest` with collisions.
    package init(_ kind: Kind, _ fields: [String], digest: ([UInt8]) -> [UInt8] = { SHA256.hash($0) }) {
        self.fields = fields
        var bytes: [UInt8] = []
        for field in [kind.rawValue] + fields {
            // The length precedes each field, so ["ab", "c"] and ["a", "bc"] differ.
            let count = UInt64(field.utf8.count)
            bytes += (0..<8).map { UInt8(truncatingIfNeeded: count >> ($0 * 8)) }
            bytes += field.utf8
        }
        self.fileName = kind.rawValue + "-" + SHA256.text(digest(bytes))
    }

    /// Whether `other` equals the fields, byte for byte.
    package func matches(_ other: [String]) -> Bool {
        self.fields.count == other.count && zip(self.fields, other).allSatisfy { $0.utf8.elementsEqual($1.utf8) }
    }

    /// The name of the file that stores the full name of a folder.
    package static let folderFile = "owner"
}

/// A file that is replaced atomically, with the full name in a line of JSON before the content.
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
    ///   - fileName: The name in the file system; `nil` for the file name of `name`.
    ///   - folder: The path of the folder.
    ///   - fileSystem: The file system.
    package init(_ name: OwnedName, as fileName: String? = nil, in folder: String, fileSystem: CheckedFileSystem) {
        self.name = name
        self.file = DurableFile(fileName ?? name.fileName, in: folder, fileSystem: fileSystem)
        self.fileSystem = fileSystem
    }

    /// The content; empty for a damaged or oversized file, `nil` for a missing file.
    ///
    /// - Throws: ``MuxStoreError/otherName`` if the file belongs to another name;
    ///   ``MuxStoreError/newerFormat`` for a file of a newer version of the library; the error of the file
    ///   system.
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

    /// Replaces the content, unless ``read()`` throws, such as for a file that belongs to another name.
    package func write(_ content: Data, durability: MuxDurability) throws(MuxStoreError) {
        _ = try self.read()  // throws if the file must stay unchanged
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        // Strings and a number are always encodable.
        let header = (try? encoder.encode(Header(name: self.name.fields))) ?? Data()
        try self.file.write(header + [0x0a] + content, durability: durability)
    }

    /// Removes the file and the temporary files of killed writers, unless ``read()`` throws.
    package func remove(durability: MuxDurability) throws(MuxStoreError) {
        _ = try self.read()
        // Leftovers first: if the process is killed in between, the file still shows that the removal is
        // incomplete.
        try self.file.removeLeftovers()
        try self.file.remove(durability: durability)
    }

    /// Removes the temporary files of killed writers, unless ``read()`` throws.
    package func removeLeftovers() throws(MuxStoreError) {
        _ = try self.read()
        try self.file.removeLeftovers()
    }
}

/// The path of a store's folder, or the error of an unusable path.
package struct StoreFolder: Sendable {
    /// The path, without a trailing slash; an error without a usable path.
    package let location: Result<String, MuxStoreError>
    /// The full name that the folder stores; `nil` for a folder without a full name.
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

    /// The path; empty without a usable path: ``CheckedFileSystem`` then refuses calls with a path.
    package var path: String { (try? self.location.get()) ?? "" }

    /// The error of an unusable path; `nil` for a usable path.
    package var refusal: MuxStoreError? {
        if case .failure(let error) = self.location { error } else { nil }
    }

    /// The subfolder `name`.
    package func appending(_ name: String, owner: OwnedName? = nil) -> StoreFolder {
        StoreFolder(self.location.map { FilePath.join($0, name) }, owner: owner)
    }

    /// Makes the folder, and stores the full name of ``owner``, if any, in the folder.
    ///
    /// - Throws: ``MuxStoreError/otherName`` if the folder belongs to another name; any other error of the
    ///   files.
    package func claim(_ fileSystem: CheckedFileSystem) throws(MuxStoreError) {
        try fileSystem.makeFolders(self.path)
        guard let file = self.ownerFile(fileSystem) else { return }
        // The content after the full name is a single line break. A damaged or missing name is written again;
        // the name is missing if a process was killed here.
        if try file.read() != Data([0x0a]) { try file.write(Data([0x0a]), durability: .relaxed) }
    }

    /// Checks that the folder, if present, does not belong to another name; creates no file.
    ///
    /// - Returns: Whether the folder exists.
    /// - Throws: ``MuxStoreError/otherName`` if the folder belongs to another name; any other error of the
    ///   files.
    package func isPresent(_ fileSystem: CheckedFileSystem) throws(MuxStoreError) -> Bool {
        guard try fileSystem.checkFolder(self.path) else { return false }
        _ = try self.ownerFile(fileSystem)?.read()
        return true
    }

    private func ownerFile(_ fileSystem: CheckedFileSystem) -> OwnedFile? {
        self.owner.map { OwnedFile($0, as: OwnedName.folderFile, in: self.path, fileSystem: fileSystem) }
    }

    /// The location of a folder, as an unambiguous string: relative to the home folder for a folder inside
    /// the home folder, otherwise absolute.
    ///
    /// An update of an app may move the home folder.
    package static func place(of path: String, home: String) -> String {
        var home = home.utf8[...]
        while home.last == UInt8(ascii: "/") { home.removeLast() }
        guard !home.isEmpty, path.utf8.starts(with: home) else { return "path:" + path }
        let rest = path.utf8.dropFirst(home.count)
        guard rest.isEmpty || rest.first == UInt8(ascii: "/") else { return "path:" + path }
        return "home:" + String(decoding: rest, as: UTF8.self)
    }
}
