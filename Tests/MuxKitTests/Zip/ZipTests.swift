import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct ZipTests {
    @Test func `MX-29 operations of different types run in parallel and keep the order of the arguments`() async throws
    {
        let first = Gate<Int>()
        let second = Gate<String>()
        let third = Gate<[Double]>()
        let all = Task {
            try await zip({ try await first.pass() }, { try await second.pass() }, { try await third.pass() })
        }
        // All operations have begun before an operation ends, and the last operation ends first.
        await first.waitForCall(1)
        await second.waitForCall(1)
        await third.waitForCall(1)
        third.open(returning: [0.5])
        second.open(returning: "two")
        first.open(returning: 1)
        let (number, text, numbers) = try await all.value
        #expect(number == 1)
        #expect(text == "two")
        #expect(numbers == [0.5])
    }

    @Test func `MX-29 the first error cancels the other operations`() async throws {
        let gate = Gate<Int>()
        let failing = Gate<String>()
        let all = Task { try await zip({ try await gate.pass() }, { try await failing.pass() }) }
        await gate.waitForCall(1)
        failing.fail(with: FetchFailed())
        await #expect(throws: FetchFailed.self) { _ = try await all.value }
        #expect(gate.heldCount == 0, "it was cancelled")
    }

    @Test func `MX-29 an array of operations keeps its concurrency limit and returns results in order`() async throws {
        let running = Locked((now: 0, most: 0))
        let work: [@Sendable () async throws -> Int] = (0..<50).map { index in
            {
                running.withLock { $0 = ($0.now + 1, max($0.most, $0.now + 1)) }
                await Task.yield()
                running.withLock { $0.now -= 1 }
                return index
            }
        }
        #expect(try await Zip(work, atOnce: 4).run() == Array(0..<50))
        #expect(running.withLock { $0.most } <= 4)
        #expect(try await Zip(work).run() == Array(0..<50))
        #expect(try await Zip<Int>([]).run() == [])
        #expect(try await Zip(work, atOnce: -3).run() == Array(0..<50))
    }

    @Test func `MX-29 after an error no other operation of an array begins`() async throws {
        let begun = Locked(0)
        let work: [@Sendable () async throws -> Int] = (0..<10).map { index in
            {
                begun.withLock { $0 += 1 }
                if index == 2 { throw FetchFailed(call: index) }
                return index
            }
        }
        await #expect(throws: FetchFailed(call: 2)) { try await Zip(work, atOnce: 1).run() }
        #expect(begun.withLock { $0 } == 3)
    }

    @Test func `CO-36 an operation runs for each of several items and keeps the concurrency limit`() async throws {
        let running = Locked((now: 0, most: 0))
        let doubled = try await Zip(0..<50, atOnce: 4) { item in
            running.withLock { $0 = ($0.now + 1, max($0.most, $0.now + 1)) }
            await Task.yield()
            running.withLock { $0.now -= 1 }
            return 2 * item
        }.run()
        #expect(doubled == (0..<50).map { 2 * $0 })
        #expect(running.withLock { $0.most } <= 4)
        #expect(try await Zip([Int]()) { $0 }.run() == [])
    }

    @Test func `CO-36 closures of every isolation and effect run`() async throws {
        let concurrent: [@Sendable @concurrent () async throws -> Int] = [{ 1 }, { 2 }]
        let callers: [nonisolated(nonsending) @Sendable () async throws -> Int] = [{ 1 }, { 2 }]
        let quiet: [@Sendable () async -> Int] = [{ 1 }, { 2 }]
        let synchronous: [@Sendable () throws -> Int] = [{ 1 }, { 2 }]
        let main: [@MainActor @Sendable () async throws -> Int] = [{ 1 }, { 2 }]

        #expect(try await Zip(concurrent).run() == [1, 2])
        #expect(try await Zip(callers).run() == [1, 2])
        #expect(try await Zip(quiet) { await $0() }.run() == [1, 2])
        #expect(try await Zip(synchronous) { try $0() }.run() == [1, 2])
        #expect(try await Zip(main) { try await $0() }.run() == [1, 2])
        #expect(try await Zip([1, 2, 3].map { id in { @Sendable in id } }, atOnce: 2).run() == [1, 2, 3])
    }
}
