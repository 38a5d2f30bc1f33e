import Foundation
import MuxKit

// The article about retrying.

func retrying() async throws {
    let page = try await retry(.web) { attempt in try await fetchPage() }
    let policy = RetryPolicy.exponential(base: .milliseconds(500), maxAttempts: 4, jitter: .full)
    _ = (page, policy)
}

enum PlayerError: RetryableError {
    case stalled, noSuchTrack
    case busy(Duration)

    var retryAdvice: RetryAdvice {
        switch self {
        case .stalled: .transient
        case .noSuchTrack: .permanent
        case .busy(let pause): RetryAdvice(isTransient: true, retryAfter: pause)
        }
    }
}

func retryingWithAClassifier() async throws {
    let page = try await retry(.web, providers: [.when { $0 is Busy }]) { _ in try await fetchPage() }
    _ = page
}

func retryingInVain() async throws {
    do {
        show(try await retry(.web) { _ in try await fetchPage() })
    } catch let error as RetryError {
        show(error.lastError, after: error.attempts.count)
    }
}

func wakingEarly(_ host: RetryPolicy.Host) async throws {
    let button = RetrySignal()
    let page = try await retry(.web, wakingOn: .reachable(host), .signal(button)) { _ in try await fetchPage() }
    // elsewhere
    button.retryNow()
    _ = page
}

func retryingOnAHost() async throws {
    let page = try await retry(.web, on: "api.example.com") { _ in try await fetchPage() }
    _ = page
}

func retryingInAMultiplexer() {
    let profile = Multiplexer<Profile>(cacheKey: "Profile", policy: .init(retry: .web)) { try await api.profile() }
    _ = profile
}

func retryingAnOperation(_ queue: OperationQueue) {
    let download = RetryingOperation<Data>(.web) { run in
        fetch { result in
            switch result {
            case .success(let data): run.end(returning: data)
            case .failure(let error): run.end(throwing: error)
            }
        }
    }
    queue.addOperation(download)
}
