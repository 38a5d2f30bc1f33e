import Foundation
import MuxKit
import MuxNetwork
import MuxTesting

/// Small requests to a server in this process.
///
/// Each figure includes the work of the server.
enum TransportGroup {
    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        let server = LoopbackServer { _ in .text("{\"id\":1}") }
        let url = try server.start()
        let rows = [
            try await self.gets(group, 1, url, effort),
            try await self.gets(group, 64, url, effort),
        ]
        await server.stop()
        return rows + [try await self.connections(group), try await self.waiting(group)]
    }

    /// The number of connections of 1,200 GETs in sequence.
    ///
    /// The transport checks a connection before reuse.
    private static func connections(_ group: String) async throws -> Row {
        let server = LoopbackServer { _ in .text("{\"id\":1}") }
        let call = HTTPCall(url: try server.start())
        let transport = SystemTransport()
        for _ in 0..<1_200 { consume(try await transport.send(call)) }
        let count = server.connectionCount
        await server.stop()
        return Row(
            group,
            "connections of 1,200 small GETs, connection checked before reuse",
            unit: .count,
            figure: Double(count),
            goals: [.atMost(1)],
            isCount: true
        )
    }

    /// The time per GET of `width` concurrent tasks, compared with `URLSession`.
    private static func gets(_ group: String, _ width: Int, _ url: URL, _ effort: Effort) async throws -> Row {
        let count = 640
        let system = SystemTransport()
        let session = URLSessionTransport()
        var contest = Contest(rounds: effort.rounds(7))
        for transport in [system, session] as [any HTTPTransport] {
            contest.add(times: count) { count in
                try await withThrowingTaskGroup(of: Void.self) { group in
                    for _ in 0..<width {
                        group.addTask {
                            for _ in 0..<count / width { consume(try await transport.send(HTTPCall(url: url))) }
                        }
                    }
                    try await group.waitForAll()
                }
            }
        }
        return Row(
            group,
            "a small GET, \(width) at a time",
            try await contest.play(),
            figure: 0,
            instead: ("URLSession", 1),
            goals: [.timesBetter(2)]
        )
    }

    /// The processor time of a second in which 10,000 calls wait.
    private static func waiting(_ group: String) async throws -> Row {
        let gate = Gate<Void>()
        let server = LoopbackServer { _ in
            try? await gate.pass()
            return .text("")
        }
        let url = try server.start()
        let transport = SystemTransport()
        let calls = (0..<10_000).map { _ in
            Task { try await transport.send(HTTPCall(url: url, timeout: .seconds(600))) }
        }
        while transport.pendingCount < calls.count { try await Task.sleep(for: .milliseconds(1)) }
        // The transport's thread accepts calls in order: after the response to this call, it has accepted the
        // others.
        let quick = LoopbackServer { _ in .text("") }
        _ = try await transport.send(HTTPCall(url: try quick.start()))
        await quick.stop()
        let start = ProcessorTime.nanoseconds
        try await Task.sleep(for: .seconds(1))
        let end = ProcessorTime.nanoseconds
        for call in calls { call.cancel() }
        for call in calls { _ = await call.result }
        await server.stop()
        return Row(
            group,
            "processor time of a second in which 10,000 calls wait",
            unit: .nanoseconds,
            figure: end - start,
            goals: [.atMost(50e6)]
        )
    }
}
