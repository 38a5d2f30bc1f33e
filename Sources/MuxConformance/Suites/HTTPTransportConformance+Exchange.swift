import Foundation
import MuxKit
import MuxNetwork
import MuxTesting

/// Helpers of the rules: servers, calls and expected outcomes.
extension HTTPTransportConformance {
    /// The two methods of a transport.
    enum Way: String, CaseIterable, Sendable {
        case send
        case stream
    }

    /// Runs `body` with a server, and stops the server afterwards.
    static func serving<Output>(
        on address: Socket.Loopback = .ipv4,
        _ script: @escaping RawServer.Script,
        _ body: (RawServer, URL) async throws -> Output
    ) async throws -> Output {
        let server = RawServer(on: address, script)
        let url = try server.start()
        do {
            let output = try await body(server, url)
            await server.stop()
            return output
        } catch {
            await server.stop()
            throw error
        }
    }

    /// Runs `body` for each method of a transport, each with a separate server.
    static func servingEach(
        _ script: @escaping RawServer.Script,
        _ body: (Way, RawServer, URL) async throws -> Void
    ) async throws {
        for way in Way.allCases { try await self.serving(script) { try await body(way, $0, $1) } }
    }

    /// A script: reads the requests of a connection, and writes `response` to each request.
    static func responding(_ response: @escaping @Sendable (RawRequest) -> String) -> RawServer.Script {
        { connection in
            while true { try connection.write(response(try connection.readRequest())) }
        }
    }

    /// A script: reads a request, writes `bytes`, and ends the connection by FIN, or with `byReset` by RST.
    static func ending(after bytes: String, byReset: Bool = false) -> RawServer.Script {
        { connection in
            try connection.readRequest()
            try connection.write(bytes)
            if byReset { connection.resetAtEnd() }
        }
    }

    /// A script: reads a request, writes `bytes`, opens `isWritten`, and waits for the client to end the
    /// connection.
    static func silent(after bytes: String, _ isWritten: Gate<Void> = Gate()) -> RawServer.Script {
        { connection in
            try connection.readRequest()
            try connection.write(bytes)
            isWritten.open(1)
            connection.waitForEnd()
        }
    }

    /// The text of a response with a `Content-Length`; each additional field must end with CRLF.
    static func text(_ status: Int = 200, _ fields: String = "", _ body: String = "") -> String {
        "HTTP/1.1 \(status) -\r\n\(fields)Content-Length: \(body.utf8.count)\r\n\r\n\(body)"
    }

    /// The URL of `target` at a server.
    static func url(_ base: URL, _ target: String) throws -> URL {
        guard let url = URL(string: base.absoluteString + target) else {
            throw RuleBroken(detail: "\(target) does not form a valid URL")
        }
        return url
    }

    /// Sends a call, and returns the response with the body; for `stream`, checks the calls of the sink.
    static func reply(_ way: Way, _ transport: any HTTPTransport, _ call: HTTPCall) async throws -> HTTPReply {
        switch way {
        case .send: return try await transport.send(call)
        case .stream:
            let sink = WatchedSink()
            var reply = try await transport.stream(call, into: sink)
            if let disorder = sink.disorder { throw RuleBroken(detail: disorder) }
            guard let head = sink.head else { throw RuleBroken(detail: "the sink got no head") }
            try self.expect(
                head.status == reply.status && head.headers == reply.headers && head.url == reply.url,
                "the sink and the caller got different heads"
            )
            try self.expect(reply.body.isEmpty, "the head that stream returned has a body of \(reply.body.count) bytes")
            reply.body = sink.body
            return reply
        }
    }

    /// The transport failure of a call; throws if the call succeeds or throws another error.
    static func failure(
        _ circumstances: String,
        _ operation: () async throws -> HTTPReply
    ) async throws -> HTTPError.TransportFailure {
        let reply: HTTPReply
        do {
            reply = try await operation()
        } catch HTTPError.transport(let failure, _) {
            return failure
        } catch let failure as HTTPError.TransportFailure {
            return failure
        } catch let broken as RuleBroken {
            throw broken
        } catch {
            throw RuleBroken(detail: "\(circumstances), the error is not a transport failure: \(error)")
        }
        throw RuleBroken(detail: "\(circumstances), the call succeeded with \(reply)")
    }

    /// Calls `check` with the failure of `send`, and then with the failure of `stream`.
    static func checkEachFailure(
        _ circumstances: String,
        _ transport: any HTTPTransport,
        _ script: @escaping RawServer.Script,
        _ check: (HTTPError.TransportFailure) throws -> Void = { _ in }
    ) async throws {
        try await self.servingEach(script) { way, _, url in
            try check(
                try await self.failure(circumstances) { try await self.reply(way, transport, HTTPCall(url: url)) }
            )
        }
    }

    /// The expected kinds of failures.
    enum Kind: String, Sendable {
        case notResolved, notConnected, closedWithoutResponse, timedOut, deadlineExceeded, notHTTP, truncated,
            bodyTooLarge
        case redirectRefused

        fileprivate init?(_ failure: HTTPError.TransportFailure) {
            switch failure {
            case .notResolved: self = .notResolved
            case .notConnected: self = .notConnected
            case .closedWithoutResponse: self = .closedWithoutResponse
            case .timedOut: self = .timedOut
            case .deadlineExceeded: self = .deadlineExceeded
            case .notHTTP: self = .notHTTP
            case .truncated: self = .truncated
            case .bodyTooLarge: self = .bodyTooLarge
            case .redirectRefused: self = .redirectRefused
            default: return nil
            }
        }
    }

