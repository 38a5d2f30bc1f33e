import Foundation
import MuxKit

/// A sink that keeps the body in memory, up to a limit.
final class HTTPBuffer: HTTPSink {
    private let limit: Int
    private let bytes = Locked(Data())

    init(limit: Int) { self.limit = limit }

    var body: Data { self.bytes.withLock { $0 } }

    func receive(head: HTTPReply) {}

    func receive(_ bytes: Data) throws {
        let fits = self.bytes.withLock { body -> Bool in
            guard bytes.count <= self.limit - body.count else { return false }
            body.append(bytes)
            return true
        }
        guard fits else { throw HTTPError.bodyTooLarge(limit: self.limit) }
    }
}
