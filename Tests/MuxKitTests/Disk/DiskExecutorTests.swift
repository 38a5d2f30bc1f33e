import Dispatch
import Foundation
import MuxKit
import MuxTesting
import Testing

@Suite(.timeLimit(.minutes(1)))
struct DiskExecutorTests {
    @Test func `DK-09 blocked stores take no thread from the pool`() async throws {
        let count = ProcessInfo.processInfo.activeProcessorCount * 2 + 2
        let arrived = Guarded(0)
        let gate = DispatchSemaphore(value: 0)
        let isReleased = Guarded(true)
        // More stores than the pool has threads are blocked at once; the last one to come frees all.
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
}
