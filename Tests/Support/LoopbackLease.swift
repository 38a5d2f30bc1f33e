import Foundation
package import MuxKit
import MuxTesting

/// A lease kept by an HTTP server on 127.0.0.1.
///
/// | request | response |
/// | --- | --- |
/// | `POST /take` with `owner`, `milliseconds` | the present term |
/// | `POST /give-back` with `owner`, `generation` | nothing |
/// | `POST /wait` with `owner`, `generation` | nothing, at the return of that term; at once for an ended term |
package final class LoopbackLeaseServer: Sendable {
    fileprivate struct Term: Codable, Sendable {
        var owner: String
        var generation: UInt64
        var milliseconds: Int64
    }

    private struct State: Sendable {
        var owner: String?
        var generation: UInt64 = 0
        var deadline = Moment.distantPast
        var waiting: [UInt64: Gate<Void>] = [:]
    }

    private let server: LoopbackServer

    /// A server that measures terms with `clock`.
    package init(clock: any Clock<Duration>) {
        let time = TimeSource(clock)
        let state = Locked(State())
        self.server = LoopbackServer { request in
            let fields = request.fields
            let owner = fields["owner"] ?? ""
            let generation = fields["generation"].flatMap { UInt64($0) } ?? 0
            switch request.path {
            case "/take":
                let duration = Duration.milliseconds(fields["milliseconds"].flatMap { Int64($0) } ?? 0)
                return .json(Self.take(state, owner, duration, at: time.now))
            case "/give-back":
                let gate = state.withLock { state -> Gate<Void>? in
                    guard state.owner == owner, state.generation == generation else { return nil }
                    state.owner = nil
                    return state.waiting.removeValue(forKey: generation)
                }
                gate?.openForGood(returning: ())
                return LoopbackServer.Response()
            case "/wait":
                let gate = state.withLock { state -> Gate<Void>? in
                    guard state.owner == owner, state.generation == generation else { return nil }
                    let gate = state.waiting[generation] ?? Gate()
                    state.waiting[generation] = gate
                    return gate
                }
                try? await gate?.pass()
                return LoopbackServer.Response()
            default:
                return LoopbackServer.Response(status: 404)
            }
        }
    }

    /// Starts the server and returns its port.
    package func start() throws -> Int { try self.server.start().port ?? 0 }

    /// Suspends until `count` requests in total have asked to wait for the return of a term.
    package func waitForWaiters(_ count: Int = 1) async {
        await self.server.waitForRequest("POST /wait", count: count)
    }

    /// Stops the server.
    package func stop() async { await self.server.stop() }

    private static func take(
        _ state: Locked<State>,
        _ owner: String,
        _ duration: Duration,
        at now: Moment
    ) -> Term {
        state.withLock { state in
            if state.owner == nil || now >= state.deadline {
                state.generation += 1
                state.owner = owner
            }
            if state.owner == owner { state.deadline = now.advanced(by: duration) }
            let left = state.deadline.duration(since: now)
            return Term(
                owner: state.owner ?? "",
                generation: state.generation,
                milliseconds: left.saturatedNanoseconds / 1_000_000
            )
        }
    }
}

/// A lease whose state is on a ``LoopbackLeaseServer``.
package struct LoopbackLease: MuxLease {
    private let client: LoopbackClient

    /// A client of the server at `port`.
    package init(port: Int) { self.client = LoopbackClient(port: port) }

    package func take(as owner: String, for duration: Duration) async throws -> MuxLeaseTerm {
        let milliseconds = duration.saturatedNanoseconds / 1_000_000
        let reply = try await self.client.send(
            "POST",
            "/take",
            fields: ["owner": owner, "milliseconds": "\(milliseconds)"]
        )
        let term = try JSONDecoder().decode(LoopbackLeaseServer.Term.self, from: reply.body)
        return MuxLeaseTerm(
            owner: term.owner,
            generation: term.generation,
            remaining: .milliseconds(term.milliseconds)
        )
    }

    package func giveBack(_ term: MuxLeaseTerm) async throws {
        _ = try await self.client.send("POST", "/give-back", fields: Self.fields(term))
    }

    package func wait(for term: MuxLeaseTerm) async throws {
        _ = try await self.client.send("POST", "/wait", fields: Self.fields(term))
    }

    private static func fields(_ term: MuxLeaseTerm) -> [String: String] {
        ["owner": term.owner, "generation": "\(term.generation)"]
    }
}
