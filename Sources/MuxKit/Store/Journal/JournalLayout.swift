package import Foundation

/// The file names in a journal's folder; no name is derived from a key.
package struct JournalLayout: Sendable {
    /// The folder itself.
    package let root: String

    package init(root: String) { self.root = root }

    /// The lock file, which excludes other processes; the library does not remove or replace the file.
    package var lock: String { FilePath.join(self.root, "lock") }
    /// The name of the ``SessionFile``.
    package static let sessionName = "epoch.json"
    /// The folder of the records.
    package var journal: String { FilePath.join(self.root, Self.journalName) }
    /// The file of the records.
    package var segment: String { FilePath.join(self.journal, Self.segmentName) }

    /// The name of the ``IndexSnapshot`` file, beside the records.
    package static let indexName = "00000001.index"

    private static let journalName = "journal"
    private static let segmentName = "00000001.jsonl"
    private static let trashPrefix = "trash-"
    private static let temporarySuffix = ".tmp"

    /// A path for a new segment until the segment is complete.
    package func temporarySegment(_ unique: UInt64) -> String {
        self.segment + "." + Hex.text(of: unique) + Self.temporarySuffix
    }

    /// A path to which the folder of the records is renamed before the deletion.
    package func trash(_ unique: UInt64) -> String {
        FilePath.join(self.root, Self.trashPrefix + Hex.text(of: unique))
    }

    package static func isTrash(_ name: String) -> Bool { name.hasPrefix(self.trashPrefix) }

    package static func isLeftoverSegment(_ name: String) -> Bool {
        name.hasPrefix(self.segmentName + ".") && name.hasSuffix(self.temporarySuffix)
    }
}

/// The location of a record, with all data for a read that runs concurrently with other calls.
struct JournalPlace: Sendable {
    /// Stays open after the file is renamed or removed.
    let file: OpenFile
    let location: JournalIndex.Location
    let format: RecordCodec
    let fileSystem: any FileSystem

    /// The record's bytes; `nil` if the system cannot read all bytes from memory.
    func recordInMemory() -> [UInt8]? {
        let count = Int(self.location.byteCount)
        let bytes = self.fileSystem.readPromptly(self.file, at: self.location.offset, count: count)
        return bytes.flatMap { $0.count == count ? $0 : nil }
    }

    /// Reads the entry; `nil` if the record is not valid.
    func read() throws(MuxStoreError) -> MuxStoredEntry? {
        let count = Int(self.location.byteCount)
        return self.format.entry(in: try self.fileSystem.readAll(self.file, at: self.location.offset, count: count))
    }
}

/// The content of the session file: session number and store identity.
///
/// `{"mux":1,"check":"…","epoch":3,"store":"0123456789abcdef"}`
package struct SessionFile: Sendable, Equatable {
    /// The result of reading a session file.
    package enum Content: Sendable, Equatable {
        case present(SessionFile)
        /// A file of a later version of the library.
        case newer
        case damaged
    }

    package var epoch: UInt64
    /// The random identity of the store, which every record repeats: records of another store are detected.
    package var store: UInt64

    package init(epoch: UInt64, store: UInt64) {
        self.epoch = epoch
        self.store = store
    }

    package var encoded: Data {
        let rest = "\",\"epoch\":\(self.epoch),\"store\":\"\(Hex.text(of: self.store))\"}"
        return Data(ChecksummedLine.sealed(Array(rest.utf8)) + [0x0a])
    }

    package static func decode(_ content: Data) -> Content {
        guard content.last == 0x0a, let line = ChecksummedLine.open([UInt8](content.dropLast())[...]) else {
            return .damaged
        }
        guard line != .newer else { return .newer }
        struct Fields: Decodable {
            var epoch: UInt64
            var store: String
        }
        guard let fields = try? JSONDecoder().decode(Fields.self, from: content),
            let store = Hex.value(of: fields.store.utf8)
        else { return .damaged }
        return .present(SessionFile(epoch: fields.epoch, store: store))
    }
}
