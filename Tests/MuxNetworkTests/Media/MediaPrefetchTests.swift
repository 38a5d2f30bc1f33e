import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.timeLimit(.minutes(15)), .takesTurns)
struct MediaPrefetchTests {
    @Test func `AM-13 what is asked for goes before what is only wished for`() async throws {
        let gate = Gate<Void>()
        let order = Locked<[String]>([])
        let world = try MediaWorld(
            LoopbackServer.File(size: 1000),
            answer: { request in
                order.withLock { $0.append(request.path) }
                try? await gate.pass()
                return nil
            }
        )
        try await world.run { (world) async throws in
            var limits = AsyncMedia.Limits()
            limits.parallelDownloads = 1
            let media = world.media(limits: limits)
            let urls = (0..<4).map { world.server.url.appending(path: "\($0)") }
            let first = Task { try await media.request(url: urls[0]) }
            await gate.waitForCall()
            let wishes = Task { await media.prefetch([urls[1], urls[2]]) }
            await world.events.wait(for: .missed, count: 3)
            // Asked for later, and one of them wished for already: both go before the wish that is left.
            let third = Task { try await media.request(url: urls[3]) }
            await world.events.wait(for: .missed, count: 4)
            let raised = Task { try await media.request(url: urls[2]) }
            await world.events.wait(for: .joined)
            await world.events.wait(for: .queued, count: 3)
            gate.openForGood(returning: ())

            _ = try await (first.value, third.value, raised.value)
            await wishes.value

            let served = order.withLock { $0 }
            #expect(served.first == "/0" && served.last == "/1" && Set(served).count == 4 && served.count == 4)
            await media.expectAtRest()
        }
    }

    @Test func `AM-13 a prefetch that is cancelled stops and one that fails harms nobody`() async throws {
        let gate = Gate<Void>()
        let world = try MediaWorld(
            LoopbackServer.File(size: 1000),
            answer: { request in
                if request.path == "/missing" { return .text("", status: 404) }
                if request.path == "/held" { try? await gate.pass() }
                return nil
            }
        )
        try await world.run { (world) async throws in
            let media = world.media()
            let base = world.server.url
            let good = base.appending(path: "good")
            await media.prefetch([base.appending(path: "missing"), good])
            #expect(media.cachedValue(url: good) != nil)

            let held = Task { await media.prefetch([base.appending(path: "held")]) }
            await gate.waitForCall()
            held.cancel()
            await held.value
            await world.server.waitForClosedConnection()
            #expect(gate.heldCount == 0)
            await world.events.wait(for: .fetchFailed, count: 2)
            await media.expectAtRest()
        }
    }
}
