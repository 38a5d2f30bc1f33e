/// Where a record is, with all that reading it needs: so that it can be read beside other work.
struct JournalPlace: Sendable {
    /// Stays open, whatever becomes of its name.
    let file: OpenFile
    let digest: EntryDigest
    let location: JournalIndex.Location
    let format: RecordCodec
    let fileSystem: any FileSystem

    /// Reads the entry there; `nil` if it is damaged.
    func read() throws(MuxStoreError) -> MuxStoredEntry? {
        let count = Int(self.location.count)
        return self.format.entry(in: try self.fileSystem.readAll(self.file, at: self.location.offset, count: count))
    }
}
