import Dispatch
import Foundation
import MuxKit
import MuxTesting

/// `demo serve`: keeps a backend and an app running, and shows both in a browser.
enum Page {
    /// Serves until the process is told to end.
    static func serve(port: UInt16?) async throws {
        // The worker may be gone when it is told something.
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

    /// Suspends until Control-C, or until somebody ends the process in an orderly way.
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
