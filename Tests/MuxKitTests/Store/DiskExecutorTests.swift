import Dispatch
import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct DiskExecutorTests {
    @Test func `DK-09 blocked stores take no thread from the pool`() async throws {
        let count = ProcessInfo.processInfo.activeProcessorCount * 2 + 2
        let arrived = Locked(0)
        let gate = DispatchSemaphore(value: 0)
        let isReleased = Locked(true)
        // More stores than threads of the pool block at the same time; the last arrival releases all stores.
        let fileSystem = RecordingFileSystem { _, call in
            guard call.operation == .lock else { return nil }
            return .perform {
                let number = arrived.withLock { arrived in
                    arrived += 1
                    return arrived
                }
                if number == count { for _ in 0..<count { gate.signal() } }
                let result = gate.wait(timeout: .now() + 10)
                if result == .timedOut { isReleased.withLock { $0 = false } }
            }
        }
        let scratches = (0..<count).map { _ in Scratch() }

        await withTaskGroup(of: Void.self) { group in
            for scratch in scratches {
                group.addTask { _ = try? await scratch.store(fileSystem).sessionEpoch() }
            }
        }

        #expect(isReleased.withLock { $0 })
    }

    @MainActor @Test func `DK-09 values that the main actor loads are decoded on another thread`() async throws {
        struct Witness: Codable, Sendable {
            var isDecodedOnMainThread = false
            init() {}
            init(from decoder: any Decoder) throws { self.isDecodedOnMainThread = Thread.isMainThread }
        }
        let world = World()
        let witness = Multiplexer<Witness>(cacheKey: "Witness", repository: world.repository) { Witness() }
        _ = try await witness.request()
        await witness.save()

        let next = world.relaunched()
        let again = Multiplexer<Witness>(cacheKey: "Witness", repository: next.repository) { Witness() }

        #expect(await again.loadCachedValue()?.isDecodedOnMainThread == false)
    }

    /// A value whose encoding waits until the encoding of a second value begins.
    private struct Companion: Codable, Sendable {
        static let arrived = Locked(0)
        static let company = DispatchSemaphore(value: 0)
        static let wasAlone = Locked(false)
        var number: Int

        func encode(to encoder: any Encoder) throws {
            switch Self.arrived.next() {
            case 1: if Self.company.wait(timeout: .now() + 20) == .timedOut { Self.wasAlone.withLock { $0 = true } }
            case 2: Self.company.signal()
            default: break
            }
            var container = encoder.singleValueContainer()
            try container.encode(self.number)
        }
    }

    @Test(.enabled(if: ProcessInfo.processInfo.activeProcessorCount > 1))
    func `DK-09 RP-03 values are encoded concurrently`() async throws {
        let world = World()
        let map = MultiplexerMap<Int, Companion>(cacheKey: "Map", repository: world.repository) {
            Companion(number: $0)
        }
        for key in 0..<200 { map.store(Companion(number: key), key: key) }

        #expect(await world.repository.saveAll().saved == 200)
        #expect(Companion.wasAlone.withLock { !$0 })
    }
}
