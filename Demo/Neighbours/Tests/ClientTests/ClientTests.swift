import Alamofire
import Apollo
import ApolloAPI
import Foundation
import Get
import Moya
import MuxKit
import MuxTesting
import Synchronization
import Testing

@testable import MuxClients

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// The errors of client libraries, made by stand-ins with their names.
@Suite(.timeLimit(.minutes(1)))
struct ClientTests {
    enum Library: String, CaseIterable { case alamofire, moya, get, apollo }

    private enum Failure {
        case offline, cancelled, decoding
        case status(Int)
    }

    private static let decoding = DecodingError.dataCorrupted(.init(codingPath: [], debugDescription: ""))

    /// The error of a library.
    private static func error(_ failure: Failure, of library: Library) throws -> any Error {
        let cause: any Error =
            switch failure {
            case .offline: URLError(.notConnectedToInternet)
            case .cancelled: URLError(.cancelled)
            case .decoding: Self.decoding
            case .status: URLError(.badServerResponse)
            }
        let alamofire: AFError =
            switch failure {
            case .offline: .sessionTaskFailed(error: cause)
            case .cancelled: .explicitlyCancelled
            case .decoding: .responseSerializationFailed(reason: .decodingFailed(error: cause))
            case .status(let code): .responseValidationFailed(reason: .unacceptableStatusCode(code: code))
            }
        switch (library, failure) {
        case (.alamofire, _): return alamofire
        case (.moya, .status(let code)): return MoyaError.statusCode(Response(statusCode: code, data: Data()))
        case (.moya, .decoding): return MoyaError.objectMapping(cause, Response(statusCode: 200, data: Data()))
        case (.moya, _): return MoyaError.underlying(alamofire, nil)
        case (.get, .status(let code)): return APIError.unacceptableStatusCode(code)
        case (.get, _): return cause
        case (.apollo, .status(let code)):
            let url = try #require(URL(string: "https://a.example/"))
            let response = HTTPURLResponse(url: url, statusCode: code, httpVersion: nil, headerFields: nil)
            return ResponseCodeInterceptor.ResponseCodeError.invalidResponseCode(response: response, rawData: nil)
        case (.apollo, .decoding): return cause
        case (.apollo, _):
            return URLSessionClient.URLSessionClientError.networkError(data: Data(), response: nil, underlying: cause)
        }
    }

    @Test(arguments: Library.allCases)
    func `NB-05 without a connection a stale value is served, and another error is thrown`(library: Library)
        async throws
    {
        let clock = VirtualClock()
        let failure = Mutex<(any Error)?>(nil)
        let profile = Multiplexer<String>(
            policy: MuxPolicy(timeToLive: .seconds(60)),
            repository: MuxRepository(store: MemoryStore(), clock: clock)
        ) {
            if let error = failure.withLock({ $0 }) { throw error }
            return "Ada"
        }
        #expect(try await profile.request() == "Ada")
        clock.advance(by: .seconds(90))

        for refused in [Failure.decoding, .status(404), .status(503)] {
            let error = try Self.error(refused, of: library)
            failure.withLock { $0 = error }
            await #expect(throws: (any Error).self, "\(refused)") { try await profile.request() }
        }
        let offline = try Self.error(.offline, of: library)
        failure.withLock { $0 = offline }
        let entry = try await profile.requestEntry()
        #expect(entry.value == "Ada" && entry.isStale)
    }

