public import Foundation
import MuxKit

extension LoopbackServer {
    /// A test double: a large file that a ``LoopbackServer`` serves whole or from an offset, well or badly.
    ///
    /// ```swift
    /// let file = LoopbackServer/File(size: 1_000_000)
    /// let server = LoopbackServer { request in file.response(to: request) }
    /// ```
    ///
    /// Its bytes are made when they are sent, so it may be larger than memory. It understands `Range: bytes=a-`,
    /// `bytes=a-b` and `bytes=-n`, and `If-Range` (RFC 9110, sections 13.1.5 and 14).
    public final class File: Sendable {
        /// What goes wrong with one answer.
        public enum Fault: Sendable {
            /// The connection is closed after so many bytes of the body.
            case cut(after: Int64)
            /// The server sends so many bytes of the body, then waits for the closure, then sends the rest.
            case hold(after: Int64, @Sendable @concurrent () async -> Void)
            /// The whole file is sent, whatever was asked for.
            case ignoreRange
            /// `Content-Length` says so much more than there is, and the connection is closed after the body.
            case claim(more: Int64)
            /// `Content-Range` says that the body begins so much later than it does.
            case shift(by: Int64)
            /// The body has no announced length and so many bytes too much.
            case excess(Int)
            /// The body has no announced length; the connection is closed after it.
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

        /// A file of bytes that look random.
        ///
        /// - Parameters:
        ///   - size: How many bytes there are.
        ///   - seed: Tells contents apart; 0 for nothing but zeros.
        ///   - etag: The validator, quotes included; `nil` for none.
        public init(size: Int64, seed: UInt64 = 1, etag: String? = "\"1\"") {
            self.state = Locked(State(size: max(0, size), seed: seed, etag: etag))
        }

        /// Puts another content in the file's place.
        ///
        /// - Parameters:
        ///   - size: How many bytes there are from now on.
        ///   - seed: Tells contents apart.
        ///   - etag: The validator from now on.
        public func replace(size: Int64, seed: UInt64, etag: String?) {
            self.state.withLock { state in
                state.size = max(0, size)
                state.seed = seed
                state.etag = etag
            }
        }

        /// Where the bodies that were asked for began, in order of the requests.
        public var starts: [Int64] { self.state.withLock { $0.starts } }

        /// How many bytes of bodies were handed to connections so far.
        public var bytesSent: Int64 { self.state.withLock { $0.sent } }

        /// The whole content.
        public var content: Data {
            let (size, seed) = self.state.withLock { ($0.size, $0.seed) }
            return Self.bytes(0..<size, seed: seed)
        }

        /// The answer to a request for the file.
        ///
        /// - Parameters:
        ///   - request: The request.
        ///   - fault: What goes wrong.
        /// - Returns: The answer.
        public func response(to request: Request, fault: Fault? = nil) -> Response {
            let state = self.state.withLock { $0 }
            var range = 0..<state.size
            var status = 200
            let isCurrent = request.header("If-Range").map { $0 == state.etag } ?? true
            if case .ignoreRange? = fault {
            } else if isCurrent, let asked = Self.range(request.header("Range"), of: state.size) {
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

        /// The range that a header field asks for: `nil` if it asks for none that makes sense, `.some(nil)` if the file has
        /// nothing of it.
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

        /// The number that the digits say, however many there are; `nil` if they are none.
        private static func position(_ digits: Substring) -> Int64? {
            guard !digits.isEmpty, digits.utf8.allSatisfy({ (48...57).contains($0) }) else { return nil }
            return Int64(digits) ?? .max
        }

        private static func bytes(_ range: Range<Int64>, seed: UInt64) -> Data {
            guard seed != 0, !range.isEmpty else { return Data(count: range.count) }
            let firstWord = UInt64(range.lowerBound) / 8
            let lastWord = UInt64(range.upperBound - 1) / 8
            let words = (firstWord...lastWord).map { Self.mixed($0 &+ seed &* 0x1_0000_0001).littleEndian }
            let bytes = words.withUnsafeBytes { Data($0) }
            let skipped = Int(UInt64(range.lowerBound) - firstWord * 8)
            return Data(bytes.dropFirst(skipped).prefix(range.count))
        }

        /// A step of SplitMix64.
        private static func mixed(_ number: UInt64) -> UInt64 {
            var value = number &* 0x9e37_79b9_7f4a_7c15
            value = (value ^ (value >> 30)) &* 0xbf58_476d_1ce4_e5b9
            value = (value ^ (value >> 27)) &* 0x94d0_49bb_1331_11eb
            return value ^ (value >> 31)
        }
    }
}

extension Range<Int64> {
    /// The first `count` numbers.
    fileprivate func prefixing(_ count: Int64) -> Range<Int64> {
        let end = self.lowerBound.addingReportingOverflow(Swift.max(0, count))
        return self
            .lowerBound..<(end.overflow ? self.upperBound : Swift.min(self.upperBound, end.partialValue))
    }
}
