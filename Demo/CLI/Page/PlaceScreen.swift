import Foundation
import MuxKit
import MuxNetwork
import MuxTesting

/// A view of one place, which follows the states of the place and starts no fetch.
final class PlaceScreen: Sendable {
    /// The state on the page.
    struct State: Codable, Sendable {
        /// `nil` without a value.
        var name: String?
        var isStale = false
        /// Whether the server does not have the name yet.
        var isChanged = false
        /// Descriptions of the latest states, newest first.
        var states = ["no value"]
    }

    /// The end of a change of the name.
    enum Change {
        case noValue
        /// The time for which the screen showed the new name before the server had it.
        case accepted(String, after: Duration)
        /// The time for which the screen showed the new name.
        case undone(String, after: Duration)
        /// The server has the new name, but did not send the place afterwards.
        case unconfirmed(String)
        /// The sign-out removed the value and its change.
        case signedOut
        /// The screen showed another name.
        case wrong
    }

    private let id: Int
    private let names: [String]
    private let app: App
    private let changes: Tally
    private let shown = Locked(State())
    private let pending = Locked<String?>(nil)

    /// A screen of a place.
    ///
    /// - Parameters:
    ///   - place: The place.
    ///   - app: The app with the place's map.
    ///   - changes: Incremented after each change of the state.
    init(of place: Place, in app: App, changes: Tally) {
        self.id = place.id
        self.names = [place.name] + place.aliases
        self.app = app
        self.changes = changes
    }

    var state: State { self.shown.withLock { $0 } }

    /// Follows the place until the task is cancelled.
    func follow() async {
        for await state in self.app.places.states(key: self.id) {
            let name = state.entry?.value.name
            let isChanged = self.pending.withLock { $0 != nil && $0 == name }
            var words = [name ?? "no value"]
            if isChanged { words.append("not on the server yet") }
            if state.isStale { words.append("stale") }
            if state.isLoading { words.append("loading") }
            if state.failure != nil { words.append("failed") }
            self.shown.withLock { shown in
                let states = [words.joined(separator: ", ")] + shown.states
                shown = State(
                    name: name,
                    isStale: state.isStale,
                    isChanged: isChanged,
                    states: Array(states.prefix(5))
                )
            }
            self.changes.add()
        }
    }

    /// Shows another name at once, and sends the name to the server; undoes the change after a failure.
    func rename() async -> Change {
        let places = self.app.places
        guard let former = await places.loadCachedValue(key: self.id),
            let name = self.names.first(where: { $0 != former.name })
        else { return .noValue }
        self.pending.withLock { $0 = name }
        defer { self.pending.withLock { $0 = nil } }
        let start = ContinuousClock.now
        let change = places.change(key: self.id) { $0.name = name }
        await self.until { $0.name == name && $0.isChanged }
        guard self.state.name != nil else { return .signedOut }
        do {
            try await self.app.rename(self.id, to: name)
        } catch let error where Self.isEndOfSession(error) {
            return .signedOut
        } catch {
            let time = ContinuousClock.now - start
            change.undo()
            await self.until { $0.name != name }
            return [former.name, nil].contains(self.state.name) ? .undone(name, after: time) : .wrong
        }
        let time = ContinuousClock.now - start
        self.pending.withLock { $0 = nil }
        change.commit()
        do {
            return try await places.request(key: self.id).name == name ? .accepted(name, after: time) : .wrong
        } catch {
            return Self.isEndOfSession(error) ? .signedOut : .unconfirmed(name)
        }
    }

    private static func isEndOfSession(_ error: any Error) -> Bool {
        switch error {
        case MuxError.sessionEnded, RunnerError.signedOut: true
        default: false
        }
    }

    /// Waits for a state, or for the removal of the place.
    private func until(_ condition: (State) -> Bool) async {
        while case let count = self.changes.value, case let state = self.state, state.name != nil, !condition(state) {
            await self.changes.reached(count + 1)
        }
    }
}

/// The names of the backend's places that clients have changed.
final class RenamedPlaces: Sendable {
    private let oauth: FakeOAuthServer
    private let originals: [String: Place]
    private let renamed = Locked<[String: Place]>([:])

    init(_ places: [Place], oauth: FakeOAuthServer) {
        self.oauth = oauth
        self.originals = Dictionary(places.map { (String($0.id), $0) }) { $1 }
    }

    /// The response to a new name, or to a request for a place with a new name; `nil` for other requests.
    func response(to request: LoopbackServer.Request) -> LoopbackServer.Response? {
        guard request.segments.count == 2, request.segments[0] == "places" else { return nil }
        let id = request.segments[1]
        switch request.method {
        case "PUT":
            guard var place = self.originals[id] else { return nil }
            guard self.isAuthorized(request) else { return Self.unauthorized }
            place.name = String(decoding: request.body, as: UTF8.self)
            self.renamed.withLock { $0[id] = place }
            return LoopbackServer.Response(status: 204)
        case "GET":
            guard let place = self.renamed.withLock({ $0[id] }) else { return nil }
            return self.isAuthorized(request) ? .json(place) : Self.unauthorized
        default: return nil
        }
    }

    private func isAuthorized(_ request: LoopbackServer.Request) -> Bool {
        self.oauth.authorize(request.bearerToken ?? "") != nil
    }

    private static var unauthorized: LoopbackServer.Response {
        LoopbackServer.Response(status: 401, headers: ["WWW-Authenticate": #"Bearer error="invalid_token""#])
    }
}
