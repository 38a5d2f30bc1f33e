import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct ReentrancyTests {
    @Test func `MX-19 a fetch that requests its own key fails at once`() async throws {
        let world = World()
        let later = Later<Multiplexer<Int>>()
        let number = Multiplexer<Int>(repository: world.repository) { try await later().request() }
        later.set(number)

        await #expect(throws: MuxError.wouldDeadlock) { try await number.request() }
        await number.expectAtRest()
    }

    @Test func `MX-19 a child task of a fetch that requests the fetch's own key fails at once`() async throws {
        let world = World()
        let later = Later<Multiplexer<Int>>()
        let number = Multiplexer<Int>(repository: world.repository) {
            async let inner = later().request()
            return try await inner
        }
        later.set(number)

        await #expect(throws: MuxError.wouldDeadlock) { try await number.request() }
        await number.expectAtRest()
    }

    @Test func `MX-19 two fetches that wait for each other fail`() async throws {
        let world = World()
        let gates = [Gate<Void>(), Gate<Void>()]
        let (laterOne, laterOther) = (Later<Multiplexer<Int>>(), Later<Multiplexer<Int>>())
        let one = Multiplexer<Int>(repository: world.repository) {
            try await gates[0].pass()
            return try await laterOther().request()
        }
        let other = Multiplexer<Int>(repository: world.repository) {
            try await gates[1].pass()
            return try await laterOne().request()
        }
        laterOne.set(one)
        laterOther.set(other)
        let callers = [Task { try await one.request() }, Task { try await other.request() }]
        for gate in gates { await gate.waitForCall(1) }

        gates[0].open()
        await world.events.wait(for: .joined)
        gates[1].open()

        for caller in callers { await #expect(throws: MuxError.wouldDeadlock) { try await caller.value } }
        await one.expectAtRest()
        await other.expectAtRest()
    }

    @Test func `MX-19 a cycle through the keys of a map is an error`() async throws {
        let world = World()
        let later = Later<MultiplexerMap<Int, Int>>()
        let map = MultiplexerMap<Int, Int>(repository: world.repository) { key in
            try await later().request(key: (key + 1) % 5)
        }
        later.set(map)

        await #expect(throws: MuxError.wouldDeadlock) { try await map.request(key: 2) }
        await map.expectAtRest()
    }

    @Test func `MX-19 a cycle through the update of a runner is an error`() async throws {
        let world = World()
        let later = Later<Multiplexer<Int>>()
        let runner = DependentRunner<Int> { _ in .updatedDependency(try await later().request()) }
        let number = Multiplexer<Int>(cacheKey: "Number", dependency: runner, repository: world.repository) { $0 }
        later.set(number)

        await #expect(throws: MuxError.wouldDeadlock) { try await number.request() }
        await number.expectAtRest()
        await runner.expectAtRest()
    }

    @Test func `MX-19 a run inside the update of its own runner is an error`() async throws {
        let later = Later<DependentRunner<Int>>()
        let runner = DependentRunner<Int> { _ in
            .updatedDependency(try await later().run { .output($0) })
        }
        later.set(runner)

        let error = await #expect(throws: RunnerError.self) { try await runner.run { .output($0) } }
        guard case .wouldDeadlock? = error else { return #expect(Bool(false), "\(error)") }
        await runner.expectAtRest()
    }

    @Test func `MX-19 a run inside the update closure of its caller is an error`() async throws {
        let runner = DependentRunner<Int>()

        let error = await #expect(throws: RunnerError.self) {
            try await runner.run {
                .output($0)
            } update: { _ in
                let inner = try await runner.run {
                    .output($0)
                } update: { _ in
                    .updatedDependency(1)
                }
                return .updatedDependency(inner)
            }
        }

        guard case .wouldDeadlock? = error else { return #expect(Bool(false), "\(error)") }
        await runner.expectAtRest()
    }

    @Test func `MX-19 a cycle through the update closure of a caller is an error`() async throws {
        let later = Later<DependentRunner<Int>>()
        let inner = DependentRunner<Int>()
        let runner = DependentRunner<Int> { _ in
            let value = try await inner.run {
                .output($0)
            } update: { _ in
                .updatedDependency(try await later().run { .output($0) })
            }
            return .updatedDependency(value)
        }
        later.set(runner)

        let error = await #expect(throws: RunnerError.self) { try await runner.run { .output($0) } }
        guard case .wouldDeadlock? = error else { return #expect(Bool(false), "\(error)") }
        await runner.expectAtRest()
        await inner.expectAtRest()
    }

    @Test func `MX-19 a fetch may request keys that do not wait for the fetch`() async throws {
        let world = World()
        let later = Later<MultiplexerMap<Int, Int>>()
        let fibonacci = MultiplexerMap<Int, Int>(repository: world.repository) { index in
            guard index > 1 else { return index }
            async let one = later().request(key: index - 1)
            async let other = later().request(key: index - 2)
            return try await one + other
        }
        later.set(fibonacci)

        #expect(try await fibonacci.request(key: 30) == 832_040)
        #expect(fibonacci.statistics.fetches == 31)
        await fibonacci.expectAtRest()
    }

    @Test func `MX-19 a finished wait is not part of a cycle`() async throws {
        let world = World()
        let isReversed = Locked(false)
        let (laterOne, laterOther) = (Later<Multiplexer<Int>>(), Later<Multiplexer<Int>>())
        let one = Multiplexer<Int>(repository: world.repository) {
            guard !isReversed.withLock({ $0 }) else { return 1 }
            return try await laterOther().request()
        }
        let other = Multiplexer<Int>(repository: world.repository) {
            guard isReversed.withLock({ $0 }) else { return 2 }
            return try await laterOne().request()
        }
        laterOne.set(one)
        laterOther.set(other)
        #expect(try await one.request() == 2)

        isReversed.withLock { $0 = true }
        one.refresh()
        other.refresh()

        #expect(try await other.request() == 1)
    }

    #if os(macOS) || os(Linux)
    @Test(.ownThreads) func `MX-14 a value may call its multiplexer during deallocation`() async {
        final class Curious: Sendable {
            let later: Later<Multiplexer<Curious>>
            let asked: Locked<Int>
            init(_ later: Later<Multiplexer<Curious>>, _ asked: Locked<Int>) {
                self.later = later
                self.asked = asked
            }
            deinit { if (try? self.later().statistics) != nil { _ = self.asked.next() } }
        }
        // A recursive lock ends the process.
        await #expect(processExitsWith: .success) {
            let executor = OrderedExecutor()
            let world = World(spawn: TaskLauncher(executor: executor))
            let later = Later<Multiplexer<Curious>>()
            let asked = Locked(0)
            let value = Multiplexer<Curious>(repository: world.repository) { Curious(later, asked) }.register()
            later.set(value)
            _ = try await value.request()
            executor.settle()

            value.store(Curious(later, asked))
            _ = try await value.refresh().request()
            executor.settle()
            await value.clear()
            _ = try await value.request()
            executor.settle()
            await world.repository.clearAll()

            #expect(asked.withLock { $0 } == 4, "each of the four has gone")
        }
    }
    #endif
}
