import Foundation
import MuxKit
import MuxOutbox
import MuxTesting

/// Changes that are made offline, and sent by the next launch.
enum OutboxActs {
    static var all: [Play] { [Play("Offline writes", self.offlineWrites)] }

    /// The names that the user adds to the list of favorites, one after another.
    private static let names = ["Springfield", "Shelbyville", "Ogdenville"]

    private static func outbox(
        of app: App,
        in stage: Stage,
        sendingTo server: FakeChangeServer
    ) -> (outbox: MuxOutbox<String>, favorites: Multiplexer<[String]>) {
        let favorites = Multiplexer<[String]>(dependency: app.oauth, repository: app.repository) { _ in
            server.applied.map(\.content)
        }
        let outbox = MuxOutbox<String>(
            "Favorites",
            dependency: app.oauth,
            directory: stage.folder.appending(component: "outbox")
        ) { name, attempt, token in
            try await server.receive(name, key: attempt.idempotencyKey, token: token)
        }
        return (outbox.overlay(favorites) { name, list in list.append(name) }, favorites)
    }

    private static func offlineWrites(_ act: inout Act, _ stage: Stage) async throws {
        let isOffline = Locked(true)
        let lost = Locked(false)
        let server = FakeChangeServer { _, _ in
            if isOffline.withLock({ $0 }) { return .refuseConnection }
            let isFirst = lost.withLock { isLost in
                defer { isLost = true }
                return !isLost
            }
            return isFirst ? .loseResponse : .confirm
        }
        do {
            let (outbox, favorites) = self.outbox(of: stage.app, in: stage, sendingTo: server)
            _ = try await favorites.request()
            for name in self.names { try await outbox.add(name) }
            act.expect("changes without a network are visible at once", favorites.cachedEntry?.value == self.names)
            act.expect("the server has no change", server.applied.isEmpty)
        }
        // The next launch of the app.
        let app = try App(backend: stage.backend.url, folder: stage.folder) {
            Stage.credentials(stage.user.withLock { $0 })
        }
        let (outbox, favorites) = self.outbox(of: app, in: stage, sendingTo: server)
        outbox.start()
        // During an attempt, the server may or may not have the change, so a response is not kept.
        while outbox.waitCount != 1, !Task.isCancelled { await Task.yield() }
        let shown = try await favorites.request()
        act.expect("after a relaunch, the first request shows the changes", shown == self.names)
        isOffline.withLock { $0 = false }
        var states = outbox.states.makeAsyncIterator()
        while let list = await states.next(isolation: nil), !list.isEmpty { outbox.retryNow() }
        act.expect("the changes arrive in order", server.applied.map(\.content) == self.names)
        act.expect(
            "after a lost response, the change is sent again with the same key, and applied once",
            server.repetitionCount == 1 && Set(server.applied.map(\.key)).count == self.names.count
        )
        let fetched = try await favorites.request()
        act.expect("a fetch returns the server's list", fetched == self.names)

        isOffline.withLock { $0 = true }
        try await outbox.add("Capital City")
        let report = await app.repository.signOut()
        act.expect(
            "a sign-out drops the change, and leaves no byte of the change on disk",
            report.droppedChanges == 1
                && stage.everythingOnDisk().firstRange(of: Data("Capital City".utf8)) == nil
        )
        await stage.app.oauth.signOut()
    }
}