    /// Expects a call to fail with the given kind.
    @discardableResult
    static func expect(
        _ kind: Kind,
        _ circumstances: String,
        _ operation: () async throws -> HTTPReply
    ) async throws -> HTTPError.TransportFailure {
        let failure = try await self.failure(circumstances, operation)
        try self.expect(
            Kind(failure) == kind,
            "\(circumstances), the failure is \(Kind(failure)?.rawValue ?? "of another kind") instead of \(kind.rawValue): \(failure)"
        )
        return failure
    }

    /// Expects a call to fail with the given kind through both methods, each with a separate server.
    static func expect(
        _ kind: Kind,
        _ circumstances: String,
        _ transport: any HTTPTransport,
        _ script: @escaping RawServer.Script
    ) async throws {
        try await self.servingEach(script) { way, _, url in
            try await self.expect(kind, "\(circumstances), with \(way)") {
                try await self.reply(way, transport, HTTPCall(url: url))
            }
        }
    }

    /// Expects a response with the given status and body.
    static func expect(_ reply: HTTPReply, _ status: Int, _ body: String, _ circumstances: String) throws {
        try self.expect(reply.status == status, "\(circumstances), the status is \(reply.status) instead of \(status)")
        let text = String(decoding: reply.body.prefix(80), as: UTF8.self)
        try self.expect(
            reply.body == Data(body.utf8),
            "\(circumstances), the body is \(text.debugDescription) instead of \(body.prefix(80).debugDescription)"
        )
    }

    /// Cancels a call after an event, and expects `CancellationError`.
    static func expectCancellation(
        of call: @escaping @Sendable @concurrent () async throws -> HTTPReply,
        _ circumstances: String,
        after event: () async -> Void
    ) async throws {
        let outcome = await withTaskGroup(of: Result<HTTPReply, any Error>.self) { group in
            group.addTask {
                do { return .success(try await call()) } catch { return .failure(error) }
            }
            await event()
            group.cancelAll()
            return await group.next()
        }
        switch outcome {
        case .failure(is CancellationError)?, nil: return
        case .failure(let error)?: throw RuleBroken(detail: "\(circumstances), the call threw \(error)")
        case .success(let reply)?: throw RuleBroken(detail: "\(circumstances), the call succeeded with \(reply)")
        }
    }
}

/// A sink that stores a response, checks the order of calls, and calls the closures of a rule.
final class WatchedSink: HTTPSink {
    private struct State: Sendable {
        var head: HTTPReply?
        var body = Data()
        var count = 0
        var disorder: String?
    }

    private let state = Locked(State())
    private let keepsBody: Bool
    private let onHead: @Sendable @concurrent () async throws -> Void
    private let onPiece: @Sendable @concurrent () async throws -> Void

    /// Makes a sink.
    ///
    /// - Parameters:
    ///   - keepsBody: Whether the sink stores the body; otherwise the sink only counts the bytes.
    ///   - onHead: Called after the sink has stored the head.
    ///   - onPiece: Called after the sink has received a piece of the body.
    init(
        keepsBody: Bool = true,
        onHead: @escaping @Sendable @concurrent () async throws -> Void = {},
        onPiece: @escaping @Sendable @concurrent () async throws -> Void = {}
    ) {
        self.keepsBody = keepsBody
        self.onHead = onHead
        self.onPiece = onPiece
    }

    var head: HTTPReply? { self.state.withLock { $0.head } }
    var body: Data { self.state.withLock { $0.body } }

    /// The number of received bytes of the body.
    var count: Int { self.state.withLock { $0.count } }

    /// The last violation of the rules for calls of a sink; `nil` without a violation.
    var disorder: String? { self.state.withLock { $0.disorder } }

    func receive(head: HTTPReply) async throws {
        self.state.withLock { state in
            if state.head != nil { state.disorder = "the sink got two heads" }
            if !head.body.isEmpty { state.disorder = "the head that the sink got has a body" }
            state.head = head
        }
        try await self.onHead()
    }

    func receive(_ bytes: Data) async throws {
        self.state.withLock { state in
            if state.head == nil { state.disorder = "the sink got a piece before the head" }
            state.count += bytes.count
            if self.keepsBody { state.body.append(bytes) }
        }
        try await self.onPiece()
    }
}

/// The pieces of a streamed body; a closure makes each piece on demand.
struct BodyPieces: AsyncSequence, Sendable {
    /// Returns the piece with the given number, from 0; `nil` at the end.
    let piece: @Sendable @concurrent (Int) async throws -> Data?

    /// Makes a sequence of existing pieces.
    init(_ pieces: [Data]) {
        self.piece = { $0 < pieces.count ? pieces[$0] : nil }
    }

    init(_ piece: @escaping @Sendable @concurrent (Int) async throws -> Data?) { self.piece = piece }

    func makeAsyncIterator() -> Iterator { Iterator(piece: self.piece) }

    struct Iterator: AsyncIteratorProtocol {
        let piece: @Sendable @concurrent (Int) async throws -> Data?
        private var number = 0

        init(piece: @escaping @Sendable @concurrent (Int) async throws -> Data?) { self.piece = piece }

        mutating func next() async throws -> Data? {
            defer { self.number += 1 }
            return try await self.piece(self.number)
        }
    }
}

extension HTTPCall.Body {
    /// A streamed body of existing pieces.
    static func pieces(_ pieces: [Data], length: Int?) -> Self { .stream(.init(length: length) { BodyPieces(pieces) }) }
}
