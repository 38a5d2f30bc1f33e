import MuxKit
import MuxTesting
import MuxUI

/// Two screens that show the same place, without the views.
enum ScreenActs {
    static var all: [Play] { [Play("Screens", self.screens)] }

    @MainActor
    private static func screens(_ act: inout Act, _ stage: Stage) async throws {
        let (places, id) = (stage.app.places, stage.placeIDs[0])
        await places.clear(key: id)
        let gets = { stage.backend.oauth.statistics.resourceHits }
        let before = gets()
        let activity = AppActivity()
        let screens = (0..<2).map { _ in places.observed(key: id, activity: activity) }
        let tasks = screens.map { screen in Task { await screen.follow() } }
        defer { for task in tasks { task.cancel() } }

        await self.until(screens) { $0.value != nil && !$0.isStale }
        act.expect("two screens show a place after one GET", gets() == before + 1)

        let name = screens[0].value?.name
        let change = places.change(key: id) { $0.name = "Springfield" }
        await self.until(screens) { $0.value?.name == "Springfield" }
        act.expect("a change is visible on both screens before the server has the change", gets() == before + 1)
        change.undo()
        await self.until(screens) { $0.value?.name == name && !$0.isStale }
        act.expect("after the undo, both screens show the server's place, after one GET", gets() == before + 2)

        await stage.backend.goOffline()
        await screens[0].reload()
        await self.until(screens) { $0.problem != nil }
        act.expect(
            "a pull without a network keeps the place",
            screens.allSatisfy { $0.value?.name == name && $0.isStale }
        )
        try stage.backend.goOnline()
        activity.reconnected()
        await self.until(screens) { $0.problem == nil && !$0.isStale }
        act.expect("a reconnection repeats the fetch, after one GET", gets() == before + 3)

        await stage.app.oauth.signOut()
        act.expect(
            "a sign-out leaves no place on a screen",
            screens.allSatisfy { $0.value == nil && $0.problem == nil }
        )
    }

    @MainActor
    private static func until(
        _ screens: [ObservedValue<Place>],
        _ condition: (ObservedValue<Place>) -> Bool
    ) async {
        while !screens.allSatisfy(condition), !Task.isCancelled { await Task.yield() }
    }
}
