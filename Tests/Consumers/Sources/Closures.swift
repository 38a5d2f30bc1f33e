import MuxKit
import MuxTesting
import Testing

// Functions that are generic over a closure, called with closures of every origin: code that compiles must
// also run.

final class Notebook {
    var lines: [String] = []
}

@available(*, unavailable)
extension Notebook: Sendable {}

@Suite(.standard(endsAtRest: false))
struct ClosureTests {
    @Test func `CO-36 an array of closures runs`() async throws {
        let work: [@Sendable () async throws -> Int] = [{ 1 }, { 2 }, { try await Backend.a() }]
        #expect(try await Zip(work).run() == [1, 2, 1])
        #expect(try await Zip(work, atOnce: 1).run() == [1, 2, 1])
        #expect(try await Zip(1...3) { number in number }.run() == [1, 2, 3])
        #expect(try await Zip([Backend.a, Backend.a]).run() == [1, 1])
    }

    @Test func `CO-36 a closure in a constant runs in each function that accepts a closure`() async throws {
        let number: @Sendable () async throws -> Int = { 1 }
        let text: @Sendable () async throws -> String = { "b" }
        let pair = try await zip(number, text)
        #expect(pair == (1, "b"))
        let both = try await zip(repeating: number, text)
        #expect(both == (1, "b"))

        let attempt: @Sendable (RetryPolicy.Attempt) async throws -> Int = { $0.index }
        #expect(try await retry(.immediate(maxAttempts: 2), operation: attempt) == 0)
        #expect(try await retry(trying: [1, 2]) { $0 } == 1)

        let update: @Sendable (Int?) async throws -> UpdateResult<Int> = { .updatedDependency(($0 ?? 0) + 1) }
        let use: @Sendable (Int) async throws -> RunResult<Int> = { .output($0) }
        #expect(try await DependentRunner(update: update).run(use) == 1)
        #expect(try await DependentRunner<Int>().run(use, update: update) == 1)
        #expect(try await Task.inject(dependency: DependentRunner<Int>(), use, refresh: update) == 1)

        let body: @Sendable (SeededExecutor) async throws -> Void = { _ in }
        #expect(try await SeededExecutor.explore(2, body) == 2)
    }

    @Test func `CO-36 closures that are called in place may use objects that are not Sendable`() async throws {
        let notebook = Notebook()
        _ = try await retry(.immediate(maxAttempts: 1)) { _ in notebook.lines.append("retry") }
        let runner = DependentRunner<Int>()
        _ = try await runner.run { number in
            notebook.lines.append("run")
            return .output(number)
        } update: { _ in
            notebook.lines.append("update")
            return .updatedDependency(1)
        }
        #expect(notebook.lines == ["retry", "update", "run"])
    }
}
