import Foundation
import MuxTestSupport
import MuxTesting

/// A client that sends raw bytes and collects all bytes from the server.
struct RawClient: Sendable {
    /// The response of the server.
    struct Answer: Sendable {
        var text = ""
        /// Whether the server ended the connection within two seconds after its last byte.
        var isEnded = false

        var body: String? { self.text.components(separatedBy: "\r\n\r\n").dropFirst().first }
    }

    struct Refused: Error {}

    let descriptor: Int32

    init(_ url: URL) throws {
        guard let descriptor = Socket.dial(port: UInt16(clamping: url.port ?? 0)) else { throw Refused() }
        self.descriptor = descriptor
        // On a busy machine the first byte may take long.
        self.limitSilence(60)
    }

    private func limitSilence(_ seconds: Int) {
        var limit = timeval(tv_sec: seconds, tv_usec: 0)
        setsockopt(self.descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
    }

    func send(_ text: String) { _ = Socket.write(Array(text.utf8), to: self.descriptor) }

    /// Shuts down the sending side only.
    func endSending() { shutdown(self.descriptor, Int32(SHUT_WR)) }

    func close() { Socket.close(self.descriptor) }

    /// All bytes until the server ends the connection or, after its first byte, is silent for two seconds;
    /// closes the connection then.
    func answer() async -> Answer {
        await withCheckedContinuation { continuation in
            // `recv` blocks.
            Thread.detachNewThread {
                var bytes: [UInt8] = []
                var isEnded = false
                var buffer = [UInt8](repeating: 0, count: 4_096)
                while !isEnded {
                    let count = recv(self.descriptor, &buffer, buffer.count, 0)
                    if count < 0 { break }
                    isEnded = count == 0
                    if bytes.isEmpty { self.limitSilence(2) }
                    bytes += buffer.prefix(count)
                }
                self.close()
                continuation.resume(returning: Answer(text: String(decoding: bytes, as: UTF8.self), isEnded: isEnded))
            }
        }
    }

    /// Sends a request on a new connection and returns the response.
    static func exchange(_ text: String, with url: URL) async throws -> Answer {
        let client = try RawClient(url)
        client.send(text)
        return await client.answer()
    }
}
