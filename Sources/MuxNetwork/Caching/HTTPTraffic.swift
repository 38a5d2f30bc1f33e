package import Foundation
package import MuxKit

/// What a client learns from its own traffic, wrapped around its transport: whom to leave alone, and what has changed.
///
/// - A 429 or 503 with `Retry-After` closes its origin for that time (RFC 9110, section 10.2.3; RFC 6585, section 4): a request
///   that comes meanwhile fails without being sent.
/// - A request whose method is not safe changes what its URL names (RFC 9111, section 4.4), unless it was refused.
package final class HTTPTraffic: HTTPTransport {
    /// Somebody to be told of changes.
    package protocol Listener: AnyObject, Sendable {
        /// What `name` names has changed.
        func changed(_ name: HTTPResourceName)
    }

    private struct WeakListener: Sendable {
        weak var listener: (any Listener)?
    }

    private struct State: Sendable {
        var closed: [HTTPOrigin: Moment] = [:]
        var changes: [HTTPResourceName: Moment] = [:]
        /// All that was ever kept is taken for changed at this moment, because ``changes`` were too many.
        var everythingChanged: Moment?
        var listeners: [WeakListener] = []
    }

    /// How many changes are known one by one.
    package static let maximumChanges = 1_000
    /// No server closes itself for longer.
    package static let longestClosure = Duration.seconds(3600)

    private let base: any HTTPTransport
    private let time: TimeSource
    private let wallTime: @Sendable () -> Date
    private let state = Locked(State())

    package init(_ base: any HTTPTransport, time: TimeSource, wallTime: @escaping @Sendable () -> Date) {
        self.base = base
        self.time = time
        self.wallTime = wallTime
    }

    // MARK: - The transport

    /// Sends a request, if the server is to be asked at all.
    ///
    /// - Returns: The answer.
    /// - Throws: ``HTTPTransportError/serverBusy(retryAfter:)``, or what the transport throws.
    package func send(_ call: HTTPCall) async throws -> HTTPReply {
        try await self.watched(call) { try await self.base.send(call) }
    }

    /// Sends a request, if the server is to be asked at all, and hands on the answer while it arrives.
    ///
    /// - Returns: The head of the answer.
    /// - Throws: ``HTTPTransportError/serverBusy(retryAfter:)``, or what the transport throws.
    package func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
        try await self.watched(call) { try await self.base.stream(call, into: sink) }
    }

    private func watched(_ call: HTTPCall, _ exchange: () async throws -> HTTPReply) async throws -> HTTPReply {
        try self.admit(call)
        do {
            let reply = try await exchange()
            self.learn(from: reply, to: call)
            return reply
        } catch {
            // Nobody knows whether it arrived: stale is what is safe.
            if !Self.isSafe(call) { self.changed([call.url]) }
            throw error
        }
    }

    private static func isSafe(_ call: HTTPCall) -> Bool { HTTPMethod(rawValue: call.method)?.isSafe ?? false }

    private func admit(_ call: HTTPCall) throws {
        guard let origin = HTTPOrigin(call.url) else { return }
        let now = self.time.now
        let left = self.state.withLock { state -> Duration? in
            guard let until = state.closed[origin] else { return nil }
            guard now < until else {
                state.closed[origin] = nil
                return nil
            }
            return until.duration(since: now)
        }
        if let left { throw HTTPError.transport(.serverBusy(retryAfter: left)) }
    }

    private func learn(from reply: HTTPReply, to call: HTTPCall) {
        if [429, 503].contains(reply.status), let origin = HTTPOrigin(reply.url ?? call.url),
            let time = reply.retryAfter(now: self.wallTime()), time > .zero
        {
            let now = self.time.now
            let until = now.advanced(by: min(time, Self.longestClosure))
            self.state.withLock { state in
                state.closed = state.closed.filter { $0.value > now }
                state.closed[origin] = max(state.closed[origin] ?? .distantPast, until)
            }
        }
        guard !Self.isSafe(call), (200...399).contains(reply.status) else { return }
        let places = ["Location", "Content-Location"].compactMap { reply.header($0) }.compactMap {
            URL(string: $0, relativeTo: reply.url ?? call.url)?.absoluteURL
        }
        // Section 4.4: not those of others, for that would let a server harm them.
        self.changed([call.url] + places.filter { HTTPOrigin($0) == HTTPOrigin(call.url) })
    }

    // MARK: - Changes

    private func changed(_ urls: [URL]) {
        let names = Set(urls.compactMap { HTTPResourceName($0) })
        let now = self.time.now
        let listeners = self.state.withLock { state in
            for name in names { state.changes[name] = now }
            if state.changes.count > Self.maximumChanges {
                state.changes = [:]
                state.everythingChanged = now
            }
            state.listeners.removeAll { $0.listener == nil }
            return state.listeners.compactMap(\.listener)
        }
        for listener in listeners { for name in names { listener.changed(name) } }
    }

    /// Tells `listener` of changes from now on, as long as it lives.
    package func listen(_ listener: any Listener) {
        self.state.withLock { $0.listeners.append(WeakListener(listener: listener)) }
    }

    /// How long ago what `name` names was changed last; `nil` if it was not, as far as is known.
    package func timeSinceChange(of name: HTTPResourceName) -> Duration? {
        let now = self.time.now
        let changed = self.state.withLock { state in
            [state.changes[name], state.everythingChanged].compactMap { $0 }.max()
        }
        return changed.map { now.duration(since: $0) }
    }

    /// How many changes, closed origins and listeners are known.
    package var occupancy: (changes: Int, closed: Int, listeners: Int) {
        self.state.withLock { ($0.changes.count, $0.closed.count, $0.listeners.count) }
    }
}
