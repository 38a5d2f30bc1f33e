import Foundation
import MuxKit

/// Reading the records, also the records of other processes.
extension OutboxLog {
    /// Reads the records since the last read; after a replacement or truncation of the file, all records.
    func refresh() throws(MuxStoreError) {
        guard let status = try self.fileSystem.status(at: self.path) else {
            // If another program removed the file, the changes in memory are written again.
            self.close()
            try self.folder.claim(self.fileSystem)
            if !self.contents.isEmpty { try self.rewrite() }
            return
        }
        if let file = self.file, status.identity == self.identity, status.size >= self.end {
            if status.size > self.end { try self.read(file, to: status.size) }
            return
        }
        self.close()
        do throws(MuxStoreError) {
            let file = try self.fileSystem.openFile(self.path, for: .append)
            let opened = try self.fileSystem.status(of: file)
            (self.file, self.identity) = (file, opened.identity)
            try self.temporaryFile.removeLeftovers()
            try self.readAgain(file, to: opened.size)
        } catch {
            // The next call reads the file from the beginning.
            self.close()
            throw error
        }
    }

    func close() {
        (self.file, self.identity, self.end) = (nil, nil, 0)
        (self.needsLineBreak, self.holdsNewer, self.isNameSafe) = (false, false, false)
        self.oldestSession = nil
    }

    /// Reads a replaced, truncated or newly opened file completely: changes without a record have ended.
    private func readAgain(_ file: OpenFile, to size: Int64) throws(MuxStoreError) {
        // The bytes of unreadable records are read again.
        for (id, content) in self.contents where !content.raw.isEmpty { self.setRaw([], of: id) }
        let found = try self.read(file, to: size)
        for id in self.contents.keys where !found.contains(id) {
            self.unsaved.remove(id)
            self.remove(id)
        }
    }

    /// Reads the records from ``end`` to `size`.
    ///
    /// - Returns: The changes with a record.
    @discardableResult
    private func read(_ file: OpenFile, to size: Int64) throws(MuxStoreError) -> Set<ID> {
        var found: Set<ID> = []
        let (fileSystem, start) = (self.fileSystem, self.end)
        // A single read for all records, unless the file is far larger than usual limits.
        let isWhole = size - start <= Self.singleReadLimit
        let whole = isWhole ? try fileSystem.readAll(file, at: start, count: Int(size - start)) : []
        let read = { (offset: Int64, count: Int) throws(MuxStoreError) -> [UInt8] in
            guard isWhole else { return try fileSystem.readAll(file, at: offset, count: count) }
            return Array(whole.dropFirst(Int(offset - start)).prefix(count))
        }
        var walker = JournalWalker(from: start, to: size, reading: read)
        // The end of the last valid record: damaged bytes are between this position and the next record.
        var valid = self.end
        var isDamaged = false
        func addDamage(upTo end: Int64) throws(MuxStoreError) {
            guard isDamaged, end > valid else { return }
            isDamaged = false
            found.insert(self.addDamage(try read(valid, Int(end - valid))))
        }
        while let step = try walker.next() {
            switch step {
            case .newer: self.holdsNewer = true
            case .damage: isDamaged = true
            case .record(_, let offset, let count):
                try addDamage(upTo: offset)
                valid = offset + count
                if let id = self.apply(try read(offset, Int(count))) { found.insert(id) }
            }
        }
        try addDamage(upTo: walker.position)
        if walker.endsTorn {
            try self.fileSystem.truncate(file, to: walker.position)
        }
        self.end = walker.position
        self.needsLineBreak = !walker.endsWithLineBreak
        return found
    }

