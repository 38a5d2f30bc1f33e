import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// A fetch begins on the thread of a caller without isolation and without a preferred executor.
@Suite(.standard, .serialized)
struct ColdRequestTests {
    private typealias Map = MultiplexerMap<Int, Place>

    /// The thread on which a fetch begins.
    private struct Place: Sendable, Equatable {
        let thread: ObjectIdentifier
        let name: String?
        let isMain: Bool

        private static let mainQueue: DispatchSpecificKey<Bool> = {
            let key = DispatchSpecificKey<Bool>()
            DispatchQueue.main.setSpecific(key: key, value: true)
            return key
        }()

        static var here: Place {
            Place(
                thread: ObjectIdentifier(Thread.current),
                name: Thread.current.name,
                isMain: DispatchQueue.getSpecific(key: Self.mainQueue) ?? false
            )
        }
    }

    private let map = Map(repository: MuxRepository(store: MemoryStore())) { _ in Place.here }

    @concurrent private func placesOnPool(_ key: Int) async throws -> (caller: Place, fetch: Place) {
        let caller = Place.here
        return (caller, try await self.map.request(key: key))
    }

    @Test func `PF-01 a fetch begins on the thread of a caller without isolation`() async throws {
        guard #available(macOS 26, iOS 26, tvOS 26, watchOS 26, visionOS 26, *) else { return }
        for key in 0..<100 {
            let places = try await self.placesOnPool(key)
            #expect(places.fetch == places.caller)
        }
        #expect(self.map.statistics.fetches == 100)
    }

    @Test func `PF-01 no fetch begins on the main queue`() async throws {
        let map = self.map
        let fromMain = try await Task { @MainActor in try await map.request(key: 1) }.value
        #expect(!fromMain.isMain)

        // Code without isolation runs on the main queue nevertheless, because an immediate task begins there.
        let request: @Sendable @concurrent () async throws -> (Place, Place) = {
            (Place.here, try await map.request(key: 2))
        }
        let (caller, fetch) = try await Task { @MainActor in
            try await Task.immediate(operation: request).value
        }.value
        #expect(caller.isMain)
        #expect(!fetch.isMain)
    }

    /// A serial executor that names the thread of its jobs.
    private final class NamedThread: TaskExecutor {
        private let queue = DispatchQueue(label: "NamedThread")

        func enqueue(_ job: consuming ExecutorJob) {
            let job = UnownedJob(job)
            self.queue.async {
                let former = Thread.current.name
                Thread.current.name = "caller's"
                job.runSynchronously(on: self.asUnownedTaskExecutor())
                Thread.current.name = former
            }
        }
    }

    @Test func `PF-01 no fetch runs on the caller's preferred executor`() async throws {
        let places = try await withTaskExecutorPreference(NamedThread()) { try await self.placesOnPool(1) }
        #expect(places.caller.name == "caller's")
        #expect(places.fetch.name != "caller's")
    }

    @Test func `PF-01 an actor serves other calls while its fetch runs`() async throws {
        actor Screen {
            private var count = 0
            func tap() -> Int {
                self.count += 1
                return self.count
            }
            func load(_ map: MultiplexerMap<Int, Int>) async throws -> Int { try await map.request(key: 1) }
        }
        let screen = Screen()
        // The fetch blocks a thread until the actor has served another call.
        let tapped = DispatchSemaphore(value: 0)
        let begun = Gate<Void>()
        let wait: @Sendable () -> Void = { #expect(tapped.wait(timeout: .now() + 300) == .success) }
        let map = MultiplexerMap<Int, Int>(repository: MuxRepository(store: MemoryStore())) { key in
            begun.open(1, returning: ())
            wait()
            return key
        }
        async let value = screen.load(map)
        try await begun.pass()
        #expect(await screen.tap() == 1)
        tapped.signal()
        #expect(try await value == 1)
    }

    @Test func `PF-01 a caller that is cancelled at the start of its fetch leaves and ends the fetch`() async throws {
        let caller = Locked<Task<Int, any Error>?>(nil)
        let saw = Gate<Bool>()
        let map = MultiplexerMap<Int, Int>(
            policy: .init(whenAbandoned: .cancel(linger: .zero)),
            repository: MuxRepository(store: MemoryStore())
        ) { key in
            caller.withLock { $0 }?.cancel()
            // The cancellation reaches the fetch after the part before the first suspension.
            while !Task.isCancelled { await Task.yield() }
            saw.open(1, returning: true)
            return key
        }
        let go = Gate<Void>()
        let task = Task { @concurrent in
            try await go.pass(ignoringCancellation: true)
            return try await map.request(key: 1)
        }
        caller.withLock { $0 = task }
        go.open(1, returning: ())
        await #expect(throws: CancellationError.self) { try await task.value }
        #expect(try await saw.pass())
        await map.expectAtRest()
    }

    @Test func `PF-01 a cancelled caller whose fetch blocks leaves when the fetch unblocks`() async throws {
        let isReleased = DispatchSemaphore(value: 0)
        let wait: @Sendable () -> Void = { isReleased.wait() }
        let begun = Gate<Void>()
        let map = MultiplexerMap<Int, Int>(repository: MuxRepository(store: MemoryStore())) { key in
            begun.open(1, returning: ())
            wait()
            return key
        }
        let caller = Task { @concurrent in try await map.request(key: 1) }
        try await begun.pass()
        caller.cancel()
        isReleased.signal()
        await #expect(throws: CancellationError.self) { try await caller.value }
        await map.expectAtRest()
    }

    @Test func `PF-01 a chain of a thousand waiting fetches does not overflow the stack`() async throws {
        let chain = Locked<MultiplexerMap<Int, Int>?>(nil)
        let map = MultiplexerMap<Int, Int>(repository: MuxRepository(store: MemoryStore())) { key in
            guard key > 0, let map = chain.withLock({ $0 }) else { return 0 }
            return try await map.request(key: key - 1) + 1
        }
        chain.withLock { $0 = map }
        #expect(try await map.request(key: 1_000) == 1_000)
        chain.withLock { $0 = nil }
        await map.expectAtRest()
    }

    @Test func `PF-01 the seed of a schedule decides which fetches begin at once`() async throws {
        func begins(_ seed: UInt64) async throws -> [Bool] {
            try await SeededExecutor(seed: seed).run {
                var begins: [Bool] = []
                for _ in 0..<16 { begins.append(TaskLauncher().canBeginHere) }
                return begins
            }
        }
        let first = try await begins(1)
        #expect(Set(first) == [true, false])
        #expect(try await begins(1) == first)
        #expect(try await begins(2) != first)
    }
}
