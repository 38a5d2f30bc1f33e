import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct FenceStressTests {
    /// An actor to hop to, so that concurrent calls interleave.
    private actor Elsewhere {
        func visit() {}
    }

    @Test(arguments: [Duration.zero, .seconds(1)])
    func `MX-07 under concurrency no request after a fence gets a value from before the fence`(
        linger: Duration
    ) async throws {
        let world = World()
        let elsewhere = Elsewhere()
        let fetch = ScriptedFetch<Int>(
            thereafter: .computed { call in
                for _ in 0..<call % 4 { await elsewhere.visit() }
                if call % 13 == 0 { throw FetchFailed(call: call) }
                return call
            }
        )
        let policy = MuxPolicy(whenAbandoned: .cancel(linger: linger))
        let number = Multiplexer<Int>(cacheKey: "Number", policy: policy, repository: world.repository) {
            try await fetch()
        }

        let tooOld = await withTaskGroup { group in
            for worker in 0..<6 {
                group.addTask { await Self.work(on: number, of: world, fetch, seed: UInt64(worker)) }
            }
            return await group.reduce(into: []) { $0 += $1 }
        }

        #expect(tooOld == [])
        #expect(number.occupancy.waiters == 0)
    }

    /// Makes requests after random fences, and returns the values that are older than their fence.
    private static func work(
        on number: Multiplexer<Int>,
        of world: World,
        _ fetch: ScriptedFetch<Int>,
        seed: UInt64
    ) async -> [Int] {
        var random = SplitMix64(state: seed)
        var tooOld: [Int] = []
        for _ in 0..<300 {
            let before = fetch.callCount
            switch Int.random(in: 0..<6, using: &random) {
            case 0: number.refresh()
            case 1: await number.clear()
            case 2: await world.repository.clearAll()
            case 3:
                await number.save()
                continue
            case 4:
                let caller = Task { try await number.request() }
                caller.cancel()
                _ = await caller.result
                continue
            default:
                _ = await number.loadCachedValue()
                continue
            }
            if let value = try? await number.request(), value <= before { tooOld.append(value) }
        }
        return tooOld
    }
}
