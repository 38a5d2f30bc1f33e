import Foundation
import MuxKit
import MuxNetwork

/// A transport with one fault.
final class FaultyTransport: HTTPTransport {
    enum Fault: String, CaseIterable, Sendable {
        case lowersMethods, sortsFields, dropsEmptyFields, sendsBodyUnasked, cutsBodies, losesLastPiece, collectsStreams
        case sendsHalfStreams, asksTwice, dropsFramingFields, swapsAnswers, refusesIPv6, addsCoding
        case waitsForWhole, mergesCookies, replacesBytes, dropsTrailers, dropsUnknownCodings, hidesTruncation
        case addsBodyToHead, hasNoBodyLimit, acceptsAnyContent
        case keepsCredentials, hasNoRedirectionLimit, followsAnyStatus, losesRedirectedBodies, forgetsFragment
        case saysUnreachable, saysTruncated, hasLongTimeout, hasNoDeadline, ignoresLimitsOfCalls
        case ignoresCancellation, sendsWhenCancelled, changesCancellation, wrapsSinkErrors, readsAhead
    }

    private struct Vague: Error {}
    private typealias Body = @Sendable @concurrent () async throws -> HTTPReply

    private let fault: Fault?
    private let base: SystemTransport
    private let last = Locked<HTTPReply?>(nil)

    init(_ fault: Fault?, _ options: HTTPTransportConfiguration) {
        var options = options
        switch fault {
        case .hasNoBodyLimit: options.maximumBodySize = 1 << 30
        case .keepsCredentials: options.credentialHeaders = []
        case .hasNoRedirectionLimit: options.maximumRedirects = 1_000
        case .hasLongTimeout: options.timeout = .seconds(60)
        case .hasNoDeadline: options.deadline = nil
        default: break
        }
        self.fault = fault
        self.base = SystemTransport(options)
    }

    func send(_ call: HTTPCall) async throws -> HTTPReply {
        try await self.failing {
            var call = try self.changed(call)
            while true {
                let reply = try await self.repeating { try await self.base.send(call) }
                guard let next = self.next(call, reply) else { return self.changed(reply, call) }
                call = next
            }
        }
    }

    func stream(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
        if self.fault == .waitsForWhole { return try await self.whole(call, into: sink) }
        let call = try self.changed(call)
        let change: @Sendable (HTTPReply) -> HTTPReply = { self.changed($0, call) }
        let (wrapsErrors, readsAhead) = (self.fault == .wrapsSinkErrors, self.fault == .readsAhead)
        let faulty = FaultySink(sink, wrapsErrors: wrapsErrors, readsAhead: readsAhead, change: change)
        return try await self.failing(faulty) {
            let reply = self.changed(try await self.base.stream(call, into: faulty), call)
            try await faulty.finish()
            return reply
        }
    }

    private func whole(_ call: HTTPCall, into sink: any HTTPSink) async throws -> HTTPReply {
        var reply = try await self.send(call)
        try await sink.receive(head: reply.withoutBody)
        if !reply.body.isEmpty { try await sink.receive(reply.body) }
        reply.body = Data()
        return reply
    }

    // MARK: - Requests

    private func changed(_ call: HTTPCall) throws -> HTTPCall {
        var changed = call
        switch self.fault {
        case .lowersMethods: changed.method = call.method.capitalized
        case .sortsFields:
            changed.headers = HTTPHeaders(call.headers.fields.sorted { $0.name.canonical < $1.name.canonical })
        case .dropsEmptyFields: changed.headers = HTTPHeaders(call.headers.fields.filter { !$0.value.isEmpty })
        case .sendsBodyUnasked where call.method == "POST" && call.body == nil: changed.body = .data(Data([1]))
        case .cutsBodies: changed.body = call.body.map { body in body.data.map { .data($0.prefix(100_000)) } ?? body }
        case .losesLastPiece: changed.body = call.body.map { body in body.changed { $0.dropLast() } }
        case .collectsStreams:
            changed.body = call.body.map { body in body.changed { [$0.reduce(into: Data()) { $0 += $1 }] } }
        case .sendsHalfStreams: changed.body = call.body?.forgiving
        case .dropsFramingFields:
            changed.headers = HTTPHeaders(call.headers.fields.filter { !HTTPHeaders.Name.framing.contains($0.name) })
        case .refusesIPv6 where call.url.host()?.contains(":") == true:
            throw HTTPError.transport(.notConnected(Vague()))
        case .addsCoding: changed.headers.append("gzip", for: .acceptEncoding)
        case .losesRedirectedBodies: changed.body = call.body?.readOnce
        case .ignoresLimitsOfCalls: (changed.timeout, changed.deadline) = (nil, nil)
        default: break
        }
        return changed
    }

    private func repeating(_ body: () async throws -> HTTPReply) async throws -> HTTPReply {
        do {
            return try await body()
        } catch let error as HTTPError where self.fault == .asksTwice && error.isConnectivityFailure {
            return try await body()
        }
    }

    private func next(_ call: HTTPCall, _ reply: HTTPReply) -> HTTPCall? {
        guard self.fault == .followsAnyStatus, reply.status == 305, let location = reply.headers[.location] else {
            return nil
        }
        var call = call
        call.url = URL(string: location, relativeTo: call.url)?.absoluteURL ?? call.url
        return call
    }

    // MARK: - Responses