    /// Lists a damaged part of the file as a change without a lane; equal bytes have the same identity.
    private func addDamage(_ raw: [UInt8]) -> ID {
        var hash = FNV()
        hash.combine(raw)
        let id = "damaged-" + Hex.text(of: hash.value)
        guard self.contents[id] == nil else {
            self.setRaw(raw, of: id)
            return id
        }
        self.add(
            OutboxStateMachine.Item(
                id: id,
                lane: nil,
                session: self.machine.session,
                progress: Progress(key: id, since: self.wallTime().timeIntervalSince1970),
                isReadable: false
            ),
            Content(payload: nil, addedAt: self.wallTime(), raw: raw)
        )
        return id
    }

    /// Applies a record.
    ///
    /// - Returns: The identity of the change or of the damage, also of an ended change; `nil` for a `session`
    ///   record, or for a record of an earlier session.
    private func apply(_ record: [UInt8]) -> ID? {
        let entry = self.codec.entry(in: record)
        guard let facts = entry ?? self.codec.entryWithoutPayload(in: record) else { return self.addDamage(record) }
        // A record of a later session proves the beginning of the later session. The order of the next two
        // lines matters: ``drop(before:isSignOut:)`` spares the damage before the first record.
        self.drop(before: facts.sessionEpoch)
        self.oldestSession = min(self.oldestSession ?? .max, facts.sessionEpoch)
        guard let id = facts.name.key else {
            return facts.name.domain == Kind.session.rawValue ? nil : self.addDamage(record)
        }
        guard facts.sessionEpoch >= self.machine.session else { return nil }
        let kind = facts.schemaVersion == Self.version && entry != nil ? Kind(rawValue: facts.name.domain) : nil
        switch kind {
        case .add: self.applyAddition(facts, id, raw: [])
        case .state:
            guard let progress = try? JSONDecoder().decode(Progress.self, from: facts.payload) else {
                self.keep(record, of: facts, id)
                break
            }
            // An unsaved state in memory is newer than the record.
            if self.machine[id]?.progress != progress, !self.unsaved.contains(id) {
                self.machine.setProgress(id, to: progress)
                self.renewExpiry(id)
                self.events.append(.progressed(id))
            }
        case .end: self.remove(id)
        case .session, nil: self.keep(record, of: facts, id)
        }
        return id
    }

    func applyAddition(_ facts: MuxStoredEntry, _ id: ID, raw: [UInt8]) {
        let since = facts.fetchedAt.timeIntervalSince1970
        self.add(
            OutboxStateMachine.Item(
                id: id,
                lane: facts.validator,
                session: facts.sessionEpoch,
                progress: Progress(key: id, since: since),
                expiry: self.expiry(since: since),
                isReadable: raw.isEmpty
            ),
            Content(payload: raw.isEmpty ? facts.payload : nil, addedAt: facts.fetchedAt, raw: raw)
        )
    }

    /// Keeps a record that this version cannot read, and prevents the sending of the change.
    private func keep(_ record: [UInt8], of facts: MuxStoredEntry, _ id: ID) {
        guard self.contents[id] != nil else { return self.applyAddition(facts, id, raw: record) }
        self.setRaw((self.contents[id]?.raw ?? []) + record, of: id)
        guard self.machine[id]?.isReadable ?? false else { return }
        self.machine.markUnreadable(id)
        self.events.append(.progressed(id))
    }

    private func setRaw(_ raw: [UInt8], of id: ID) {
        self.size += raw.count - (self.contents[id]?.raw.count ?? 0)
        self.contents[id]?.raw = raw
    }

    /// The monotonic time in nanoseconds from which a change is not sent.
    ///
    /// A later step of the wall clock has no effect on the returned time.
    package func expiry(since: Double) -> Int64 {
        let age = Duration.saturating(seconds: self.wallTime().timeIntervalSince1970 - since)
        let rest = max(.zero, self.policy.maximumAge - max(.zero, age))
        return self.time.now.advanced(by: rest).nanoseconds
    }

    private func renewExpiry(_ id: ID) {
        guard let since = self.machine[id]?.progress.since else { return }
        self.machine.setExpiry(self.expiry(since: since), of: id)
    }
}
