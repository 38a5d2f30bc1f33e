import Dispatch
import Foundation
import MuxTesting
import Synchronization

/// The state of a page, and the acts of its buttons.
protocol PageStage: Sendable {
    associatedtype Shown: Encodable
    associatedtype Act: RawRepresentable<String> & Sendable
    associatedtype Outcome: Encodable & Sendable

    /// The number of changes of the shown state.
    var changeCount: Int { get }

    /// The shown state.
    var shown: Shown { get }

    /// Waits until the number of changes reaches `count`, or the task is cancelled.
    func changed(_ count: Int) async

    /// Performs an act; `nil` if a running act excludes it.
    func perform(_ act: Act) async -> Outcome?

    func open() async throws
    func close() async
}

/// Serves a page, its events and its buttons to browsers on this machine.
private struct PageServer<Stage: PageStage>: Sendable {
    let stage: Stage
    let html: String

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
            guard let act = Stage.Act(rawValue: request.segments[1]) else {
                return .text("No such act.\n", status: 404)
            }
            // The act continues after the client disconnects.
            guard let outcome = await Task(operation: { await self.stage.perform(act) }).value else {
                return .text("A running act excludes this act.\n", status: 409)
            }
            return .json(outcome, headers: Self.headers)
        default:
            return .text("There is no such page.\n", status: 404)
        }
    }

    private static var headers: KeyValuePairs<String, String> {
        ["Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"]
    }

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

/// The events of one open page: the state after changes, at most ten times and about once a second or more
/// often.
private final class Feed<Stage: PageStage>: Sendable {
    private static var pause: Duration { .milliseconds(100) }
    /// The page treats a longer silence as a lost connection.
    private static var longestSilence: Duration { .milliseconds(900) }

    private let stage: Stage
    /// The count of changes at the last event; `nil` before the first.
    private let known = Mutex<Int?>(nil)

    init(_ stage: Stage) { self.stage = stage }

    /// The next event; `nil` if the page was closed.
    func next() async -> Data? {
        if let known = self.known.withLock({ $0 }) {
            await withTaskGroup { group in
                group.addTask { await self.stage.changed(known + 1) }
                group.addTask { try? await Task.sleep(for: Self.longestSilence) }
                await group.next()
                group.cancelAll()
            }
            // Changes during the pause become one event.
            try? await Task.sleep(for: Self.pause)
        }
        guard !Task.isCancelled else { return nil }
        let present = self.stage.changeCount
        self.known.withLock { $0 = present }
        guard let json = try? JSONEncoder().encode(self.stage.shown) else { return nil }
        return Data("data: ".utf8) + json + Data("\n\n".utf8)
    }
}

/// Shows a stage in a browser.
enum Page {
    /// Serves until SIGINT or SIGTERM.
    static func serve(_ stage: some PageStage, html: String, port: UInt16?) async throws {
        // A write to an ended child process must not end this process.
        signal(SIGPIPE, SIG_IGN)
        let page = PageServer(stage: stage, html: html)
        let port = Mutex<Int?>(port.map { Int($0) })
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
