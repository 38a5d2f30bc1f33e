package import Foundation
import MuxKit
package import MuxTesting

/// A client of a `LoopbackServer` that opens one connection for each request.
///
/// A request blocks a separate thread and does not use `URLSession`, so a process can be killed at any point
/// of a request.
///
/// **Cancellation.** A cancelled call shuts its connection down and throws `CancellationError`.
package struct LoopbackClient: Sendable {
    /// The connection was refused or ended before the response was complete, or the response has no status.
    package struct NoAnswer: Error {}

    private let port: UInt16

    /// A client of the server at `port` of 127.0.0.1.
    package init(port: Int) { self.port = UInt16(clamping: port) }

    /// Sends a request and returns the response's status and body.
    package func send(
        _ method: String,
        _ target: String,
        bearer: String? = nil,
        fields: [String: String]? = nil
    ) async throws -> (status: Int, body: Data) {
        var head = "\(method) \(target) HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        if let bearer { head += "Authorization: Bearer \(bearer)\r\n" }
        var body = Data()
        if let fields {
            body = try JSONEncoder().encode(fields)
            head += "Content-Type: application/json\r\n"
        }
        let request = Array((head + "Content-Length: \(body.count)\r\n\r\n").utf8) + Array(body)
        let port = self.port
        let connection = Locked(Connection())
        let answer = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                // Dispatch's threads are few, and the server's tasks may need them.
                Thread.detachNewThread { continuation.resume(returning: Self.answer(to: request, port, connection)) }
            }
        } onCancel: {
            connection.withLock { connection in
                connection.isCancelled = true
                if let descriptor = connection.descriptor { Socket.shutDown(descriptor) }
            }
        }
        try Task.checkCancellation()
        guard Self.isWhole(answer), let (head, body) = Self.parts(answer) else { throw NoAnswer() }
        let status = head.split(separator: " ").dropFirst().first.flatMap { Int($0) }
        guard let status else { throw NoAnswer() }
        return (status, Data(body))
    }

    private struct Connection: Sendable {
        var descriptor: Int32?
        var isCancelled = false
    }

    /// The bytes of the response; blocks.
    private static func answer(to request: [UInt8], _ port: UInt16, _ connection: Locked<Connection>) -> [UInt8] {
        guard let descriptor = Socket.dial(port: port) else { return [] }
        let isCancelled = connection.withLock { connection in
            connection.descriptor = descriptor
            return connection.isCancelled
        }
        defer {
            // Before the close, because the system may give the number to another connection.
            connection.withLock { $0.descriptor = nil }
            Socket.close(descriptor)
        }
        guard !isCancelled, Socket.write(request, to: descriptor) else { return [] }
        var answer: [UInt8] = []
        while !self.isWhole(answer), let bytes = Socket.read(descriptor) { answer += bytes }
        return answer
    }

    private static func parts(_ bytes: [UInt8]) -> (head: String, body: ArraySlice<UInt8>)? {
        guard let end = bytes.firstRange(of: Array("\r\n\r\n".utf8)) else { return nil }
        return (String(decoding: bytes[..<end.lowerBound], as: UTF8.self), bytes[end.upperBound...])
    }

    /// Whether `bytes` is a complete response; without `Content-Length`, the response ends with the head.
    private static func isWhole(_ bytes: [UInt8]) -> Bool {
        guard let (head, body) = self.parts(bytes) else { return false }
        let field = head.lowercased().split(separator: "\r\n").first { $0.hasPrefix("content-length:") }
        let length = field.flatMap { Int($0.dropFirst("content-length:".count).trimmingCharacters(in: .whitespaces)) }
        return body.count >= length ?? 0
    }
}

extension Socket {
    /// Connects to a port of 127.0.0.1; `nil` if the connection fails.
    package static func dial(port: UInt16) -> Int32? {
        guard let descriptor = try? Self.open(.ipv4) else { return nil }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr = in_addr(s_addr: UInt32(0x7f00_0001).bigEndian)
        let length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isConnected = withUnsafePointer(to: &address) { address in
            address.withMemoryRebound(to: sockaddr.self, capacity: 1) { connect(descriptor, $0, length) == 0 }
        }
        guard isConnected else {
            Self.close(descriptor)
            return nil
        }
        return descriptor
    }
}