    @Test(arguments: Library.allCases)
    func `NB-05 a lost connection and a 503 are retried, other failures are not`(library: Library) async throws {
        let cases: [(Failure, Int)] = [
            (.offline, 3), (.status(503), 3), (.status(404), 1), (.decoding, 1), (.cancelled, 1),
        ]
        for (failure, attempts) in cases {
            let error = try Self.error(failure, of: library)
            let count = Atomic(0)
            await #expect(throws: (any Error).self) {
                try await retry(.immediate(maxAttempts: 3)) {
                    count.add(1, ordering: .relaxed)
                    throw error
                }
            }
            #expect(count.load(ordering: .relaxed) == attempts, "\(failure)")
        }
    }

    @Test(arguments: Library.allCases)
    func `NB-05 a 401 renews the token of a runner`(library: Library) async throws {
        let runner = DependentRunner<String>("old") { "new" }
        let refusal = try Self.error(.status(401), of: library)
        let token = try await runner.run { token in
            if token == "old" { throw refusal }
            return .output(token)
        }
        #expect(token == "new")
    }

    @Test func `NB-05 a failure without a cause is not retried`() async {
        let count = Atomic(0)
        await #expect(throws: (any Error).self) {
            try await retry(.immediate(maxAttempts: 3)) {
                count.add(1, ordering: .relaxed)
                throw AFError.invalidURL
            }
        }
        #expect(count.load(ordering: .relaxed) == 1)
    }

    // MARK: - Calls with completion handlers

    @Test func `NB-05 a call of Moya returns the value, throws, and is cancelled with its task`() async throws {
        let provider = ScriptedProvider()
        provider.result = .success(Response(statusCode: 200, data: Data("\"Ada\"".utf8)))
        #expect(try await provider.value(of: API.profile) == "Ada")
        provider.result = .success(Response(statusCode: 404, data: Data()))
        await #expect(throws: MoyaError.self) { try await provider.value(of: API.profile, as: String.self) }
        provider.result = .success(Response(statusCode: 200, data: Data("x".utf8)))
        await #expect(throws: MoyaError.self) { try await provider.value(of: API.profile, as: String.self) }

        provider.result = nil
        nonisolated(unsafe) let waiting = provider
        let (starts, start) = AsyncStream<Void>.makeStream()
        provider.started = { start.yield() }
        let task = Task { try await waiting.value(of: API.profile, as: String.self) }
        for await _ in starts { break }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
        #expect(provider.call.isCancelled)
        await #expect(throws: CancellationError.self) {
            try await Task {
                withUnsafeCurrentTask { $0?.cancel() }
                return try await waiting.value(of: API.profile, as: String.self)
            }.value
        }
    }

    @Test func `NB-05 a query of Apollo returns the data, and throws the errors of the server`() async throws {
        let client = ScriptedApollo()
        client.result = .success(GraphQLResult(data: "Ada", errors: nil))
        #expect(try await client.value(of: ProfileQuery()) { $0 } == "Ada")
        client.result = .success(GraphQLResult(data: nil, errors: [GraphQLError(message: "no")]))
        let error = await #expect(throws: GraphQLErrors.self) { try await client.value(of: ProfileQuery()) { $0 } }
        #expect(error?.messages == ["no"])
        client.result = .success(GraphQLResult(data: "Ada", errors: [GraphQLError(message: "partial")]))
        await #expect(throws: GraphQLErrors.self) { try await client.value(of: ProfileQuery()) { $0 } }
        client.result = .failure(URLSessionClient.URLSessionClientError.sessionInvalidated)
        await #expect(throws: URLSessionClient.URLSessionClientError.self) {
            try await client.value(of: ProfileQuery()) { $0 }
        }
    }
}

private enum API: TargetType {
    case profile

    var path: String { "/profile" }
}

private final class RunningRequest: Moya.Cancellable, Apollo.Cancellable {
    private let cancelled = Atomic(false)

    var isCancelled: Bool { self.cancelled.load(ordering: .relaxed) }

    func cancel() { self.cancelled.store(true, ordering: .relaxed) }
}

/// Responds with a result, or never.
private final class ScriptedProvider: MoyaProvider<API> {
    var result: Result<Response, MoyaError>?
    var started: () -> Void = {}
    let call = RunningRequest()

    override func request(
        _ target: API,
        callbackQueue: DispatchQueue?,
        progress: ((Double) -> Void)?,
        completion: @escaping (Result<Response, MoyaError>) -> Void
    ) -> any Moya.Cancellable {
        if let result = self.result { completion(result) }
        self.started()
        return self.call
    }
}

private struct ProfileQuery: GraphQLQuery { typealias Data = String }

private final class ScriptedApollo: ApolloClient {
    var result: Result<GraphQLResult<String>, any Error>?

    override func fetch<Query: GraphQLQuery>(
        query: Query,
        cachePolicy: CachePolicy,
        contextIdentifier: UUID?,
        queue: DispatchQueue,
        resultHandler: ((Result<GraphQLResult<Query.Data>, any Error>) -> Void)?
    ) -> any Apollo.Cancellable {
        if let result = self.result?.map({ GraphQLResult(data: $0.data as? Query.Data, errors: $0.errors) }) {
            resultHandler?(result)
        }
        return RunningRequest()
    }
}
