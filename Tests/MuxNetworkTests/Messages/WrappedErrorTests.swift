import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Errors inside the errors of a client library.
@Suite(.standard)
struct WrappedErrorTests {
    private struct Wrapper: WrappingError {
        let wrappedError: (any Error)?
    }

    /// An error that wraps itself.
    private final class Cycle: WrappingError {
        var wrappedError: (any Error)? { self }
    }

    private struct Known: Sendable {
        let name: String
        let error: any Error
        var isSilenceable = false
        var advice = RetryAdvice.permanent
        var isCancellation = false
        /// Whether a download with this error of its transport resumes.
        var resumes = false
    }

    private static let known: [Known] = [
        Known(
            name: "offline",
            error: URLError(.notConnectedToInternet),
            isSilenceable: true,
            advice: .transient,
            resumes: true
        ),
        Known(name: "URL time-out", error: URLError(.timedOut), isSilenceable: true, advice: .transient, resumes: true),
        Known(name: "URL cancelled", error: URLError(.cancelled), isCancellation: true),
        Known(name: "bad URL", error: URLError(.badURL)),
        Known(
            name: "reset",
            error: POSIXError(.ECONNRESET),
            isSilenceable: true,
            advice: .transient,
            resumes: true
        ),
        Known(name: "no file", error: POSIXError(.ENOENT), advice: .transient, resumes: true),
        Known(name: "cancelled", error: CancellationError(), isCancellation: true),
        Known(
            name: "not decodable",
            error: DecodingError.dataCorrupted(.init(codingPath: [], debugDescription: "not JSON"))
        ),
        Known(
            name: "not encodable",
            error: EncodingError.invalidValue(1, .init(codingPath: [], debugDescription: "not a value"))
        ),
        Known(
            name: "silenceable",
            error: SilenceableError(URLError(.badURL)),
            isSilenceable: true,
            advice: .transient,
            resumes: true
        ),
        Known(name: "refused", error: BadDependency()),
        Known(
            name: "busy",
            error: HTTPError.transport(.serverBusy(retryAfter: .seconds(7))),
            isSilenceable: true,
            advice: RetryAdvice(isTransient: true, retryAfter: .seconds(7)),
            resumes: true
        ),
    ]

    private static func wrapped(_ error: any Error, times: Int, bySystem: Bool) -> any Error {
        var error = error
        for _ in 0..<times {
            error =
                bySystem
                ? NSError(domain: "API", code: 1, userInfo: [NSUnderlyingErrorKey: error])
                : Wrapper(wrappedError: error)
        }
        return error
    }

    @Test(arguments: [0, 1, 2, 8], [false, true])
    func `CS-06 an error is recognised however often it is wrapped`(times: Int, bySystem: Bool) {
        for known in Self.known {
            let error = Self.wrapped(known.error, times: times, bySystem: bySystem)
            #expect(SilenceableError.isSilenceable(error) == known.isSilenceable, "\(known.name)")
            #expect(RetryAdvice.of(error) == known.advice, "\(known.name)")
            #expect(RetryAdvice.retryAfter(of: error) == known.advice.retryAfter, "\(known.name)")
            #expect(error.isCancellation == known.isCancellation, "\(known.name)")
            let failure = HTTPError.TransportFailure.unreachable(error)
            #expect(failure.isConnectivityFailure == known.resumes, "\(known.name)")
            #expect(MuxEvent.Reason.known(of: error) == MuxEvent.Reason.known(of: known.error), "\(known.name)")
        }
    }

