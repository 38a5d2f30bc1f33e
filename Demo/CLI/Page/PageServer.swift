import Dispatch
import Foundation
import MuxKit
import MuxTesting

/// Serves the page, its events and its buttons to browsers on this machine.
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

    /// The response to a request.
    func answer(_ request: LoopbackServer.Request, port: Int) async -> LoopbackServer.Response {
        // Pages of other origins can reach this port by DNS rebinding or by submitting a form.
        let hosts = ["127.0.0.1:\(port)", "localhost:\(port)"]
        guard let host = request.header("Host"), hosts.contains(host) else {
            return .text("Not this host.\n", status: 421)
        }
        switch (request.method, request.segments.first, request.segments.count) {
        case ("GET", nil, 0):
            return self.page
        case ("GET", "events", 1):
            let feed = Feed(self.stage)
            return .streamed(contentType: "text/event-stream", headers: Self.headers) { await feed.next() }
        case ("POST", "act", 2):
            guard request.header("Origin") == "http://\(host)" else { return .text("Not this origin.\n", status: 403) }
            guard let act = PageAct(rawValue: request.segments[1]) else { return .text("No such act.\n", status: 404) }
            // Continues when the client disconnects.
            guard let outcome = await finishing({ await act.perform(on: self.stage) }) else {
                return .text("Under way.\n", status: 409)
            }
            return .json(outcome, headers: Self.headers)
        default:
            return .text("There is no such page.\n", status: 404)
        }
    }

    private static let headers: KeyValuePairs = ["Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"]

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

/// The events of one open page: a snapshot after each change, at most ten times a second.
private final class Feed: Sendable {
    private static let pause = Duration.milliseconds(100)

    private let stage: LiveStage
    /// The count of changes at the last snapshot; `nil` before the first.
    private let known = Locked<Int?>(nil)

    init(_ stage: LiveStage) { self.stage = stage }

    /// The next event; `nil` if the page was closed.
    func next() async -> Data? {
        if let known = self.known.withLock({ $0 }) {
            await self.stage.changes.reached(known + 1)
            // Coalesces changes.
            try? await Task.sleep(for: Self.pause)
        }
        guard !Task.isCancelled else { return nil }
        let present = self.stage.changes.value
        self.known.withLock { $0 = present }
        guard let json = try? JSONEncoder().encode(Snapshot(of: self.stage)) else { return nil }
        return Data("data: ".utf8) + json + Data("\n\n".utf8)
    }
}

/// `demo serve`: runs a backend and an app, and shows both in a browser.
enum Page {
    /// Serves until SIGINT or SIGTERM.
    static func serve(port: UInt16?) async throws {
        // The worker may have ended when a command is written to it.
        signal(SIGPIPE, SIG_IGN)
        let stage = try LiveStage()
        let page = try PageServer(stage: stage)
        let port = Locked<Int?>(port.map { Int($0) })
        let server = LoopbackServer(port: port.withLock { $0.flatMap { UInt16(exactly: $0) } }) { request in
            await page.answer(request, port: port.withLock { $0 } ?? 0)
        }
        do {
            let url = try server.start()
            port.withLock { $0 = url.port }
            try await stage.open()
            let text = "MuxKit is running at \(url.absoluteString)/\nPress Control-C to end it.\n"
            try FileHandle.standardOutput.write(contentsOf: Data(text.utf8))
        } catch {
            await stage.close()
            throw error
        }
        await self.end()
        await server.stop()
        await stage.close()
    }

    /// Suspends until SIGINT or SIGTERM.
    private static func end() async {
        let told = Gate<Void>()
        let sources = [SIGINT, SIGTERM].map { number in
            signal(number, SIG_IGN)
            let source = DispatchSource.makeSignalSource(signal: number, queue: .global())
            source.setEventHandler { told.openForGood(returning: ()) }
            source.activate()
            return source
        }
        try? await told.pass()
        for source in sources { source.cancel() }
    }
}
