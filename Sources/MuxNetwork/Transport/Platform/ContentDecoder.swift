#if os(Linux)
import CMuxDecoder
import Foundation
import MuxKit

/// A content coding that an installed library may decode (RFC 9110, section 8.4.1; RFC 7932; RFC 8878).
enum DecodableCoding: String, Sendable, CaseIterable {
    case gzip
    case deflate
    case brotli = "br"
    case zstandard = "zstd"

    /// Makes a coding from a name of `Content-Encoding`; `nil` for an unknown name, or without the library.
    init?(named name: String) {
        let name = name.lowercased()
        self.init(rawValue: name == "x-gzip" ? "gzip" : name)
        guard mux_decoder_exists(self.rawValue) != 0 else { return nil }
    }

    /// The value of `Accept-Encoding`; empty without decoder libraries.
    static let accepted = Self.allCases.filter { mux_decoder_exists($0.rawValue) != 0 }.map(\.rawValue).joined(
        separator: ", "
    )

    /// The codings that a request accepts (RFC 9110, section 12.5.3); a name and its alias are the same
    /// coding.
    ///
    /// - Parameter headers: The fields of the request; without `Accept-Encoding`, the transport accepts all
    ///   its codings.
    /// - Returns: The codings, possibly with codings that no library can decode.
    static func requested(by headers: HTTPHeaders) -> Set<DecodableCoding> {
        guard let field = headers[.acceptEncoding] else { return Set(Self.allCases) }
        var (named, refused, others) = (Set<DecodableCoding>(), Set<DecodableCoding>(), false)
        for element in field.split(separator: ",") {
            guard let parsed = HTTPParameters(String(element)) else { continue }
            let isRefused = parsed.parameters["q"].flatMap { Double($0) } == 0
            if parsed.head == "*" { others = !isRefused }
            guard let coding = DecodableCoding(named: parsed.head) else { continue }
            if isRefused { refused.insert(coding) } else { named.insert(coding) }
        }
        return others ? Set(Self.allCases).subtracting(refused.subtracting(named)) : named
    }
}

/// Decodes one content coding with the system's library.
///
/// libcurl can decode as well, but treats truncated content as complete.
private final class ContentDecoder {
    let coding: DecodableCoding
    /// Encoded bytes that are not decoded yet.
    var input = Data()
    /// Whether the content is complete.
    ///
    /// Another gzip member or Zstandard frame may follow; see ``beginAnotherMember()`` for other input.
    private(set) var isComplete = false
    /// Whether the output was full, so further output may exist without further input.
    private var isFull = false
    private var decoder: OpaquePointer

    private static let largestPiece = 64 << 10

    init?(_ coding: DecodableCoding) {
        guard let decoder = mux_decoder_make(coding.rawValue) else { return nil }
        self.coding = coding
        self.decoder = decoder
    }

    deinit { mux_decoder_free(self.decoder) }

    /// Decodes some of the input.
    ///
    /// - Returns: The next decoded bytes, at most 64 KB; `nil` if no further bytes result from the input.
    /// - Throws: ``HTTPError/TransportFailure/damagedContent(coding:)``.
    func next() throws(HTTPError) -> Data? {
        while !self.input.isEmpty || self.isFull {
            if self.isComplete { try self.beginAnotherMember() }
            var output = Data(count: min(Self.largestPiece, max(1024, 4 * self.input.count)))
            let size = output.count
            var written = 0
            var consumed = 0
            let result = self.input.withUnsafeBytes { source in
                output.withUnsafeMutableBytes { target -> CInt in
                    guard let to = target.baseAddress?.assumingMemoryBound(to: UInt8.self) else { return 0 }
                    var from = source.baseAddress?.assumingMemoryBound(to: UInt8.self)
                    var count = source.count
                    defer { consumed = source.count - count }
                    return mux_decoder_run(self.decoder, &from, &count, to, size, &written)
                }
            }
            // An empty slice would keep the memory of all input.
            self.input = consumed == self.input.count ? Data() : self.input.dropFirst(consumed)
            self.isComplete = result == 1
            self.isFull = written == size && !self.isComplete
            guard result >= 0, self.isComplete || consumed > 0 || written > 0 else {
                // A decoder that makes no progress although input remains cannot decode the input.
                guard result >= 0, self.input.isEmpty else {
                    throw .transport(.damagedContent(coding: self.coding.rawValue))
                }
                return nil
            }
            if written > 0 { return output.prefix(written) }
        }
        return nil
    }

