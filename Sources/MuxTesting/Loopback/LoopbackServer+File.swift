public import Foundation
import MuxKit

extension LoopbackServer {
    /// A large file, served whole or in ranges, with or without faults.
    ///
    /// ```swift
    /// let file = LoopbackServer.File(size: 1_000_000)
    /// let server = LoopbackServer { request in file.response(to: request) }
    /// ```
    ///
    /// A response generates the bytes while sending; the file may be larger than memory. The file supports
    /// `Range: bytes=a-`, `bytes=a-b` and `bytes=-n`, and `If-Range` with an entity tag (RFC 9110, sections
    /// 13.1.5 and 14). With another form of `Range`, such as several ranges, the response contains the whole
    /// file.
    public final class File: Sendable {
        /// A fault of one response; without effect on a response with status 416.
        public enum Fault: Sendable {
            /// The connection is closed after this number of bytes of the body, or after the body.
            case cut(after: Int64)
            /// The server sends this number of bytes of the body, waits for the function, then sends the
            /// rest.
            case hold(after: Int64, @Sendable @concurrent () async -> Void)
            /// The server ignores `Range` and sends the whole file.
            case ignoreRange
            /// `Content-Length` is too large by this number of bytes; the connection is closed after the
            /// body.
            case claim(more: Int64)
            /// The start in `Content-Range` is too large by this number of bytes; without effect on a
            /// response with status 200.
            case shift(by: Int64)
            /// The response has no `Content-Length`, and the body has this number of extra zeros; the
            /// connection is closed after the body.
            case excess(Int)
            /// The response has no `Content-Length`; the connection is closed after the body.
            case unannounced
        }

        private struct State: Sendable {
            var size: Int64
            var seed: UInt64
            var etag: String?
            var starts: [Int64] = []
            var sent: Int64 = 0
        }

        private let state: Locked<State>
        private static let pieceSize: Int64 = 65_536

        /// Makes a file of pseudorandom bytes.
        ///
        /// - Parameters:
        ///   - size: The size in bytes.
        ///   - seed: The seed of the content; 0 for zeros.
        ///   - etag: The validator, including quotes; `nil` for no validator.
        public init(size: Int64, seed: UInt64 = 1, etag: String? = "\"1\"") {
            self.state = Locked(State(size: max(0, size), seed: seed, etag: etag))
        }

        /// Replaces the content and the validator; earlier responses keep the previous content.
        ///
        /// - Parameters:
        ///   - size: The size in bytes.
        ///   - seed: The seed of the content; 0 for zeros.
        ///   - etag: The validator, including quotes; `nil` for no validator.
        public func replace(size: Int64, seed: UInt64, etag: String?) {
            self.state.withLock { state in
                state.size = max(0, size)
                state.seed = seed
                state.etag = etag
            }
        }

        /// The offset of the first byte of each response with status 200 or 206, in the order of the calls of
        /// ``response(to:fault:)``.
        public var starts: [Int64] { self.state.withLock { $0.starts } }

        /// The number of bytes of the file that responses have generated so far.
        public var bytesSent: Int64 { self.state.withLock { $0.sent } }

        /// The whole content.
        public var content: Data {
            let (size, seed) = self.state.withLock { ($0.size, $0.seed) }
            return Self.bytes(0..<size, seed: seed)
        }

        /// The response to a request for the file.
        ///
        /// - Parameters:
        ///   - request: The request.
        ///   - fault: The fault of the response; `nil` for no fault.
        /// - Returns: The response.
        public func response(to request: Request, fault: Fault? = nil) -> Response {
            let state = self.state.withLock { $0 }
            var range = 0..<state.size
            var status = 200
            // A weak tag never matches, and only GET has ranges (RFC 9110, sections 13.1.5 and 14.2).
            let isCurrent = request.header("If-Range").map { $0 == state.etag && !$0.hasPrefix("W/") } ?? true
            if case .ignoreRange? = fault {
            } else if isCurrent, request.method == "GET",
                let asked = Self.range(request.header("Range"), of: state.size)
            {
                guard let satisfied = asked else {
                    return Response(status: 416, headers: ["Content-Range": "bytes */\(state.size)"])
                }
                (range, status) = (satisfied, 206)
            }
            self.state.withLock { $0.starts.append(range.lowerBound) }

            var headers = [(name: "Accept-Ranges", value: "bytes")]
            if let etag = state.etag { headers.append(("ETag", etag)) }
            var shift: Int64 = 0
            var length: Int64? = Int64(range.count)
            switch fault {
            case .claim(let more)?: length = Int64(range.count) &+ more
            case .shift(let count)?: shift = count
            case .excess?, .unannounced?: length = nil
            case .cut?, .hold?, .ignoreRange?, nil: break
            }
            if status == 206 {
                let text = "bytes \(range.lowerBound &+ shift)-\(range.upperBound - 1)/\(state.size)"
                headers.append(("Content-Range", text))
            }
            if let length { headers.append(("Content-Length", String(length))) }
            var response = Response(steps: [.head(status: status, headers: headers)])
            response.steps += self.body(range, seed: state.seed, fault)
            return response
        }

