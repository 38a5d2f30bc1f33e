import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// The samples of the article "Retrying", adapted to run as tests.
@Suite(.standard)
struct RetryArticleTests {
    private struct Busy: Error {}
    private struct Page: Sendable, Equatable, Codable {}

    private let calls = Locked(0)

    /// Fails the first `failures` calls.
    private func fetchPage(failures: Int = 0) async throws -> Page {
        guard self.calls.next() > failures else { throw Busy() }
        return Page()
    }

    @Test func `E09 the samples of the article run as described`() async throws {
        let page = try await retry(.web) { attempt in try await fetchPage() }
        #expect(page == Page())

        let policy = RetryPolicy.exponential(base: .milliseconds(500), maxAttempts: 4, jitter: .full)
        #expect(policy.delay(beforeAttempt: 3) == .seconds(2))

        let button = RetrySignal()
        let host: RetryPolicy.Host = "api.example.com"
        let other = try await retry(
            .exponential(base: .milliseconds(500), maxAttempts: 4, jitter: .full),
            wakingOn: .reachable(host, monitor: InjectedNetwork().monitor),
            .signal(button)
        ) { attempt in try await fetchPage() }
        #expect(other == Page())
        #expect(button.retryNow() == 0)

        let third = try await retry(.web, on: RetryPolicy.Host("api.example.com", budget: RetryBudget())) { _ in
            try await fetchPage()
        }
        #expect(third == Page())
    }

    @Test func `E14 the sample of a classifier retries the classified error`() async throws {
        let page = try await retry(.once, providers: [.when { $0 is Busy }]) { _ in try await fetchPage(failures: 1) }

        #expect(page == Page())
        #expect(self.calls.withLock { $0 } == 2)
    }

    @Test func `E01 the sample of the final error contains the failure of each attempt`() async {
        do {
            _ = try await retry(.once) { _ in try await fetchPage(failures: 9) }
            Issue.record("no error")
        } catch let error as RetryError {
            #expect(error.lastError is Busy)
            #expect(error.attempts.count == 2)
        } catch {
            Issue.record("\(error)")
        }
    }

    @Test func `E09 the sample of a multiplexer retries`() async throws {
        let world = World()
        let profile = Multiplexer<Page>(policy: .init(retry: .once), repository: world.repository) {
            try await self.fetchPage(failures: 1)
        }

        #expect(try await profile.request() == Page())
        #expect(self.calls.withLock { $0 } == 2)
    }

    @Test func `F01 the sample of an operation begins and ends`() async throws {
        @Sendable func fetch(_ completion: @escaping @Sendable (Result<Data, any Error>) -> Void) {
            DispatchQueue.global().async { completion(.success(Data([7]))) }
        }
        let download = RetryingOperation<Data>(.web) { run in
            fetch { result in
                switch result {
                case .success(let data): run.end(returning: data)
                case .failure(let error): run.end(throwing: error)
                }
            }
        }

        await OperationWorld().run(download)

        #expect(try download.result?.get() == Data([7]))
    }
}
