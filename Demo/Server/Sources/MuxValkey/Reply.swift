package import NIOCore

/// A reply to a command, or an unsolicited message of an engine.
package enum Reply: Sendable, Equatable {
    case nothing
    case bytes(ByteBuffer)
    case number(Int64)
    /// Arrays and sets, and maps as keys and values in turn.
    case list([Reply])
    case failure(ServerFailure)
    /// Not a reply: the kind and the contents of a message.
    case message([Reply])

    /// The text of simple, bulk and verbatim strings.
    package var text: String? {
        if case .bytes(let bytes) = self { return String(buffer: bytes) }
        return nil
    }

    /// The number, or the number in a string.
    package var integer: Int64? {
        if case .number(let number) = self { return number }
        return self.text.flatMap { Int64($0) }
    }
}

/// Reads RESP, version 3, of an untrusted server.
///
/// The numbers of bytes, elements and levels of a reply are limited. A larger reply is an error, like any
/// bytes that are not RESP.
struct ReplyDecoder: NIOSingleStepByteToMessageDecoder {
    typealias InboundOut = Reply

    /// The maximum number of bytes of a reply.
    let maximumBytes: Int

    /// The replies to the commands of this library have less than thirty elements.
    private static var maximumElements: Int { 10_000 }
    private static var maximumLevels: Int { 8 }
    /// The maximum number of bytes of all lines of a reply: errors, numbers and simple strings.
    ///
    /// The decoder reads these lines again after each received piece.
    static var maximumLines: Int { 256 * 1_024 }

    /// The size of the decoded part of a reply.
    private struct Size {
        var elements = 0
        var lines = 0
    }

    /// Reads a complete reply; takes no bytes of an incomplete reply from the buffer.
    func decode(buffer: inout ByteBuffer) throws -> Reply? {
        var rest = buffer
        var size = Size()
        guard let reply = try self.reply(&rest, level: 0, &size) else {
            guard buffer.readableBytes <= self.maximumBytes else {
                throw ValkeyError.tooLarge(limit: self.maximumBytes)
            }
            return nil
        }
        buffer = rest
        return reply
    }

    func decodeLast(buffer: inout ByteBuffer, seenEOF: Bool) throws -> Reply? { try self.decode(buffer: &buffer) }

    /// `nil` for an incomplete reply.
    private func reply(_ buffer: inout ByteBuffer, level: Int, _ size: inout Size) throws -> Reply? {
        size.elements += 1
        guard size.elements <= Self.maximumElements, level <= Self.maximumLevels else {
            throw ValkeyError.notAReply("it has too many elements")
        }
        guard let kind: UInt8 = buffer.readInteger() else { return nil }
        guard let line = try Self.line(&buffer) else { return nil }
        size.lines += line.readableBytes
        guard size.lines <= Self.maximumLines else { throw ValkeyError.notAReply("it has too long lines") }
        switch kind {
        case UInt8(ascii: "+"), UInt8(ascii: ","), UInt8(ascii: "("): return .bytes(line)
        case UInt8(ascii: "-"): return .failure(ServerFailure(String(buffer: line)))
        case UInt8(ascii: ":"): return .number(try Self.number(line))
        case UInt8(ascii: "#"): return .number(line == ByteBuffer(string: "t") ? 1 : 0)
        case UInt8(ascii: "_"): return .nothing
        case UInt8(ascii: "$"): return try self.bytes(&buffer, try Self.number(line))
        case UInt8(ascii: "!"):
            guard let text = try self.bytes(&buffer, try Self.number(line)) else { return nil }
            return .failure(ServerFailure(text.text ?? ""))
        case UInt8(ascii: "="):
            guard case .bytes(var text)? = try self.bytes(&buffer, try Self.number(line)) else { return nil }
            guard text.readBytes(length: 4) != nil else { throw ValkeyError.notAReply("a text has no format") }
            return .bytes(text)
        case UInt8(ascii: "*"), UInt8(ascii: "~"):
            let count = try Self.number(line)
            guard count >= 0 else { return .nothing }
            return try self.replies(&buffer, count, level, &size).map { .list($0) }
        case UInt8(ascii: "%"):
            return try self.replies(&buffer, try Self.pairs(line), level, &size).map { .list($0) }
        case UInt8(ascii: ">"):
            guard level == 0 else { throw ValkeyError.notAReply("a message stands within a reply") }
            return try self.replies(&buffer, try Self.number(line), level, &size).map { .message($0) }
        // Attributes of the following reply.
        case UInt8(ascii: "|"):
            guard try self.replies(&buffer, try Self.pairs(line), level, &size) != nil else { return nil }
            return try self.reply(&buffer, level: level + 1, &size)
        default: throw ValkeyError.notAReply("no kind of reply begins with the byte \(kind)")
        }
    }

    private func replies(
        _ buffer: inout ByteBuffer,
        _ count: Int64,
        _ level: Int,
        _ size: inout Size
    ) throws -> [Reply]? {
        guard count >= 0, count <= Self.maximumElements else { throw ValkeyError.notAReply("it has \(count) elements") }
        var replies: [Reply] = []
        for _ in 0..<count {
            guard let reply = try self.reply(&buffer, level: level + 1, &size) else { return nil }
            replies.append(reply)
        }
        return replies
    }

    private func bytes(_ buffer: inout ByteBuffer, _ count: Int64) throws -> Reply? {
        guard count >= 0 else { return .nothing }
        guard count <= self.maximumBytes else { throw ValkeyError.tooLarge(limit: self.maximumBytes) }
        guard buffer.readableBytes >= Int(count) + 2 else { return nil }
        guard let bytes = buffer.readSlice(length: Int(count)), buffer.readBytes(length: 2) == [13, 10] else {
            throw ValkeyError.notAReply("a string is longer than it says")
        }
        return .bytes(bytes)
    }

    private static func line(_ buffer: inout ByteBuffer) throws -> ByteBuffer? {
        let view = buffer.readableBytesView
        guard let end = view.firstIndex(of: 13), end + 1 < view.endIndex else {
            guard view.count <= self.maximumLines else { throw ValkeyError.notAReply("a line has no end") }
            return nil
        }
        guard view[end + 1] == 10 else { throw ValkeyError.notAReply("a line has no end") }
        let line = buffer.readSlice(length: end - view.startIndex)
        buffer.moveReaderIndex(forwardBy: 2)
        return line
    }

    /// The number of elements of a map with the given number of pairs.
    private static func pairs(_ line: ByteBuffer) throws -> Int64 {
        let (count, overflow) = try self.number(line).multipliedReportingOverflow(by: 2)
        guard !overflow else { throw ValkeyError.notAReply("a map has too many elements") }
        return count
    }

    private static func number(_ line: ByteBuffer) throws -> Int64 {
        guard let number = Int64(String(buffer: line)) else { throw ValkeyError.notAReply("a number is none") }
        return number
    }
}
