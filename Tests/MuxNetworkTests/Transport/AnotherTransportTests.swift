import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Transports that do not use the errors of this package.
@Suite(.standard)
struct AnotherTransportTests {
    /// An error that does not conform to ``ConnectivityError``.
    private struct SocketClosed: Error {}

    /// An error that is a connectivity failure by conformance.
    private struct ConnectionLost: ConnectivityError {}

    /// An error that conforms and is no connectivity failure.
    private struct UntrustedServer: ConnectivityError {
        var isConnectivityFailure: Bool { false }
    }

    private static let passing: [any Error & Sendable] = [
        SocketClosed(), ConnectionLost(), POSIXError(.ECONNREFUSED),
        HTTPError.TransportFailure.timedOut(after: .seconds(1)),
        HTTPError.TransportFailure.unreachable(SocketClosed()), HTTPError.transport(.unreachable(SocketClosed())),
    ]

    private static let lasting: [any Error & Sendable] = [
        UntrustedServer(), NSError(domain: "NSURLErrorDomain", code: -1202),
        HTTPError.transport(.unreachable(UntrustedServer())), BadDependency(), HTTPError.TransportFailure.notHTTP,
    ]

    /// A policy by which a value of two seconds is stale, and usable after an error.
    private static let policy = MuxPolicy(timeToLive: .seconds(1), staleIfError: .seconds(60), errorBackoff: .zero)

    private func client(_ transport: any HTTPTransport) -> HTTPClient {
        var configuration = HTTPClient.Configuration()
        configuration.retry = .immediate(maxAttempts: 3)
        configuration.retryBudget = RetryBudget()
        return HTTPClient(configuration: configuration, transport: transport)
    }

    @Test(arguments: Self.passing.indices)
    func `CO-47 a connectivity failure of another transport is retried`(index: Int) async throws {
        let transport = ScriptedTransport([.failure(Self.passing[index])], thereafter: HTTPReply(status: 200))

        _ = try await self.client(transport).execute(Ask())

        #expect(transport.calls.count == 2, "\(Self.passing[index])")
    }

    @Test(arguments: Self.lasting.indices)
    func `CO-47 a permanent error of another transport is not retried`(index: Int) async throws {
        let transport = ScriptedTransport([.failure(Self.lasting[index])], thereafter: HTTPReply(status: 200))

        let error = await #expect(throws: HTTPError.self) { try await self.client(transport).execute(Ask()) }

        #expect(transport.calls.count == 1 && error?.isConnectivityFailure == false, "\(Self.lasting[index])")
    }

    @Test func `CO-47 a POST whose connection another transport lost is not sent again`() async {
        let transport = ScriptedTransport([.failure(ConnectionLost())], thereafter: HTTPReply(status: 200))

        await #expect(throws: HTTPError.self) { try await self.client(transport).execute(Ask { $0.method = .post }) }

        #expect(transport.calls.count == 1)
    }

