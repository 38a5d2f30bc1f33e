import Foundation
import MuxKit
import MuxTesting

/// Serves the page, tells it what happens, and does what its buttons say; for browsers on this machine only.
struct PageServer: Sendable {
    private let stage: LiveStage
    private let html: String

    init(stage: LiveStage) throws {
        guard let file = Bundle.module.url(forResource: "page", withExtension: "html", subdirectory: "Resources") else {
            throw CocoaError(.fileNoSuchFile)
        }
        self.stage = stage
        self.html = try String(contentsOf: file, encoding: .utf8)
    }

    /// The answer to a request.
    func answer(_ request: LoopbackServer.Request, port: Int) async -> LoopbackServer.Response {
        // A page of somebody else can reach this port, under a name that it made mean this machine, or by sending a form.
        let hosts = ["127.0.0.1:\(port)", "localhost:\(port)"]
        guard let host = request.header("Host"), hosts.contains(host) else {
            return .text("Not this host.\n", status: 421)
        }
        switch (request.method, request.segments.first, request.segments.count) {
        case ("GET", nil, 0):
            return self.page
        case ("GET", "events", 1):
            let feed = Feed(self.stage)
            return .streamed(contentType: "text/event-stream", headers: Self.manners) { await feed.next() }
        case ("POST", "act", 2):
            guard request.header("Origin") == "http://\(host)" else { return .text("Not this origin.\n", status: 403) }
            guard let act = PageAct(rawValue: request.segments[1]) else { return .text("No such act.\n", status: 404) }
            // It is done to its end, even if the page goes away.
            guard let outcome = await finishing({ await act.perform(on: self.stage) }) else {
                return .text("Under way.\n", status: 409)
            }
            return .json(outcome, headers: Self.manners)
        default:
            return .text("There is no such page.\n", status: 404)
        }
    }

    private static let manners: KeyValuePairs = ["Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"]

    private var page: LoopbackServer.Response {
        let nonce = UUID().uuidString
        let policy = """
            default-src 'none'; style-src 'nonce-\(nonce)'; script-src 'nonce-\(nonce)'; connect-src 'self'; \
            img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'
            """
        return LoopbackServer.Response(
            headers: [
                "Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": policy,
                "Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
            ],
            body: Data(self.html.replacing("{{nonce}}", with: nonce).utf8)
        )
    }
}

/// What one open page is told: the state of things, whenever it has changed, at most ten times a second.
private final class Feed: Sendable {
    private static let pause = Duration.milliseconds(100)

    private let stage: LiveStage
    /// The number of the change that the page knows; `nil` before the first.
    private let known = Locked<Int?>(nil)

    init(_ stage: LiveStage) { self.stage = stage }

    /// The next event; `nil` if the page is gone.
    func next() async -> Data? {
        if let known = self.known.withLock({ $0 }) {
            await self.stage.changes.reached(known + 1)
            // What happens meanwhile comes with it.
            try? await Task.sleep(for: Self.pause)
        }
        guard !Task.isCancelled else { return nil }
        let present = self.stage.changes.value
        self.known.withLock { $0 = present }
        guard let json = try? JSONEncoder().encode(Snapshot(of: self.stage)) else { return nil }
        return Data("data: ".utf8) + json + Data("\n\n".utf8)
    }
}
