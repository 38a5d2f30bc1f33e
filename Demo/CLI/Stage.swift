import Foundation
import MuxKit
import MuxTesting

/// The environment of the acts: a backend on loopback, an app, and a folder for both of its launches.
final class Stage: Sendable {
    let console: Console
    let backend: LoopbackBackend
    let folder: URL
    let app: App
    let placeIDs: [Int]
    /// The user at the device.
    let user = Locked("alice")
    /// While set, the backend holds requests for resources.
    let gate = Locked<Gate<Void>?>(nil)

    init(console: Console) throws {
        self.console = console
        let gate = self.gate
        let user = self.user
        let places = try Place.all()
        let byID = Dictionary(places.map { ($0.id, $0) }) { $1 }
        let oauth = FakeOAuthServer(users: Self.passwords)
        self.backend = try LoopbackBackend(oauth: oauth, places: places) { request in
            if request.method == "GET", let gate = gate.withLock({ $0 }) { try? await gate.pass() }
            if let page = Pages.answer(to: request) { return page }
            guard request.segments.first == "batch", oauth.authorize(request.bearerToken ?? "") != nil else {
                return nil
            }
            let ids = request.segments.last?.split(separator: ",").compactMap { Int($0) } ?? []
            return .json(ids.compactMap { byID[$0] })
        }
        let url = try self.backend.goOnline()
        self.folder = FileManager.default.temporaryDirectory.appending(component: "MuxKit-demo-\(UUID().uuidString)")
        self.placeIDs = places.prefix(50).map(\.id)
        self.app = try App(backend: url, folder: self.folder) { Self.credentials(user.withLock { $0 }) }
    }

    static let passwords = ["alice": "a secret", "bob": "another"]

    static func credentials(_ name: String) -> (name: String, password: String) {
        (name, self.passwords[name] ?? "")
    }

    func close() async {
        await self.backend.goOffline()
        try? FileManager.default.removeItem(at: self.folder)
    }

    /// The bytes of all files of the app.
    func everythingOnDisk() -> Data {
        let files = FileManager.default.enumerator(at: self.folder, includingPropertiesForKeys: nil)
        return (files?.compactMap { $0 as? URL } ?? []).reduce(into: Data()) { all, file in
            all += (try? Data(contentsOf: file)) ?? Data()
        }
    }

    /// Runs `callers` tasks, each of which requests the profile and every place.
    ///
    /// - Returns: The numbers of requests that succeeded, ended with the session, and failed.
    func storm(callers: Int) async -> (succeeded: Int, ended: Int, failed: Int) {
        await withTaskGroup(of: (Int, Int, Int).self) { group in
            for _ in 0..<callers {
                group.addTask {
                    var counts = (0, 0, 0)
                    do {
                        _ = try await self.app.profile.request()
                        counts.0 += 1
                        for id in self.placeIDs {
                            _ = try await self.app.places.request(key: id)
                            counts.0 += 1
                        }
                    } catch MuxError.sessionEnded {
                        counts.1 += 1
                    } catch RunnerError.signedOut {
                        counts.1 += 1
                    } catch {
                        counts.2 += 1
                    }
                    return counts
                }
            }
            return await group.reduce(into: (0, 0, 0)) { sum, counts in
                sum = (sum.0 + counts.0, sum.1 + counts.1, sum.2 + counts.2)
            }
        }
    }
}
