import Foundation
import MuxKit
import MuxTesting

/// The acts in order; each act continues in the state after the previous act.
enum Acts {
    static var all: [Play] {
        [
            Play("Launch storm", self.launchStorm),
            Play("Token expiry storm", self.tokenExpiryStorm),
            Play("A thousand 401s", self.thousandRefusals),
            Play("Relaunch", self.relaunch),
            Play("Offline", self.offline),
            Play("Pull to refresh", self.pullToRefresh),
            Play("Sign-out with work in flight", self.signOut),
            Play("User B", self.userB),
        ]
    }

    private static func launchStorm(_ act: inout Act, _ stage: Stage) async throws {
        let before = Act.figures(of: stage)
        let (succeeded, _, failed) = await stage.storm(callers: 200)
        let change = Act.figures(of: stage) - before
        act.expect("all of 200 × 51 requests succeed", succeeded == 200 * 51 && failed == 0)
        act.expect(
            "one sign-in and no refresh: the sign-in returned an access token",
            change.oauth.signIns == 1 && change.oauth.refreshes == 0
        )
        act.expect("one GET for each of 51 resources", Self.gets(stage) == 51)
        let (again, _, _) = await stage.storm(callers: 10)
        act.expect("repeated requests are served from memory", again == 510 && Self.gets(stage) == 51)
    }

    private static func tokenExpiryStorm(_ act: inout Act, _ stage: Stage) async throws {
        let before = Act.figures(of: stage)
        stage.backend.oauth.expireAllAccessTokens()
        stage.app.profile.refresh()
        stage.app.places.refresh()
        let (succeeded, _, failed) = await stage.storm(callers: 200)
        let change = Act.figures(of: stage) - before
        act.expect("all of 200 × 51 requests succeed", succeeded == 200 * 51 && failed == 0)
        act.expect("one refresh, no sign-in", change.oauth.refreshes == 1 && change.oauth.signIns == 0)
        act.expect("no refresh token is used twice", change.oauth.reusesDetected == 0)
    }

    /// A thousand calls take the same access token before the server replies to the first call.
    private static func thousandRefusals(_ act: inout Act, _ stage: Stage) async throws {
        let api = try API(stage.backend.url)
        let gate = Gate<Void>()
        stage.gate.withLock { $0 = gate }
        let before = Act.figures(of: stage).oauth
        stage.backend.oauth.expireAllAccessTokens()
        let started = Tally()
        let calls = Task {
            await withTaskGroup { group in
                for _ in 0..<1_000 {
                    group.addTask {
                        let user = try? await stage.app.oauth.run { token -> RunResult<App.Profile> in
                            started.add()
                            return .output(try await api.fetchUserInfo(token))
                        }
                        return user != nil
                    }
                }
                return await group.reduce(into: 0) { $0 += $1 ? 1 : 0 }
            }
        }
        await started.reached(1_000)
        stage.gate.withLock { $0 = nil }
        gate.openForGood(returning: ())

        let succeeded = await calls.value
        let after = Act.figures(of: stage).oauth
        act.expect("the server refuses 1,000 calls", after.refusals - before.refusals == 1_000)
        let isRefreshed = after.refreshes - before.refreshes == 1 && after.signIns == before.signIns
        act.expect("one refresh, no sign-in", isRefreshed)
        act.expect("all 1,000 calls succeed with the new token", succeeded == 1_000)
    }

    private static func relaunch(_ act: inout Act, _ stage: Stage) async throws {
        let report = await stage.app.repository.saveAll()
        act.expect("51 values saved", report.saved == 51 && report.isComplete)
        let requests = stage.backend.server.requestCount
        let child = try await Relaunch.run(on: stage)
        act.elsewhere.misses = child.misses
        act.elsewhere.diskHits = child.diskHits
        act.elsewhere.fetches = child.fetches
        act.expect("a second process loads all 51 values from disk", child.succeeded == 51 && child.diskHits == 51)
        act.expect("the process sends no request, not even for a token", stage.backend.server.requestCount == requests)
    }

    private static func offline(_ act: inout Act, _ stage: Stage) async throws {
        await stage.backend.goOffline()
        stage.app.profile.refresh()
        stage.app.places.refresh()
        let (succeeded, _, failed) = await stage.storm(callers: 5)
        act.expect("all of 5 × 51 requests succeed", succeeded == 5 * 51 && failed == 0)
        let entry = try await stage.app.places.requestEntry(key: stage.placeIDs[0])
        act.expect("the values are marked as stale", entry.isStale)
        try stage.backend.goOnline()
        let fresh = try await stage.app.places.requestEntry(key: stage.placeIDs[0])
        act.expect(
            "no stale value is marked as fresh: back online, the next request fetches",
            !fresh.isStale && fresh.source == .fetch
        )
    }

    private static func pullToRefresh(_ act: inout Act, _ stage: Stage) async throws {
        _ = try await stage.app.profile.refresh().request()
        let gets = Self.gets(stage)
        stage.app.profile.refresh()
        try await withThrowingTaskGroup { group in
            for _ in 0..<50 { group.addTask { _ = try await stage.app.profile.request() } }
            try await group.waitForAll()
        }
        act.expect("50 callers after a refresh: one GET", Self.gets(stage) == gets + 1)
        act.expect("the callers have a fresh value", try await !stage.app.profile.requestEntry().isStale)
    }

    private static func signOut(_ act: inout Act, _ stage: Stage) async throws {
        await stage.app.repository.saveAll()
        let gate = Gate<Void>()
        stage.gate.withLock { $0 = gate }
        stage.app.profile.refresh()
        let requests = stage.backend.server.requestCount
        let joins = stage.app.profile.statistics.joins
        let storm = Task { await stage.storm(callers: 100) }
        await stage.backend.server.waitForRequest(requests + 1)
        while stage.app.profile.statistics.joins < joins + 99 { await Task.yield() }

        let report = await stage.app.oauth.signOut()
        let (succeeded, ended, failed) = await storm.value
        stage.gate.withLock { $0 = nil }
        gate.openForGood(returning: ())

        act.expect("the sign-out removed everything", report.isComplete)
        act.expect("100 waiting callers end with the session", ended == 100 && succeeded == 0 && failed == 0)
        act.expect("memory is empty", stage.app.profile.cachedValue == nil)
        let disk = stage.everythingOnDisk()
        let traces = ["alice", "Shanghai", "refresh-", "access-"].filter { disk.range(of: Data($0.utf8)) != nil }
        act.expect("no trace of values or tokens on disk", traces.isEmpty)
    }

    private static func userB(_ act: inout Act, _ stage: Stage) async throws {
        stage.user.withLock { $0 = "bob" }
        let before = Act.figures(of: stage)
        let users = try await withThrowingTaskGroup { group in
            for _ in 0..<100 { group.addTask { try await stage.app.profile.request().user } }
            return try await group.reduce(into: Set()) { $0.insert($1) }
        }
        let change = Act.figures(of: stage) - before
        act.expect("100 callers get Bob's profile, and no caller gets Alice's", users == ["bob"])
        act.expect("one sign-in", change.oauth.signIns == 1)
        await stage.app.repository.saveAll()
        let disk = stage.everythingOnDisk()
        let hasOnlyBob = disk.range(of: Data("bob".utf8)) != nil && disk.range(of: Data("alice".utf8)) == nil
        act.expect("the disk has Bob's profile and no data of Alice", hasOnlyBob)
    }

    /// The number of resource requests with a valid token.
    private static func gets(_ stage: Stage) -> Int { stage.backend.oauth.statistics.resourceHits }
}