    /// Prepares the decoder for another member of gzip content (RFC 1952, section 2.2) or another frame of
    /// Zstandard content (RFC 8878, section 3).
    ///
    /// Other input after the end of gzip, deflate or Brotli content is dropped. Other input after a Zstandard
    /// frame reaches the decoder, and is an error.
    private func beginAnotherMember() throws(HTTPError) {
        switch self.coding {
        case .zstandard: return
        case .gzip where self.input.first == 0x1f:
            guard let next = mux_decoder_make(self.coding.rawValue) else {
                throw .transport(.damagedContent(coding: self.coding.rawValue))
            }
            mux_decoder_free(self.decoder)
            self.decoder = next
        default: self.input = Data()
        }
    }
}

/// Decodes the content codings of a response, on the caller's task.
///
/// The sink decodes a response only if the sink can decode all codings, the request accepts all codings, and
/// there are at most two codings. Partial content (206) is not decoded. Other content is passed on as sent.
final class DecodingSink: HTTPSink {
    private struct State {
        /// The decoders in the order of decoding.
        var decoders: [ContentDecoder] = []
        /// Whether any encoded bytes have arrived.
        var hasContent = false
        /// The number of decoded bytes.
        var decoded = 0
    }

    /// The maximum number of codings; each decoder needs memory.
    private static let maximumCodings = 2

    private let base: any HTTPSink
    private let method: HTTPMethod
    private let requested: Set<DecodableCoding>
    private let check: @Sendable () throws -> Void
    private let state = Locked(State())

    /// Makes a sink.
    ///
    /// - Parameters:
    ///   - base: Receives the decoded content.
    ///   - call: The request.
    ///   - check: Throws if the exchange was aborted; called between pieces, because small content can decode
    ///     to very large content.
    init(_ base: any HTTPSink, _ call: ValidatedCall, check: @escaping @Sendable () throws -> Void) {
        self.base = base
        self.method = call.method
        self.requested = DecodableCoding.requested(by: call.call.headers)
        self.check = check
    }

    func receive(head: HTTPReply) async throws {
        let names = head.headers.values(of: .contentEncoding).flatMap { $0.split(separator: ",") }
            .map { HTTPGrammar.trimmed($0) }.filter { !$0.isEmpty && $0.lowercased() != "identity" }
        let codings = names.compactMap { DecodableCoding(named: $0) }.filter { self.requested.contains($0) }
        var head = head
        head.isBodyAsSent.value = true
        if codings.count == names.count, codings.count <= Self.maximumCodings, head.status != 206, self.method != .head
        {
            head.isBodyAsSent.value = self.state.withLock { state in
                let decoders = codings.reversed().compactMap { ContentDecoder($0) }
                if decoders.count == codings.count { state.decoders = decoders }
                return state.decoders.isEmpty
            }
        }
        try await self.base.receive(head: head)
    }

    func receive(_ bytes: Data) async throws {
        let isPlain = self.state.withLock { state -> Bool in
            state.hasContent = true
            state.decoders.first?.input.append(bytes)
            return state.decoders.isEmpty
        }
        guard !isPlain else { return try await self.base.receive(bytes) }
        while let piece = try self.next() {
            try await self.base.receive(piece)
            try self.check()
        }
    }

    /// Throws ``HTTPError/TransportFailure/truncated(expected:received:)`` if the encoded content is
    /// incomplete; called after the last piece.
    func finish() throws(HTTPError) {
        let (isComplete, decoded) = self.state.withLock { state in
            (!state.hasContent || state.decoders.allSatisfy(\.isComplete), state.decoded)
        }
        guard isComplete else { throw .truncated(expected: nil, received: decoded) }
    }

    private func next() throws -> Data? {
        try self.state.withLock { state in
            let piece = try self.next(state.decoders[...])
            state.decoded += piece?.count ?? 0
            return piece
        }
    }

    /// The next bytes of the last decoder in a chain; `nil` if the first decoder needs more input.
    private func next(_ decoders: ArraySlice<ContentDecoder>) throws -> Data? {
        guard let last = decoders.last else { return nil }
        while true {
            try self.check()
            if let piece = try last.next() { return piece }
            guard let input = try self.next(decoders.dropLast()) else { return nil }
            last.input = input
        }
    }
}
#endif
