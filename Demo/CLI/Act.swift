import Foundation
import MuxKit
import MuxTesting

/// The result of one act: figures of the app and of the server, and expectations with their outcome.
struct Act {
    /// The figures of the table.
    struct Figures {
        var app = MuxRepository.Statistics()
        var oauth = FakeOAuthServer.Statistics()
        var requests = 0

        static func - (now: Figures, before: Figures) -> Figures {
            var change = Figures()
            change.app.hits = now.app.hits - before.app.hits
            change.app.joins = now.app.joins - before.app.joins
            change.app.misses = now.app.misses - before.app.misses
            change.app.diskHits = now.app.diskHits - before.app.diskHits
            change.app.fetches = now.app.fetches - before.app.fetches
            change.app.staleServed = now.app.staleServed - before.app.staleServed
            change.oauth.signIns = now.oauth.signIns - before.oauth.signIns
            change.oauth.refreshes = now.oauth.refreshes - before.oauth.refreshes
            change.oauth.reusesDetected = now.oauth.reusesDetected - before.oauth.reusesDetected
            change.requests = now.requests - before.requests
            return change
        }
    }

    let name: String
    private(set) var figures = Figures()
    private(set) var checks: [(expected: String, holds: Bool)] = []
    private(set) var elapsed = Duration.zero
    /// The counts of another process or another cache.
    var elsewhere = MuxRepository.Statistics()

    /// Whether all expectations hold.
    var holds: Bool { !self.checks.isEmpty && self.checks.allSatisfy(\.holds) }

    /// Plays an act.
    init(
        _ name: String,
        on stage: Stage,
        _ play: (inout Act) async throws -> Void
    ) async {
        self.name = name
        let before = Self.figures(of: stage)
        let clock = ContinuousClock()
        let start = clock.now
        do {
            try await play(&self)
        } catch {
            self.expect("no error, but: \(error)", false)
        }
        self.elapsed = start.duration(to: clock.now)
        self.figures = Self.figures(of: stage) - before
    }

    static func figures(of stage: Stage) -> Figures {
        Figures(
            app: stage.app.statistics,
            oauth: stage.backend.oauth.statistics,
            requests: stage.backend.server.requestCount
        )
    }

    /// Records an expectation and its outcome.
    mutating func expect(_ expected: String, _ holds: Bool) {
        self.checks.append((expected, holds))
    }

    static let header =
        "act                              asked  network  memory   disk  joined   sign-ins  refreshes       time"

    /// The act's row, and a line for each expectation.
    var text: String {
        let app = self.figures.app + self.elsewhere
        let milliseconds =
            self.elapsed.components.seconds * 1_000 + self.elapsed.components.attoseconds / 1_000_000_000_000_000
        let columns = [
            (app.requests, 7), (app.fetches, 9), (app.hits, 8), (app.diskHits, 7), (app.joins, 8),
            (self.figures.oauth.signIns, 11), (self.figures.oauth.refreshes, 11),
        ]
        var text = self.name.padding(toLength: 31, withPad: " ", startingAt: 0)
        for (number, width) in columns { text += Self.right(String(number), width) }
        text += Self.right("\(milliseconds) ms", 11) + "   " + (self.holds ? "ok" : "FAILED")
        for check in self.checks { text += "\n    \(check.holds ? "✓" : "✗") \(check.expected)" }
        return text
    }

    /// The name as an argument: "launch-storm".
    static func argument(_ name: String) -> String {
        name.lowercased().split { !$0.isLetter && !$0.isNumber }.joined(separator: "-")
    }

    private static func right(_ text: String, _ width: Int) -> String {
        String(repeating: " ", count: max(0, width - text.count)) + text
    }
}

/// An act before it is played.
struct Play: Sendable {
    let name: String
    private let play: @Sendable (Stage) async -> Act

    init(_ name: String, _ play: @escaping @Sendable (inout Act, Stage) async throws -> Void) {
        self.name = name
        self.play = { stage in await Act(name, on: stage) { try await play(&$0, stage) } }
    }

    /// Every play, in order.
    ///
    /// Each play continues in the state after the previous play.
    static var all: [Play] {
        Acts.all + CacheActs.all + HTTPCacheActs.all + MediaActs.all + ScreenActs.all + OutboxActs.all
    }

    /// The name as an argument: `launch-storm`.
    var argument: String { Act.argument(self.name) }

    func callAsFunction(on stage: Stage) async -> Act { await self.play(stage) }
}
