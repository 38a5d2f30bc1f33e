/// What tests look at when they are done with a store.
extension Journal {
    /// What is wrong; empty if nothing is.
    func brokenInvariants() throws(MuxStoreError) -> [String] {
        try self.lock()
        defer { self.unlock() }
        let (session, segment) = try self.refresh()
        var broken: [String] = []

        // A walk over the whole file knows the same entries.
        let rescan = JournalSegment(file: segment.file, identity: segment.identity)
        try self.readOn(rescan, to: segment.end, session)
        let known = Self.places(segment.index, session)
        if known != Self.places(rescan.index, session) { broken.append("the index is not what a rescan gives") }
        if known.count != segment.index.count || segment.index.liveBytes != known.values.reduce(0, { $0 + $1.count }) {
            broken.append("the index miscounts")
        }
        if let byteLimit, !segment.holdsNewer, segment.footprint > byteLimit {
            broken.append("the folder is too large")
        }
        for name in try self.fileSystem.names(in: self.layout.root) + self.fileSystem.names(in: self.layout.journal)
        where name.hasSuffix(".tmp") || JournalLayout.isTrash(name) {
            broken.append("\(name) was left")
        }
        return broken
    }

    private static func places(_ index: JournalIndex, _ session: Session) -> [EntryDigest: JournalIndex.Location] {
        var places: [EntryDigest: JournalIndex.Location] = [:]
        for (digest, location) in index.locations where location.epoch >= session.content.epoch {
            places[digest] = .init(offset: location.offset, count: location.count, epoch: location.epoch)
        }
        return places
    }
}
