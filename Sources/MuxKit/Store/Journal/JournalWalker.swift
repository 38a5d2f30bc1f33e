/// Scans a journal record by record, by the fixed fields of the headers only.
///
/// Accepts any bytes. After damage, the scan continues line by line up to the next valid header.
package struct JournalWalker {
    package enum Step: Sendable, Equatable {
        /// A record with a valid header and an unchecked payload.
        case record(RecordHeader, offset: Int64, count: Int64)
        /// A region of lines that are not part of a valid record; reported once for each region.
        case damage
        /// A record of a later version; the scan skips the further lines of the record.
        case newer
    }

    /// The kind of the lines at the current position.
    private enum Region: Sendable {
        case sound
        case damaged
        case newer
    }

    /// The start of the next step; after the scan, the end of the bytes that an append must keep.
    package private(set) var position: Int64
    /// Whether the bytes between ``position`` and the end of the file are an incomplete record or line.
    package private(set) var endsTorn = false
    /// Whether a record can be appended without a line break before the record.
    package private(set) var endsWithLineBreak = true

    private let size: Int64
    private let read: (Int64, Int) throws(MuxStoreError) -> [UInt8]
    private var region = Region.sound
    private var window: ArraySlice<UInt8> = []
    private var windowOffset: Int64 = 0

    private static let lineBreak: UInt8 = 0x0a
    private static let windowSize = 1 << 16

    /// Scans from `position`, where a record begins, to `size`.
    ///
    /// `read` returns as many bytes from an offset as requested, and fewer only at the end of the file.
    package init(
        from position: Int64,
        to size: Int64,
        reading read: @escaping (Int64, Int) throws(MuxStoreError) -> [UInt8]
    ) {
        self.position = position
        self.size = size
        self.read = read
    }

    /// The next step; `nil` at the end.
    package mutating func next() throws(MuxStoreError) -> Step? {
        while self.position < self.size, !self.endsTorn {
            guard let end = try self.lineEnd(from: self.position) else {
                self.endWithoutLineBreak()
                return nil
            }
            let line = try self.line(to: end)
            switch ChecksummedLine.open(line) {
            case .present(let rest)?:
                guard let header = RecordHeader(rest) else { break }
                if let step = try self.step(header, headerEnd: end) { return step }
                if self.endsTorn { return nil }
                continue
            case .newer?:
                self.position = end
                self.region = .newer
                return .newer
            case nil: break
            }
            self.position = end
            // An append adds a missing line break, which may form an empty line.
            if !line.isEmpty, self.enterDamage() { return .damage }
        }
        return nil
    }

    /// Handles a valid header; `nil` without ``endsTorn`` means that the scan continues.
    private mutating func step(_ header: RecordHeader, headerEnd: Int64) throws(MuxStoreError) -> Step? {
        let end = headerEnd + header.payloadCount + 1
        guard end <= self.size else {
            self.endsTorn = true
            return nil
        }
        guard try self.bytes(at: end - 1, 1).first == Self.lineBreak else {
            // The line break is damaged or missing, or the payload's length has changed.
            if try self.startsRecord(at: end) {
                self.position = end
                self.endsWithLineBreak = end != self.size
            } else {
                self.position = try self.startsRecord(at: end - 1) ? end - 1 : headerEnd
            }
            return self.enterDamage() ? .damage : nil
        }
        let start = self.position
        self.position = end
        self.region = .sound
        return .record(header, offset: start, count: end - start)
    }

    /// Whether a record begins at `offset`, or the file ends there.
    private mutating func startsRecord(at offset: Int64) throws(MuxStoreError) -> Bool {
        guard offset < self.size else { return true }
        guard let end = try self.lineEnd(from: offset) else { return false }
        let count = Int(end - offset - 1)
        guard count <= RecordCodec.maximumHeader else { return false }
        return ChecksummedLine.open(try self.bytes(at: offset, count)) != nil
    }

    /// Begins a damaged region; `false` if the position was not in a sound region.
    private mutating func enterDamage() -> Bool {
        guard case .sound = self.region else { return false }
        self.region = .damaged
        return true
    }

    /// Handles a last line without a line break: an incomplete line, or part of a record of a later version.
    private mutating func endWithoutLineBreak() {
        switch self.region {
        case .newer:
            self.position = self.size
            self.endsWithLineBreak = false
        case .sound, .damaged: self.endsTorn = true
        }
    }

    /// The line at ``position`` without the line break; a single zero byte instead of a line that is too long
    /// for a header.
    private mutating func line(to end: Int64) throws(MuxStoreError) -> ArraySlice<UInt8> {
        let count = end - 1 - self.position
        guard count <= Int64(RecordCodec.maximumHeader) else { return [0] }
        return try self.bytes(at: self.position, Int(count))
    }

    /// The end of the line at `start`, after the line break; `nil` without a line break.
    private mutating func lineEnd(from start: Int64) throws(MuxStoreError) -> Int64? {
        var offset = start
        while offset < self.size {
            let part = try self.bytes(at: offset, 1, orMore: true)
            guard !part.isEmpty else { return nil }
            if let index = part.firstIndex(of: Self.lineBreak) { return offset + Int64(index - part.startIndex) + 1 }
            offset += Int64(part.count)
        }
        return nil
    }

    /// Up to `count` bytes at `offset`; with `orMore`, all buffered bytes from `offset`.
    private mutating func bytes(
        at offset: Int64,
        _ count: Int,
        orMore: Bool = false
    ) throws(MuxStoreError) -> ArraySlice<UInt8> {
        let windowEnd = self.windowOffset + Int64(self.window.count)
        if offset < self.windowOffset || offset + Int64(count) > windowEnd {
            let wanted = min(Int64(max(count, Self.windowSize)), max(0, self.size - offset))
            self.window = try self.read(offset, Int(wanted))[...]
            self.windowOffset = offset
        }
        let rest = self.window.dropFirst(Int(offset - self.windowOffset))
        return orMore ? rest : rest.prefix(count)
    }
}

@available(*, unavailable)
extension JournalWalker: Sendable {}