    @Test(arguments: [false, true])
    func `CS-06 the outermost error with a decision decides, and eight wrappers are the most`(bySystem: Bool) {
        struct Refused: ConnectivityError, WrappingError {
            var wrappedError: (any Error)?
            var isConnectivityFailure: Bool { false }
        }
        struct Final: RetryableError, WrappingError {
            var wrappedError: (any Error)?
            var retryAdvice: RetryAdvice { .permanent }
        }
        let offline = URLError(.notConnectedToInternet)
        let decoding = DecodingError.dataCorrupted(
            .init(codingPath: [], debugDescription: "", underlyingError: CancellationError())
        )
        for outer in [Refused(wrappedError: CancellationError()), Refused(wrappedError: offline), decoding]
            as [any Error]
        {
            let error = Self.wrapped(outer, times: 1, bySystem: bySystem)
            #expect(!SilenceableError.isSilenceable(error) && !error.isCancellation, "\(outer)")
            #expect(RetryAdvice.of(error) == .permanent, "\(outer)")
            #expect(!HTTPError.TransportFailure.unreachable(error).isConnectivityFailure, "\(outer)")
            #expect(MuxEvent.Reason.known(of: error) != .connection, "\(outer)")
        }
        // An error with only retry advice does not show whether the server was reached.
        let final = Self.wrapped(Final(wrappedError: offline), times: 1, bySystem: bySystem)
        #expect(RetryAdvice.of(final) == .permanent && SilenceableError.isSilenceable(final))
        #expect(!HTTPError.TransportFailure.unreachable(final).isConnectivityFailure)

        let tooDeep = Self.wrapped(offline, times: 9, bySystem: bySystem)
        #expect(!SilenceableError.isSilenceable(tooDeep) && MuxEvent.Reason.known(of: tooDeep) == nil)
        #expect(!Self.wrapped(CancellationError(), times: 9, bySystem: bySystem).isCancellation)
        #expect(!SilenceableError.isSilenceable(Cycle()) && !Cycle().isCancellation)
        #expect(RetryAdvice.of(Cycle()) == .transient)
        #expect(RetryAdvice.of(Wrapper(wrappedError: nil)) == .transient)
    }

    @Test func `CS-06 wrappers of an app and of the system can be mixed, and all preserve Retry-After`() {
        let busy = HTTPError.transport(.serverBusy(retryAfter: .seconds(7)))
        var error: any Error = SilenceableError(busy)
        for number in 0..<6 { error = Self.wrapped(error, times: 1, bySystem: number % 2 == 0) }
        #expect(SilenceableError.isSilenceable(error))
        #expect(RetryAdvice.retryAfter(of: error) == .seconds(7))
    }

    @Test func `CS-06 a wrapped refusal renews the dependency`() async throws {
        let runner = DependentRunner(1) { _ in .updatedDependency(2) }
        let output = try await runner.run { (token: Int) -> RunResult<Int> in
            if token == 1 { throw Wrapper(wrappedError: BadDependency()) }
            return .output(token)
        }
        #expect(output == 2)
    }

    @Test func `CS-06 a retry ends with a wrapped cancellation`() async {
        await #expect(throws: CancellationError.self) {
            try await retry(.immediate(maxAttempts: 3)) { throw Wrapper(wrappedError: CancellationError()) }
        }
    }

    @Test func `CS-06 a stale value replaces a wrapped connectivity failure`() async throws {
        let clock = VirtualClock()
        let isOffline = Locked(false)
        let policy = MuxPolicy(timeToLive: .seconds(60))
        let name = Multiplexer(policy: policy, repository: MuxRepository(store: MemoryStore(), clock: clock)) {
            if isOffline.withLock({ $0 }) { throw Wrapper(wrappedError: URLError(.notConnectedToInternet)) }
            return "Ada"
        }
        #expect(try await name.request() == "Ada")
        isOffline.withLock { $0 = true }
        clock.advance(by: .seconds(90))

        let entry = try await name.requestEntry()

        #expect(entry.value == "Ada" && entry.isStale)
    }

    @Test func `CS-06 a wrapped decoding error is not retried, and a wrapped time-out is retried`() async throws {
        for (error, attempts) in [
            (DecodingError.dataCorrupted(.init(codingPath: [], debugDescription: "")) as any Error, 1),
            (URLError(.timedOut), 3),
        ] {
            let count = Locked(0)
            await #expect(throws: RetryError.self) {
                try await retry(.immediate(maxAttempts: 3)) {
                    count.withLock { $0 += 1 }
                    throw Wrapper(wrappedError: error)
                }
            }
            #expect(count.withLock { $0 } == attempts)
        }
    }
}
