/// The names in a journal's folder; none of them is made from a key.
package struct JournalLayout: Sendable {
    /// The folder itself.
    package let root: String

    package init(root: String) { self.root = root }

    /// Whose lock keeps processes apart; never removed or replaced.
    package var lock: String { FilePath.join(self.root, "lock") }
    /// The name of the file of ``SessionFile``.
    package static let sessionName = "epoch.json"
    /// The folder of the records.
    package var journal: String { FilePath.join(self.root, Self.journalName) }
    /// The records.
    package var segment: String { FilePath.join(self.journal, Self.segmentName) }

    /// The name of the file of ``IndexSnapshot``, beside the records.
    package static let indexName = "00000001.index"

    private static let journalName = "journal"
    private static let segmentName = "00000001.jsonl"
    private static let trashPrefix = "trash-"
    private static let temporarySuffix = ".tmp"

    /// A place for the next form of the segment while it is written.
    package func temporarySegment(_ unique: UInt64) -> String {
        self.segment + "." + Hex.text(of: unique) + Self.temporarySuffix
    }

    /// A place for a journal that is to be removed.
    package func trash(_ unique: UInt64) -> String {
        FilePath.join(self.root, Self.trashPrefix + Hex.text(of: unique))
    }

    package static func isTrash(_ name: String) -> Bool { name.hasPrefix(self.trashPrefix) }

    package static func isLeftoverSegment(_ name: String) -> Bool {
        name.hasPrefix(self.segmentName + ".") && name.hasSuffix(self.temporarySuffix)
    }
}
