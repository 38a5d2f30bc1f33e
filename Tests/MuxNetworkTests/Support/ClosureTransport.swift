import Foundation
import MuxKit
import MuxNetwork

/// A transport that responds with the result of a closure, and records the calls.
final class ClosureTransport: HTTPTransport {
    private let answer: @Sendable (HTTPCall) async throws -> HTTPReply
    private let sent = Locked<[HTTPCall]>([])

    init(_ answer: @escaping @Sendable (HTTPCall) async throws -> HTTPReply) { self.answer = answer }

    var calls: [HTTPCall] { self.sent.withLock { $0 } }

    func send(_ call: HTTPCall) async throws -> HTTPReply {
        self.sent.withLock { $0.append(call) }
        return try await self.answer(call)
    }
}

extension OAuthTokenEndpoint {
    /// The same endpoint with another wall clock.
    func with(wallTime: @escaping @Sendable () -> Date) -> OAuthTokenEndpoint {
        var endpoint = self
        endpoint.wallTime = wallTime
        return endpoint
    }
}
