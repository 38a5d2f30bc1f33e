import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Batches that are fetched with a token.
@Suite(.standard)
struct BatchDependencyTests {
    private struct Call: Equatable {
        let keys: [Int]
        let token: Int
    }

    private let world = World()
    private let updates = Locked(0)
    /// The fetched batches, with sorted keys.
    private let calls = Locked<[Call]>([])

    /// Makes a runner whose tokens are 1, 2, 3, and so on.
    private func runner(_ gate: Gate<Void>? = nil) -> DependentRunner<Int> {
        DependentRunner<Int> { _ in
            let number = self.updates.next()
            try await gate?.pass()
            return .updatedDependency(number)
        }
    }

    private func map(
        _ runner: DependentRunner<Int>,
        size: Int,
        _ body: @escaping @Sendable ([Int], Int) async throws -> Void = { _, _ in }
    ) -> MultiplexerMap<Int, Int> {
        MultiplexerMap<Int, Int>(
            dependency: runner,
            policy: MuxPolicy(whenAbandoned: .cancel(linger: .zero)),
            batching: .init(window: .seconds(1_000), maximumSize: size),
            repository: self.world.repository
        ) { keys, token in
            self.calls.withLock { $0.append(Call(keys: keys.sorted(), token: token)) }
            try await body(keys, token)
            return Dictionary(uniqueKeysWithValues: keys.map { ($0, $0 * token) })
        }
    }

    @Test func `CS-07 simultaneous batches use the token of a single update`() async throws {
        let gate = Gate<Void>()
        let runner = self.runner(gate)
        let map = self.map(runner, size: 4)
        let many = Task { try await map.request(keys: 0..<12) }
        await gate.waitForCall(1)
        #expect(self.calls.withLock { $0.isEmpty })
        gate.openForGood(returning: ())

        #expect(try await many.value == Dictionary(uniqueKeysWithValues: (0..<12).map { ($0, $0) }))
        #expect(self.updates.withLock { $0 } == 1)
        #expect(self.calls.withLock { $0.map(\.keys.count) } == [4, 4, 4])
        #expect(self.calls.withLock { $0.allSatisfy { $0.token == 1 } })
        await map.expectAtRest()
        await runner.expectAtRest()
    }

    @Test func `CS-07 a refusal by a batch fetches the entire batch once more with a new token`() async throws {
        let runner = self.runner()
        let map = self.map(runner, size: 3) { _, token in
            guard token > 1 else { throw BadDependency() }
        }

        #expect(try await map.request(keys: 1...3) == [1: 2, 2: 4, 3: 6])
        #expect(self.updates.withLock { $0 } == 2)
        #expect(self.calls.withLock { $0 } == [Call(keys: [1, 2, 3], token: 1), Call(keys: [1, 2, 3], token: 2)])
        #expect(map.statistics.fetches == 3)
        await map.expectAtRest()
    }

    @Test func `CS-07 simultaneous refusals of a token by batches renew the token once`() async throws {
        let refused = Gate<Void>()
        let map = self.map(self.runner(), size: 2) { _, token in
            guard token == 1 else { return }
            try await refused.pass()
            throw BadDependency()
        }
        let many = Task { try await map.request(keys: 0..<6) }
        await refused.waitForCall(3)
        refused.openForGood(returning: ())

        #expect(try await many.value.count == 6)
        #expect(self.updates.withLock { $0 } == 2)
        #expect(self.calls.withLock { $0.map(\.token).sorted() } == [1, 1, 1, 2, 2, 2])
    }

    @Test func `CS-07 a cancelled caller does not end the batch or the update of the token`() async throws {
        let (update, fetch) = (Gate<Void>(), Gate<Void>())
        let map = self.map(self.runner(update), size: 3) { _, _ in try await fetch.pass() }
        let callers = (1...3).map { key in Task { try await map.request(key: key) } }
        await update.waitForCall(1)
        callers[0].cancel()
        await #expect(throws: CancellationError.self) { try await callers[0].value }
        update.open(returning: ())
        await fetch.waitForCall(1)
        callers[1].cancel()
        await #expect(throws: CancellationError.self) { try await callers[1].value }
        fetch.open(returning: ())

        #expect(try await callers[2].value == 3)
        #expect(self.updates.withLock { $0 } == 1)
        #expect(self.calls.withLock { $0 } == [Call(keys: [1, 2, 3], token: 1)])
        await map.expectAtRest()
    }

    @Test func `CS-07 the last cancelled caller ends the fetch of the batch`() async throws {
        let fetch = Gate<Void>()
        let isCancelled = FirstValue<Bool>()
        let map = self.map(self.runner(), size: 2) { _, _ in
            do {
                try await fetch.pass()
            } catch {
                isCancelled.give(Task.isCancelled)
                throw error
            }
        }
        let callers = (1...2).map { key in Task { try await map.request(key: key) } }
        await fetch.waitForCall(1)
        for caller in callers { caller.cancel() }
        for caller in callers { await #expect(throws: CancellationError.self) { try await caller.value } }

        #expect(await isCancelled.wait())
        await map.expectAtRest()
        #expect(self.calls.withLock { $0.count } == 1)
    }

    @Test func `CS-07 a batch with the dependency of another repository is refused`() async throws {
        let other = World()
        struct Foreign: DependencyRunner {
            let sessionRepository: MuxRepository?
            nonisolated(nonsending) func run<Output: Sendable>(
                _ task: (Int) async throws -> RunResult<Output>
            ) async throws -> Output {
                guard case .output(let output) = try await task(1) else { throw BadDependency() }
                return output
            }
        }
        let map = MultiplexerMap<Int, Int>(
            dependency: Foreign(sessionRepository: other.repository),
            batching: .init(maximumSize: 1),
            repository: self.world.repository
        ) { keys, _ in Dictionary(uniqueKeysWithValues: keys.map { ($0, $0) }) }

        await #expect(throws: MuxError.repositoryMismatch) { try await map.request(key: 1) }
    }
}
