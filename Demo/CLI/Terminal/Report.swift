import Foundation
import MuxKit
import MuxTesting

/// The JSON report.
struct Report: Encodable {
    /// One act.
    struct Entry: Encodable {
        /// One expectation.
        struct Check: Encodable {
            var expected: String
            var holds: Bool
        }

        var name: String
        var holds: Bool
        var seconds: Double
        var asked, network, memory, disk, joined, signIns, refreshes: Int
        var checks: [Check]
    }

    var holds: Bool
    var seconds: Double
    var acts: [Entry]

    init(_ acts: [Act], after elapsed: Duration) {
        self.holds = acts.allSatisfy(\.holds)
        self.seconds = elapsed.secondsValue
        self.acts = acts.map { act in
            let app = act.figures.app + act.elsewhere
            return Entry(
                name: act.name,
                holds: act.holds,
                seconds: act.elapsed.secondsValue,
                asked: app.requests,
                network: app.fetches,
                memory: app.hits,
                disk: app.diskHits,
                joined: app.joins,
                signIns: act.figures.oauth.signIns,
                refreshes: act.figures.oauth.refreshes,
                checks: act.checks.map { Entry.Check(expected: $0.expected, holds: $0.holds) }
            )
        }
    }

    var json: String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        return (try? encoder.encode(self)).map { String(decoding: $0, as: UTF8.self) } ?? "{}"
    }
}