        private func body(_ range: Range<Int64>, seed: UInt64, _ fault: Fault?) -> [Response.Step] {
            switch fault {
            case .cut(let count)?:
                return [self.pieces(range.prefixing(count), seed), .close]
            case .hold(let count, let wait)?:
                let first = range.prefixing(count)
                return [
                    self.pieces(first, seed), .wait(wait),
                    self.pieces(first.upperBound..<range.upperBound, seed),
                ]
            case .claim?, .unannounced?:
                return [self.pieces(range, seed), .close]
            case .excess(let count)?:
                return [self.pieces(range, seed), .send(Data(count: max(0, count))), .close]
            case .shift?, .ignoreRange?, nil:
                return [self.pieces(range, seed)]
            }
        }

        private func pieces(_ range: Range<Int64>, _ seed: UInt64) -> Response.Step {
            let next = Locked(range.lowerBound)
            let zeros = seed == 0 ? Data(count: Int(Self.pieceSize)) : Data()
            return .sendPieces { [state] in
                let piece = next.withLock { next -> Range<Int64> in
                    let piece = (next..<range.upperBound).prefixing(Self.pieceSize)
                    next = piece.upperBound
                    return piece
                }
                guard !piece.isEmpty else { return nil }
                state.withLock { $0.sent += Int64(piece.count) }
                return seed == 0 ? zeros.prefix(piece.count) : Self.bytes(piece, seed: seed)
            }
        }

        /// The range of a header field: `nil` for a missing, malformed or unsupported field, `.some(nil)` for
        /// an unsatisfiable range.
        private static func range(_ field: String?, of size: Int64) -> Range<Int64>?? {
            guard let field, field.hasPrefix("bytes=") else { return .none }
            let ends = field.dropFirst("bytes=".count).split(
                separator: "-",
                omittingEmptySubsequences: false
            )
            guard ends.count == 2 else { return .none }
            switch (ends[0].isEmpty, ends[1].isEmpty) {
            case (true, true):
                return .none
            case (true, false):
                guard let count = self.position(ends[1]) else { return .none }
                return .some(count == 0 || size == 0 ? nil : size - min(count, size)..<size)
            case (false, let isOpen):
                guard let first = self.position(ends[0]), let last = isOpen ? .max : self.position(ends[1]),
                    first <= last
                else { return .none }
                return .some(first < size ? first..<min(last, size - 1) + 1 : nil)
            }
        }

        /// Parses decimal digits, clamped to `Int64.max`; `nil` for any other text.
        private static func position(_ digits: Substring) -> Int64? {
            guard !digits.isEmpty, digits.utf8.allSatisfy({ (48...57).contains($0) }) else { return nil }
            return Int64(digits) ?? .max
        }

        private static func bytes(_ range: Range<Int64>, seed: UInt64) -> Data {
            guard seed != 0, !range.isEmpty else { return Data(count: range.count) }
            let firstWord = UInt64(range.lowerBound) / 8
            let lastWord = UInt64(range.upperBound - 1) / 8
            let words = (firstWord...lastWord).map { word -> UInt64 in
                var random = SplitMix64(state: word &+ seed &* 0x1_0000_0001)
                return random.next().littleEndian
            }
            let bytes = words.withUnsafeBytes { Data($0) }
            let skipped = Int(UInt64(range.lowerBound) - firstWord * 8)
            return Data(bytes.dropFirst(skipped).prefix(range.count))
        }
    }
}

extension Range<Int64> {
    /// At most the first `count` numbers of the range; empty for a negative `count`.
    fileprivate func prefixing(_ count: Int64) -> Range<Int64> { self.prefix(Int(clamping: Swift.max(0, count))) }
}
