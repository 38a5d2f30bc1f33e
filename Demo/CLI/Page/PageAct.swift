import Foundation
import MuxKit
import MuxTesting

/// The buttons of the page.
enum PageAct: String, CaseIterable, Codable, Sendable {
    case storm, refresh, expire, network, forget, download, cut, worker
    case signOut = "sign-out"

    /// Performs the act, unless it runs already.
    func perform(on stage: LiveStage) async -> ActJournal.Outcome? {
        guard stage.journal.begin(self) else { return nil }
        do {
            let (text, holds) = try await self.play(stage)
            return stage.journal.end(self, text, holds: holds)
        } catch {
            return stage.journal.end(self, error.localizedDescription, holds: false)
        }
    }

    private func play(_ stage: LiveStage) async throws -> (String, Bool) {
        switch self {
        case .storm:
            return await Self.storm(stage, callers: 200)
        case .refresh:
            stage.app.profile.refresh()
            stage.app.places.refresh()
            return await Self.storm(stage, callers: 20)
        case .expire:
            return await Self.expire(stage)
        case .network:
            let isOnline = try await stage.switchNetwork()
            guard !isOnline else {
                return (
                    "Back online. No stale value was stamped fresh: requests fetch again.",
                    true
                )
            }
            stage.app.profile.refresh()
            stage.app.places.refresh()
            let (text, holds) = await Self.storm(stage, callers: 20)
            return ("The server is gone. " + text, holds)
        case .forget:
            stage.app.repository.clearMemory()
            let before = stage.app.statistics.diskHits
            let answers = await stage.storm(callers: 20)
            let read = stage.app.statistics.diskHits - before
            return (
                "Memory dropped: \(answers.all.text) requests, \(read) entries read back from disk.",
                answers.failed == 0
            )
        case .download:
            let isRight = try await stage.film.download(from: stage.backend.url, with: stage.media)
            let film = stage.film.state
            let parts = film.starts.count == 1 ? "one connection" : "\(film.starts.count) connections"
            let twice = film.sent == film.total ? "no byte was" : "\(Int(film.sent - film.total).text) bytes were"
            return ("20 callers have one file, every byte right, over \(parts); \(twice) sent twice.", isRight)
        case .cut:
            guard !stage.film.cut() else { return ("The connection is cut; the download goes on where it was.", true) }
            if let outcome = await PageAct.download.perform(on: stage) {
                let parts = stage.film.state.starts.count
                return (
                    "Cut after a third, and gone on with from there: \(parts) connections.", outcome.holds && parts == 2
                )
            }
            return ("The next connection is cut after a third.", true)
        case .worker:
            let round = try await stage.worker.killAndRestart(afterSaves: .random(in: 150...850))
            let torn = round.found.tornBytes
            let tail = torn == 0 ? "" : " A torn tail of \(torn) bytes was not taken for a value."
            return (
                "Killed after it said \(round.reported) are saved; the next process found \(round.found.entries), all whole.\(tail)",
                round.holds
            )
        case .signOut:
            let user = stage.user.capitalized
            let report = await stage.app.oauth.signOut()
            stage.changeUser()
            let isEmpty = stage.app.profile.cachedValue == nil && stage.store.totals.entries == 0
            return (
                "\(user) is signed out: memory, disk, film and tokens are empty. \(stage.user.capitalized) signs in next.",
                report.isComplete && isEmpty
            )
        }
    }

    private static func storm(_ stage: LiveStage, callers: Int) async -> (String, Bool) {
        let before = (stage.app.statistics.fetches, stage.backend.oauth.statistics)
        let answers = await stage.storm(callers: callers)
        let fetches = stage.app.statistics.fetches - before.0
        let oauth = stage.backend.oauth.statistics
        var parts = ["\(answers.all.text) requests by \(callers) callers: \(fetches) fetches"]
        if oauth.signIns > before.1.signIns { parts.append("one sign-in") }
        if answers.stale > 0 { parts.append("\(answers.stale.text) answered with stale values that say so") }
        if answers.ended > 0 { parts.append("\(answers.ended.text) ended with the session") }
        if answers.failed > 0 { parts.append("\(answers.failed.text) failed, with nothing to fall back to") }
        let holds = oauth.signIns - before.1.signIns <= 1 && (answers.failed == 0 || !stage.isOnline)
        return (parts.joined(separator: ", ") + ".", holds)
    }

    private static func expire(_ stage: LiveStage) async -> (String, Bool) {
        let before = stage.backend.oauth.statistics
        stage.backend.oauth.expireAllAccessTokens()
        stage.app.profile.refresh()
        stage.app.places.refresh()
        let answers = await stage.storm(callers: 100)
        let after = stage.backend.oauth.statistics
        let (refused, refreshes) = (after.refusals - before.refusals, after.refreshes - before.refreshes)
        let reuses = after.reusesDetected - before.reusesDetected
        let renewal = refreshes == 1 ? "one refresh renewed the token for all" : "\(refreshes) refreshes"
        return (
            "\(answers.all.text) requests met a dead token, \(refused) of them at the server: \(renewal).",
            refreshes <= 1 && reuses == 0 && (answers.failed == 0 || !stage.isOnline)
        )
    }
}

extension Int {
    /// The number with thousands separators.
    fileprivate var text: String { self.formatted(.number.locale(Locale(identifier: "en_US"))) }
}

/// The acts that run and the outcomes of the last ones.
final class ActJournal: Sendable {
    /// The outcome of one press.
    struct Outcome: Codable, Sendable {
        var number: Int
        var act: PageAct
        var text: String
        /// Whether the library's promises held.
        var holds: Bool
    }

    private struct State: Sendable {
        var running: Set<PageAct> = []
        var outcomes: [Outcome] = []
        var count = 0
    }

    private let changes: Tally
    private let state = Locked(State())

    init(changes: Tally) { self.changes = changes }

    var running: [PageAct] { self.state.withLock { state in PageAct.allCases.filter { state.running.contains($0) } } }

    /// The last twelve, newest first.
    var latest: [Outcome] { self.state.withLock { $0.outcomes } }

    /// Records the start of an act; `false` if it runs already.
    func begin(_ act: PageAct) -> Bool {
        defer { self.changes.add() }
        return self.state.withLock { $0.running.insert(act).inserted }
    }

    /// Records the end of an act.
    func end(_ act: PageAct, _ text: String, holds: Bool) -> Outcome {
        defer { self.changes.add() }
        return self.state.withLock { state in
            state.running.remove(act)
            state.count += 1
            let outcome = Outcome(number: state.count, act: act, text: text, holds: holds)
            state.outcomes.insert(outcome, at: 0)
            state.outcomes = Array(state.outcomes.prefix(12))
            return outcome
        }
    }
}
