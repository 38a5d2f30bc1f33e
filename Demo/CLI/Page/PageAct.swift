import Foundation
import MuxKit
import MuxTesting

/// The buttons of the page.
enum PageAct: String, CaseIterable, Codable, Sendable {
    case storm, refresh, forget, rename, expire, offline, online, download, cut, worker
    case signOut = "sign-out"
    case writesOffline = "writes-offline"
    case writesOnline = "writes-online"
    case killWriter = "kill-writer"

    /// The text and the kind of an outcome.
    private typealias Report = (text: String, result: ActJournal.Result)

    /// Whether `other` cannot run at the same time: shared counters cannot tell the requests of two acts apart.
    func excludes(_ other: PageAct) -> Bool {
        self == other || self.affectsRequests && other.affectsRequests || self.affectsWriter && other.affectsWriter
    }

    fileprivate var affectsRequests: Bool {
        switch self {
        case .storm, .refresh, .forget, .rename, .expire, .offline, .online: true
        case .download, .cut, .worker, .signOut, .writesOffline, .writesOnline, .killWriter: false
        }
    }

    private var affectsWriter: Bool { [.writesOffline, .writesOnline, .killWriter].contains(self) }

    /// Performs the act, unless a running act excludes it.
    func perform(on stage: LiveStage) async -> ActJournal.Outcome? {
        guard stage.journal.begin(self) else { return nil }
        do {
            let (text, result) = try await self.play(stage)
            return stage.journal.end(self, text, result)
        } catch {
            return stage.journal.end(self, error.localizedDescription, .failed)
        }
    }

    private func play(_ stage: LiveStage) async throws -> Report {
        switch self {
        case .storm:
            let storm = await Storm(stage, callers: 200)
            return storm.isInVain ? (storm.text + " No value is cached.", .noEffect) : (storm.text, storm.result)
        case .refresh:
            let marked = stage.markStale()
            let storm = await Storm(stage, callers: 20)
            guard marked > 0 else { return ("No value was cached. " + storm.text, .noEffect) }
            return ("\(marked.counted("value")) marked as stale. " + storm.text, storm.result)
        case .forget: return await Self.forget(stage)
        case .rename: return await Self.rename(stage)
        case .expire: return await Self.expire(stage)
        case .offline:
            guard stage.isOnline else { return ("The server is offline already.", .noEffect) }
            try await stage.setOnline(false)
            let marked = stage.markStale()
            guard marked > 0 else { return ("The server is offline. No value is cached.", .held) }
            let storm = await Storm(stage, callers: 20)
            return ("The server is offline. \(marked.counted("value")) marked as stale. " + storm.text, storm.result)
        case .online:
            guard !stage.isOnline else { return ("The server is online already.", .noEffect) }
            try await stage.setOnline(true)
            let stale = stage.staleness.count { $0 == true }
            return ("The server is online. Memory has \(stale.counted("stale value")).", .held)
        case .download: return try await Self.download(stage)
        case .cut:
            let received = stage.film.state.received
            switch await stage.film.cut() {
            case .noConnection: return ("No film data is arriving, so no connection was cut.", .noEffect)
            case .ended: return ("The download ended without another connection.", .noEffect)
            case .resumed(let offset):
                return (
                    "The server cut the connection after \(received.megabytes). The download resumed at \(offset.megabytes).",
                    offset > 0 ? .held : .failed
                )
            }
        case .worker:
            guard let round = try await stage.worker.killAndRestart(afterSaves: .random(in: 150...850)) else {
                return ("The worker had ended already. A new process was started.", .noEffect)
            }
            let found = round.found
            let damage = found.isWhole ? "" : ", some of the values damaged"
            let torn = found.tornBytes == 0 ? "" : ", and ignored a torn record of \(found.tornBytes.counted("byte"))"
            return (
                "The worker reported \(round.reported.text) saved values before SIGKILL. "
                    + "The next process found \(found.entries.text)\(damage)\(torn).",
                round.holds ? .held : .failed
            )
        case .signOut: return await Self.signOut(stage)
        case .writesOffline:
            guard try await stage.writer.setOnline(false) != nil else {
                return ("The server of the changes is offline already.", .noEffect)
            }
            return ("The server of the changes is offline. Changes wait on disk.", .held)
        case .writesOnline:
            guard let count = try await stage.writer.setOnline(true) else {
                return ("The server of the changes is online already.", .noEffect)
            }
            return (
                "The server of the changes is online. \(count.counted("waiting change")) arrived, in order, none twice.",
                stage.writer.holds && stage.writer.state.waiting == 0 ? .held : .failed
            )
        case .killWriter: return try await Self.killWriter(stage)
        }
    }

