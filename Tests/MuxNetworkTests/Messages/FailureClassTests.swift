import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import Testing

/// The consequences of each class of failure.
@Suite(.standard)
struct FailureClassTests {
    private struct Cause: Error {}

    /// A failure, whether it is a connectivity failure, and whether another attempt may succeed.
    private static let classes: [(HTTPError.TransportFailure, isConnectivity: Bool, isTransient: Bool)] = [
        (.notResolved(Cause()), true, true), (.notConnected(Cause()), true, true),
        (.insecureConnection(Cause()), false, false), (.closedWithoutResponse(Cause()), true, true),
        (.truncated(expected: nil, received: 1), true, true), (.truncated(expected: 2, received: 1), true, true),
        (.timedOut(after: .seconds(1)), true, true), (.deadlineExceeded(after: .seconds(1)), true, true),
        (.bodyTooLarge(limit: 1), false, false), (.headTooLarge(limit: 1), false, false), (.notHTTP, false, false),
        (.damagedContent(coding: "gzip"), false, false), (.redirectRefused(.insecure), false, false),
    ]

    @Test func `TR-05 classes of failure are distinct`() {
        for (failure, isConnectivity, isTransient) in Self.classes {
            let error = HTTPError.transport(failure)
            #expect(SilenceableError.isSilenceable(error) == isConnectivity, "\(error)")
            #expect(RetryAdvice.of(error).isTransient == isTransient, "\(error)")
        }
        let sentences = Self.classes.map(\.0.description)
        #expect(Set(sentences).count == sentences.count)
        #expect(sentences.allSatisfy { $0.hasSuffix(".") })
    }

    @Test(arguments: ["GET", "POST"])
    func `TR-05 only an idempotent request is retried after a closed connection`(method: String) async throws {
        let transport = FailingOnce(.closedWithoutResponse(Cause()))
        var configuration = HTTPClient.Configuration()
        configuration.retry = .immediate()
        let client = HTTPClient(configuration: configuration, transport: transport)

        let result = try? await client.response(to: Ask { $0.method = HTTPMethod(rawValue: method) ?? .get })

        #expect((result?.status == 200) == (method == "GET"))
        #expect(transport.count == (method == "GET" ? 2 : 1))
    }

    private static let laterFailures: [HTTPError] = [
        .transport(.notConnected(Cause())), .transport(.insecureConnection(Cause())),
        .transport(.serverBusy(retryAfter: .seconds(7))), .authentication(URLError(.notConnectedToInternet)),
    ]

    @Test(arguments: [("POST", 303, true), ("POST", 307, false), ("GET", 302, false)], Self.laterFailures)
    func `TR-05 a request counts as sent if the request after a change of its method to GET fails`(
        request: (method: String, status: Int, isProcessed: Bool),
        failure: HTTPError
    ) async throws {
        let transport = ExchangeTransport { call, sink in
            guard call.url.path() != "/next" else { throw failure }
            try await sink.receive(head: HTTPReply(status: request.status, headers: ["Location": "/next"]))
            return [:]
        }
        let url = try #require(URL(string: "https://host/first"))

        let error = await #expect(throws: HTTPError.self) {
            try await transport.exchange(HTTPCall(method: request.method, url: url))
        }

        #expect(error?.isUnsent == !request.isProcessed)
        #expect(error.map { RetryAdvice.of($0) } == RetryAdvice.of(failure))
        #expect(error.map { SilenceableError.isSilenceable($0) } == SilenceableError.isSilenceable(failure))
    }

    @Test(arguments: [(303, true), (307, false)])
    func `TR-05 a status after a change of the method to GET is of a later request, and obeys the retry policy`(
        status: Int,
        isLater: Bool
    ) async throws {
        let transport = ExchangeTransport { call, sink in
            let isFirst = call.url.path() != "/next"
            let headers: HTTPHeaders = isFirst ? ["Location": "/next"] : [:]
            try await sink.receive(head: HTTPReply(status: isFirst ? status : 503, headers: headers))
            return [:]
        }
        let client = HTTPClient(transport: transport)

        let error = await #expect(throws: HTTPError.self) { try await client.execute(Ask { $0.method = .post }) }

        let advice = try #require(error).retryAdvice
        #expect(advice.status == 503 && advice.isTransient && advice.isOfLaterRequest == isLater)
        #expect(!RetryPolicy(repeatsUnsafeWork: true, refusedStatuses: [503]).permits(advice))
    }

    /// A transport whose first call fails.
    private final class FailingOnce: HTTPTransport {
        private let failure: HTTPError.TransportFailure
        private let calls = Locked(0)

        init(_ failure: HTTPError.TransportFailure) { self.failure = failure }

        var count: Int { self.calls.withLock { $0 } }

        func send(_ call: HTTPCall) async throws -> HTTPReply {
            let number = self.calls.withLock { calls -> Int in
                calls += 1
                return calls
            }
            guard number > 1 else { throw HTTPError.transport(self.failure) }
            return HTTPReply(status: 200)
        }
    }
}
