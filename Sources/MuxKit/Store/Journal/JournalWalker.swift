/// Goes through a journal record by record, by the fixed fields of the first lines alone.
///
/// Total on any bytes. After damage it goes on line by line to the next first line that is in order.
package struct JournalWalker: Sendable {
    package enum Step: Sendable, Equatable {
        /// A record whose first line is in order; its value was not looked at.
        case record(RecordHeader, offset: Int64, count: Int64)
        /// Some lines that are no records.
        case damage
        /// A record of a later version, and what belongs to it.
        case newer
    }

    /// What the walk is in the middle of.
    private enum Region: Sendable {
        case sound
        case damaged
        case newer
    }

    /// Where the next step begins; at the end of the walk, where the last whole line ended.
    package private(set) var position: Int64
    /// Whether what is between ``position`` and the end of the file is the beginning of a record.
    package private(set) var endsTorn = false
    /// Whether a record can be appended at the end as it is, without a line break first.
    package private(set) var endsWithLineBreak = true

    private let size: Int64
    private var region = Region.sound
    private var window: ArraySlice<UInt8> = []
    private var windowOffset: Int64 = 0

    private static let lineBreak: UInt8 = 0x0a
    private static let windowSize = 1 << 16

    /// Walks from `position`, where a record begins, to `size`.
    package init(from position: Int64, to size: Int64) {
        self.position = position
        self.size = size
    }

    /// The next step, or `nil` at the end; `read` gives as many bytes as asked for unless the file ends before.
    package mutating func next(
        reading read: (Int64, Int) throws(MuxStoreError) -> [UInt8]
    ) throws(MuxStoreError) -> Step? {
        while self.position < self.size, !self.endsTorn {
            guard let end = try self.lineEnd(from: self.position, read) else {
                self.endWithoutLineBreak()
                return nil
            }
            let line = try self.line(to: end, read)
            switch ChecksummedLine.open(line) {
            case .present(let rest)?:
                guard let frame = RecordHeader(rest) else { break }
                if let step = try self.step(frame, headerEnd: end, read) { return step }
                if self.endsTorn { return nil }
                continue
            case .newer?:
                self.position = end
                self.region = .newer
                return .newer
            case nil: break
            }
            self.position = end
            // An empty line is what an append puts before its records where a line break is missing.
            if !line.isEmpty, self.enterDamage() { return .damage }
        }
        return nil
    }

    /// Handles a first line that is in order; `nil` with no tear means that the walk goes on.
    private mutating func step(
        _ frame: RecordHeader,
        headerEnd: Int64,
        _ read: (Int64, Int) throws(MuxStoreError) -> [UInt8]
    ) throws(MuxStoreError) -> Step? {
        let end = headerEnd + frame.payloadCount + 1
        guard end <= self.size else {
            self.endsTorn = true
            return nil
        }
        guard try self.bytes(at: end - 1, 1, read).first == Self.lineBreak else {
            // The line break is damaged, or missing, or the value is longer or shorter than it was.
            if try self.startsRecord(at: end, read) {
                self.position = end
                self.endsWithLineBreak = end != self.size
            } else {
                self.position = try self.startsRecord(at: end - 1, read) ? end - 1 : headerEnd
            }
            return self.enterDamage() ? .damage : nil
        }
        let start = self.position
        self.position = end
        self.region = .sound
        return .record(frame, offset: start, count: end - start)
    }

    /// Whether a record begins at `offset`, or the file ends there.
    private mutating func startsRecord(
        at offset: Int64,
        _ read: (Int64, Int) throws(MuxStoreError) -> [UInt8]
    ) throws(MuxStoreError) -> Bool {
        guard offset < self.size else { return true }
        guard let end = try self.lineEnd(from: offset, read) else { return false }
        let count = Int(end - offset - 1)
        guard count <= RecordCodec.maximumHeader else { return false }
        return ChecksummedLine.open(try self.bytes(at: offset, count, read)) != nil
    }

    /// Whether this is the first line of a damaged region.
    private mutating func enterDamage() -> Bool {
        guard case .sound = self.region else { return false }
        self.region = .damaged
        return true
    }

    /// A line without an end is torn, unless it belongs to a record that this version does not understand.
    private mutating func endWithoutLineBreak() {
        switch self.region {
        case .newer:
            self.position = self.size
            self.endsWithLineBreak = false
        case .sound, .damaged: self.endsTorn = true
        }
    }

    /// The line at ``position`` without its line break; a lone zero for one that is too long to be a first line.
    private mutating func line(
        to end: Int64,
        _ read: (Int64, Int) throws(MuxStoreError) -> [UInt8]
    ) throws(MuxStoreError) -> ArraySlice<UInt8> {
        let count = end - 1 - self.position
        guard count <= Int64(RecordCodec.maximumHeader) else { return [0] }
        return try self.bytes(at: self.position, Int(count), read)
    }

    /// Where the line that `start` is in ends, behind its line break; `nil` if it has none.
    private mutating func lineEnd(
        from start: Int64,
        _ read: (Int64, Int) throws(MuxStoreError) -> [UInt8]
    ) throws(MuxStoreError) -> Int64? {
        var offset = start
        while offset < self.size {
            let part = try self.bytes(at: offset, 1, read, orMore: true)
            guard !part.isEmpty else { return nil }
            if let index = part.firstIndex(of: Self.lineBreak) { return offset + Int64(index - part.startIndex) + 1 }
            offset += Int64(part.count)
        }
        return nil
    }

    /// Up to `count` bytes at `offset`, or all that are at hand from there.
    private mutating func bytes(
        at offset: Int64,
        _ count: Int,
        _ read: (Int64, Int) throws(MuxStoreError) -> [UInt8],
        orMore: Bool = false
    ) throws(MuxStoreError) -> ArraySlice<UInt8> {
        let windowEnd = self.windowOffset + Int64(self.window.count)
        if offset < self.windowOffset || offset + Int64(count) > windowEnd {
            let wanted = min(Int64(max(count, Self.windowSize)), max(0, self.size - offset))
            self.window = try read(offset, Int(wanted))[...]
            self.windowOffset = offset
        }
        let rest = self.window.dropFirst(Int(offset - self.windowOffset))
        return orMore ? rest : rest.prefix(count)
    }
}