    private static func killWriter(_ stage: LiveStage) async throws -> Report {
        guard let round = try await stage.writer.killAndRestart(after: .random(in: 5...40)) else {
            return ("The writer had ended already. A new process was started.", .noEffect)
        }
        let state = stage.writer.state
        let next =
            state.isOnline
            ? "The server has \(round.applied.counted("change")), none twice."
            : "\(state.waiting.counted("change")) wait on disk."
        return (
            "The writer reported \(round.reported.counted("durable change")) before SIGKILL. "
                + "The next process continued. \(next)",
            round.holds ? .held : .failed
        )
    }

    private static func forget(_ stage: LiveStage) async -> Report {
        let before = stage.cachedCount
        guard before > 0 else { return ("The memory was empty, so no value was removed.", .noEffect) }
        stage.app.repository.clearMemory()
        let kept = stage.cachedCount
        guard kept < before else {
            return ("\(kept.counted("value")) stayed in memory until the next save to disk.", .noEffect)
        }
        let unsaved = kept == 0 ? "" : " \(kept.counted("unsaved value")) stayed in memory."
        let storm = await Storm(stage, callers: 20)
        return ("\((before - kept).counted("value")) removed from memory.\(unsaved) \(storm.text)", storm.result)
    }

    private static func rename(_ stage: LiveStage) async -> Report {
        switch await stage.screen.rename() {
        case .noValue: ("No value is cached, so no place was renamed.", .noEffect)
        case .accepted(let name, let time):
            ("The screen showed \(name) \(time.milliseconds) before the server had the name.", .held)
        case .undone(let name, let time):
            (
                "The server did not accept \(name). The screen showed the name for \(time.milliseconds), until the undo.",
                stage.isOnline ? .failed : .held
            )
        case .unconfirmed(let name): ("The server has the name \(name), but did not send the place again.", .noEffect)
        case .signedOut: ("The sign-out ended the change.", .held)
        case .wrong: ("The screen showed a wrong name.", .failed)
        }
    }

    private static func expire(_ stage: LiveStage) async -> Report {
        guard await stage.app.oauth.status == .signedIn else {
            return ("No user is signed in, so no token expired.", .noEffect)
        }
        stage.backend.oauth.expireAllAccessTokens()
        _ = stage.markStale()
        let storm = await Storm(stage, callers: 100)
        let (refused, refreshes) = (storm.server.refusals, storm.server.refreshes)
        let server =
            refused == 0
            ? "The server refused no request" : "The server refused \(refused.counted("request")) with status 401"
        return (
            "All access tokens expired. \(storm.text) \(server): \(refreshes.counted("token refresh", "token refreshes")).",
            refreshes <= 1 && storm.server.reusesDetected == 0 ? storm.result : .failed
        )
    }

    private static func download(_ stage: LiveStage) async throws -> Report {
        guard stage.isOnline else { return ("The server is offline, so no download was started.", .noEffect) }
        do {
            let isRight = try await stage.film.download(from: stage.backend.url, with: stage.media)
            let film = stage.film.state
            let connections = film.starts.count.counted("connection")
            let twice = film.sent > film.total ? Int(film.sent - film.total).counted("byte") : "no byte"
            return (
                isRight
                    ? "20 callers received the same file over \(connections), \(twice) sent twice."
                    : "The file has wrong bytes, or callers received different files.",
                isRight ? .held : .failed
            )
        } catch MuxError.sessionEnded {
            stage.film.forget()
            return ("The sign-out ended the download.", .held)
        } catch  where !stage.isOnline {
            return (
                "The server went offline after \(stage.film.state.received.megabytes), and the download failed.",
                .noEffect
            )
        }
    }

    private static func signOut(_ stage: LiveStage) async -> Report {
        guard await stage.app.oauth.status == .signedIn else { return ("No user is signed in.", .noEffect) }
        let user = stage.user.capitalized
        let report = await stage.signOut()
        let next = "\(stage.user.capitalized) is the next user."
        if stage.journal.running.contains(where: \.affectsRequests) {
            return (
                "\(user) is signed out during other requests. \(next)", report.isComplete ? .held : .failed
            )
        }
        let left = stage.cachedCount + stage.store.totals.entries + (stage.hasFilm ? 1 : 0)
        let isSignedOut = await stage.app.oauth.status == .signedOut
        guard report.isComplete, left == 0, isSignedOut else {
            return ("The sign-out of \(user) is incomplete: \(left.counted("value")) left.", .failed)
        }
        return ("\(user) is signed out. Memory and disk have no value, token or film of \(user). \(next)", .held)
    }
}