    private func changed(_ reply: HTTPReply, _ call: HTTPCall) -> HTTPReply {
        var changed = reply
        switch self.fault {
        case .swapsAnswers:
            return self.last.withLock { last in
                defer { last = reply }
                return last ?? reply
            }
        case .mergesCookies:
            changed.headers[.setCookie] = reply.headers[.setCookie]
        case .replacesBytes:
            changed.headers = [:]
            for field in reply.headers.fields {
                changed.headers.append(String(field.value.map { $0.isASCII ? $0 : "?" }), for: field.name)
            }
        case .dropsTrailers: changed.trailers = [:]
        case .dropsUnknownCodings: changed.headers[.contentEncoding] = nil
        case .addsBodyToHead where call.method == "HEAD": changed.body = Data("body".utf8)
        case .forgetsFragment:
            var components = reply.url.flatMap { URLComponents(url: $0, resolvingAgainstBaseURL: true) }
            components?.fragment = nil
            changed.url = components?.url
        default: break
        }
        return changed
    }

    // MARK: - Failures

    /// Runs an exchange and applies the fault to its error.
    private func failing(_ sink: FaultySink? = nil, _ body: @escaping Body) async throws -> HTTPReply {
        switch self.fault {
        case .ignoresCancellation: return try await Task { try await body() }.value
        case .sendsWhenCancelled where Task.isCancelled:
            _ = try? await Task { try await body() }.value
            throw CancellationError()
        default: break
        }
        do {
            return try await body()
        } catch is CancellationError where self.fault == .changesCancellation {
            throw HTTPError.transport(.unreachable(Vague()))
        } catch HTTPError.transport(.truncated, _) where self.fault == .hidesTruncation {
            return sink?.head ?? HTTPReply(status: 200)
        } catch HTTPError.transport(.damagedContent, _) where self.fault == .acceptsAnyContent {
            return sink?.head ?? HTTPReply(status: 200)
        } catch HTTPError.transport where self.fault == .saysUnreachable {
            throw HTTPError.transport(.unreachable(Vague()))
        } catch HTTPError.transport where self.fault == .saysTruncated {
            throw HTTPError.transport(.truncated(expected: nil, received: 0))
        }
    }
}

extension HTTPReply {
    fileprivate var withoutBody: HTTPReply {
        var head = self
        head.body = Data()
        return head
    }
}

extension HTTPHeaders {
    fileprivate init(_ fields: [HTTPHeaders.Field]) {
        self.init()
        for field in fields { self.append(field.value, for: field.name) }
    }
}

/// The pieces of a stream after a change that needs all of them.
private struct ChangedPieces: AsyncSequence, Sendable {
    let make: @Sendable @concurrent () async throws -> [Data]

    func makeAsyncIterator() -> Iterator { Iterator(make: self.make) }

    struct Iterator: AsyncIteratorProtocol {
        let make: @Sendable @concurrent () async throws -> [Data]
        var rest: [Data]?

        mutating func next() async throws -> Data? {
            if self.rest == nil { self.rest = try await self.make() }
            return self.rest.flatMap { $0.isEmpty ? nil : self.rest?.removeFirst() }
        }
    }
}

extension HTTPCall.Body {
    /// A stream whose pieces are collected and changed before the first piece is sent; other bodies
    /// unchanged.
    fileprivate func changed(_ change: @escaping @Sendable ([Data]) -> [Data]) -> Self {
        guard case .stream(let stream) = self else { return self }
        return .stream(
            .init(length: stream.length) {
                ChangedPieces {
                    var pieces: [Data] = []
                    for try await piece in stream { pieces.append(piece) }
                    return change(pieces)
                }
            }
        )
    }

    /// A stream of the pieces before the stream's error, without a length.
    fileprivate var forgiving: Self {
        guard case .stream(let stream) = self else { return self }
        return .stream(
            .init {
                ChangedPieces {
                    var pieces: [Data] = []
                    do { for try await piece in stream { pieces.append(piece) } } catch {}
                    return pieces
                }
            }
        )
    }

    /// A stream that is empty when it is read again.
    fileprivate var readOnce: Self {
        guard case .stream(let stream) = self else { return self }
        let isRead = Locked(false)
        return .stream(
            .init {
                ChangedPieces {
                    let isFirst = isRead.withLock { isRead in
                        defer { isRead = true }
                        return !isRead
                    }
                    var pieces: [Data] = []
                    if isFirst { for try await piece in stream { pieces.append(piece) } }
                    return pieces
                }
            }
        )
    }
}

/// Passes the changed response of a ``FaultyTransport`` to a sink.
private final class FaultySink: HTTPSink {
    private struct Wrapper: Error {
        var cause: any Error
    }

    private let base: any HTTPSink
    private let wrapsErrors: Bool
    private let readsAhead: Bool
    private let change: @Sendable (HTTPReply) -> HTTPReply
    private let state = Locked<(head: HTTPReply?, read: [Data])>((nil, []))

    init(
        _ base: any HTTPSink,
        wrapsErrors: Bool,
        readsAhead: Bool,
        change: @escaping @Sendable (HTTPReply) -> HTTPReply
    ) {
        self.base = base
        self.wrapsErrors = wrapsErrors
        self.readsAhead = readsAhead
        self.change = change
    }

    var head: HTTPReply? { self.state.withLock { $0.head } }

    func receive(head: HTTPReply) async throws {
        let changed = self.change(head)
        self.state.withLock { $0.head = changed }
        let body = changed.body
        try await self.wrapping { try await self.base.receive(head: changed.withoutBody) }
        if !body.isEmpty { try await self.base.receive(body) }
    }

    func receive(_ bytes: Data) async throws {
        if self.readsAhead { return self.state.withLock { $0.read.append(bytes) } }
        try await self.wrapping { try await self.base.receive(bytes) }
    }

    func finish() async throws {
        for bytes in self.state.withLock({ $0.read }) { try await self.base.receive(bytes) }
    }

    private func wrapping(_ body: () async throws -> Void) async throws {
        do {
            try await body()
        } catch  where self.wrapsErrors {
            throw Wrapper(cause: error)
        }
    }
}
