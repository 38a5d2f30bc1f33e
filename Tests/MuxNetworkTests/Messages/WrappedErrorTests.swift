import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Errors inside the errors of a client library.
@Suite(.timeLimit(.minutes(15)), .takesTurns, .endsAtRest)
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

    private struct NotEncodable: Encodable {
        func encode(to encoder: any Encoder) throws {
            let context = EncodingError.Context(codingPath: [], debugDescription: "")
            throw EncodingError.invalidValue(self, context)
        }
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
    func `CS-06 the outermost error with an answer decides, and eight wrappers are the most`(bySystem: Bool) {
        let offline = URLError(.notConnectedToInternet)
        #expect(!SilenceableError.isSilenceable(Self.wrapped(offline, times: 9, bySystem: bySystem)))
        let decoding = DecodingError.dataCorrupted(
            .init(codingPath: [], debugDescription: "", underlyingError: offline)
        )
        #expect(!SilenceableError.isSilenceable(Self.wrapped(decoding, times: 1, bySystem: bySystem)))
        #expect(!SilenceableError.isSilenceable(Cycle()) && !Cycle().isCancellation)
        #expect(RetryAdvice.of(Cycle()) == .transient)
        #expect(RetryAdvice.of(Wrapper(wrappedError: nil)) == .transient)
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

    @Test func `CS-06 a wrapped error of decoding is tried once, and a wrapped time-out again`() async throws {
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