/// Callers that request all values, and the changes of the counters.
private struct Storm {
    let server: FakeOAuthServer.Statistics
    let text: String
    let result: ActJournal.Result
    /// Whether all requests failed, because the server is offline.
    let isInVain: Bool

    init(_ stage: LiveStage, callers: Int) async {
        let before = (stage.app.statistics, stage.backend.oauth.statistics, stage.signOuts)
        let answers = await stage.storm(callers: callers)
        let app = stage.app.statistics
        var server = stage.backend.oauth.statistics
        server.signIns -= before.1.signIns
        server.refusals -= before.1.refusals
        server.refreshes -= before.1.refreshes
        server.reusesDetected -= before.1.reusesDetected
        let fetches = app.fetches - before.0.fetches
        let failures = app.failures - before.0.failures
        let loads = app.diskHits - before.0.diskHits
        var parts = [fetches.counted("fetch", "fetches")]
        if failures > 0 { parts[0] += failures == fetches ? " (all failed)" : " (\(failures.text) failed)" }
        if loads > 0 { parts.insert("\(loads.counted("value")) from disk", at: 0) }
        if server.signIns > 0 { parts.append(server.signIns.counted("sign-in")) }
        if answers.stale > 0 { parts.append(answers.stale.counted("stale value")) }
        if answers.ended > 0 { parts.append("\(answers.ended.counted("request")) ended by a sign-out") }
        if answers.failed > 0 { parts.append(answers.failed.counted("failed request")) }
        self.server = server
        self.text = "\(answers.all.counted("request")) by \(callers) callers: " + parts.joined(separator: ", ") + "."
        self.isInVain = answers.failed == answers.all && !stage.isOnline
        let isRight = server.signIns <= 1 + stage.signOuts - before.2 && (answers.failed == 0 || !stage.isOnline)
        self.result = isRight ? .held : .failed
    }
}

extension Int {
    /// The number with thousands separators.
    fileprivate var text: String { self.formatted(.number.locale(Locale(identifier: "en_US"))) }

    /// The number and a noun.
    fileprivate func counted(_ noun: String, _ plural: String? = nil) -> String {
        "\(self.text) \(self == 1 ? noun : plural ?? noun + "s")"
    }
}

extension Duration {
    fileprivate var milliseconds: String {
        self.formatted(.units(allowed: [.milliseconds], width: .abbreviated).locale(Locale(identifier: "en_US")))
    }
}

extension Int64 {
    fileprivate var megabytes: String { String(format: "%.1f MB", Double(self) / 1e6) }
}

/// The running acts and the latest outcomes.
final class ActJournal: Sendable {
    /// The kind of an outcome.
    enum Result: String, Codable, Sendable {
        /// The promises of the library held.
        case held
        /// The state did not permit the act.
        case noEffect
        case failed
    }

    /// The outcome of one press.
    struct Outcome: Codable, Sendable {
        var number: Int
        var act: PageAct
        var text: String
        var result: Result
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

    /// The acts that cannot begin now.
    var blocked: [PageAct] {
        let running = self.running
        return PageAct.allCases.filter { act in running.contains { $0.excludes(act) } }
    }

    /// The last twelve, newest first.
    var latest: [Outcome] { self.state.withLock { $0.outcomes } }

    /// Records the start of an act; `false` if a running act excludes it.
    func begin(_ act: PageAct) -> Bool {
        defer { self.changes.add() }
        return self.state.withLock { state in
            guard !state.running.contains(where: { $0.excludes(act) }) else { return false }
            return state.running.insert(act).inserted
        }
    }

    /// Records the end of an act.
    func end(_ act: PageAct, _ text: String, _ result: Result) -> Outcome {
        defer { self.changes.add() }
        return self.state.withLock { state in
            state.running.remove(act)
            state.count += 1
            let outcome = Outcome(number: state.count, act: act, text: text, result: result)
            state.outcomes.insert(outcome, at: 0)
            state.outcomes = Array(state.outcomes.prefix(12))
            return outcome
        }
    }
}