    @Test func `CO-47 a stale value is served when another transport loses the connection`() async throws {
        let world = CachingWorld()
        let failure = Locked<(any Error)?>(nil)
        let transport = ClosureTransport { _ in
            if let failure = failure.withLock({ $0 }) { throw failure }
            return HTTPReply(status: 200, body: Data(#"{"version":1}"#.utf8))
        }
        let number = world.client(transport)
            .multiplexer(
                cacheKey: "Number",
                policy: Self.policy,
                repository: world.repository,
                GetNumber()
            )
        _ = try await number.request()
        world.clock.advance(by: .seconds(2))

        for error in Self.passing {
            failure.withLock { $0 = error }
            let entry = try await number.requestEntry(.reload)
            #expect(entry.staleReason == .fetchFailed, "\(error)")
        }
        for error in Self.lasting {
            failure.withLock { $0 = error }
            await #expect(throws: HTTPError.self, "\(error)") { try await number.request(.reload) }
        }
    }

    @Test func `CO-47 a fetch without the client may throw custom connectivity errors`() async throws {
        let world = CachingWorld()
        let failure = Locked<(any Error)?>(nil)
        let number = Multiplexer<Int>(policy: Self.policy, repository: world.repository) {
            if let failure = failure.withLock({ $0 }) { throw failure }
            return 1
        }
        _ = try await number.request()
        world.clock.advance(by: .seconds(2))

        for error in [ConnectionLost(), POSIXError(.ENETUNREACH)] as [any Error] {
            failure.withLock { $0 = error }
            #expect(try await number.requestEntry(.reload).staleReason == .fetchFailed, "\(error)")
        }
        failure.withLock { $0 = SocketClosed() }
        await #expect(throws: SocketClosed.self) { try await number.request(.reload) }
    }

    @Test(arguments: Self.passing.indices)
    func `CO-47 a download resumes where another transport lost the connection`(index: Int) async throws {
        let transport = CuttingTransport(size: 100_000, piece: 30_000, failure: Self.passing[index])
        let (media, folder, url) = try self.media(transport)

        let file = try await media.request(url: url)

        #expect(try Data(contentsOf: file) == transport.content)
        #expect(transport.starts == [0, 30_000, 60_000, 90_000])
        try FileManager.default.removeItem(at: folder)
    }

    @Test func `CO-47 the reason that stopped a download survives the wrapper of another transport`() async throws {
        let transport = CuttingTransport(size: 100_000, piece: 30_000, failure: SocketClosed(), wrapsErrors: true)
        var limits = AsyncMedia.Limits()
        limits.maximumFileBytes = 50_000
        let (media, folder, url) = try self.media(transport, limits: limits)

        await #expect(throws: MediaError.tooLarge(limit: 50_000)) { try await media.request(url: url) }

        #expect(transport.starts == [0])
        try FileManager.default.removeItem(at: folder)
    }

    private func media(
        _ transport: any HTTPTransport,
        limits: AsyncMedia.Limits = .init()
    ) throws -> (AsyncMedia, folder: URL, url: URL) {
        let folder = FileManager.default.temporaryDirectory.appending(component: "MuxMedia-\(UUID().uuidString)")
        let media = AsyncMedia(
            directory: folder,
            transport: transport,
            limits: limits,
            retry: .never,
            budget: nil,
            durability: .relaxed,
            repository: MuxRepository(store: MemoryStore())
        )
        return (media, folder, try #require(URL(string: "https://example.com/picture.jpg")))
    }

    @Test func `CO-47 a token server that another transport cannot reach is a connectivity failure`() async throws {
        let url = try #require(URL(string: "https://example.com/token"))
        for (errors, isPassing) in [(Self.passing, true), (Self.lasting, false)] {
            for failure in errors {
                let endpoint = OAuthTokenEndpoint(
                    url: url,
                    client: OAuthClient(id: "app"),
                    transport: ClosureTransport { _ in throw failure }
                )
                let error = await #expect(throws: OAuthError.self) { try await endpoint.refresh("r") }
                #expect(error?.isConnectivityFailure == isPassing, "\(failure)")
                #expect(error?.isBadDependency == false, "\(failure)")
            }
        }
    }

    @Test func `CO-47 a cancellation of another transport remains a cancellation`() async {
        for failure in [CancellationError(), NSError(domain: "NSURLErrorDomain", code: -999)] as [any Error] {
            let transport = ScriptedTransport([.failure(failure)])
            await #expect(throws: CancellationError.self) { try await self.client(transport).execute(Ask()) }
            #expect(transport.calls.count == 1)
        }
    }
}

/// Serves a file from memory, and loses the connection with `failure` after each piece but the last.
private final class CuttingTransport: HTTPTransport {
    private struct Wrapper: Error {
        var cause: any Error
    }

    let content: Data
    private let piece: Int
    private let failure: any Error & Sendable
    private let wrapsErrors: Bool
    private let asked = Locked<[Int]>([])

    init(size: Int, piece: Int, failure: any Error & Sendable, wrapsErrors: Bool = false) {
        self.content = Data((0..<size).map { UInt8(truncatingIfNeeded: $0 &* 7) })
        self.piece = piece
        self.failure = failure
        self.wrapsErrors = wrapsErrors
    }

    /// The start offset of each request.
    var starts: [Int] { self.asked.withLock { $0 } }

    func send(_ call: HTTPCall) async throws -> HTTPReply { throw self.failure }

    func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
        let range = call.headers[.range]?.split { "=-".contains($0) }
        let start = range.flatMap { $0.count > 1 ? Int($0[1]) : nil } ?? 0
        self.asked.withLock { $0.append(start) }
        let size = self.content.count
        var headers: HTTPHeaders = [.eTag: "\"a\"", .contentLength: "\(size - start)"]
        if start > 0 { headers["Content-Range"] = "bytes \(start)-\(size - 1)/\(size)" }
        let head = HTTPReply(status: start == 0 ? 200 : 206, headers: headers, url: call.url)
        let end = min(start + self.piece, size)
        do {
            try await sink.receive(head: head)
            try await sink.receive(self.content[start..<end])
        } catch {
            throw self.wrapsErrors ? Wrapper(cause: error) : error
        }
        if end < size { throw self.failure }
        return head
    }
}
