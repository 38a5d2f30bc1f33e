import HTTPTypes
public import Hummingbird
public import MuxKit
import MuxNetwork
import NIOCore
import NIOFoundationCompat

/// A shared cache (RFC 9111) of the responses of a server's handlers.
///
/// ```swift
/// let cache = ResponseCacheMiddleware<BasicRequestContext>()
/// router.add(middleware: cache)
/// router.get("places/{id}") { _, context in
///     Response(status: .ok, headers: [.cacheControl: "max-age=60", .cacheGroups: "\"places\""], body: …)
/// }
/// await cache.clear(group: "places")
/// ```
///
/// A response is stored only if the handler grants a lifetime (`s-maxage`, `max-age`, `Expires`) or sends a
/// validator. `Vary` separates variants, a request with the current `ETag` gets a 304, and concurrent
/// requests for a missing or stale response call the handler once. After a successful request with an unsafe
/// method, such as POST, a stored response of the same URL is validated before its next use (RFC 9111,
/// section 4.4). Each URL has at most 16 variants.
///
/// **Users.** A request with `Authorization` or `Cookie` is personal, unless `isPersonal` decides otherwise.
/// The response to a personal request is stored, and a personal request gets a stored response, only if the
/// response permits the sharing with `public` or `s-maxage` (RFC 9111, section 3.5). A response with
/// `private` or with `Set-Cookie` is never stored.
///
/// **Groups.** `Cache-Groups` names the groups of a response (RFC 9875). ``clear(group:)`` removes all
/// responses of a group, as does `Cache-Group-Invalidation` in the response to an unsafe request.
///
/// **Errors.** An error of a handler is thrown unchanged, and is not stored. If the stored response has
/// `stale-if-error`, and neither `s-maxage` nor `must-revalidate`, the stored response is sent instead (RFC
/// 5861, section 4).
///
/// **Not stored.** A body without a known length or longer than `bodyLimit` is sent while the handler
/// produces it. The cache ignores `stale-while-revalidate`, because a handler cannot run after its request.
public final class ResponseCacheMiddleware<Context: RequestContext>: RouterMiddleware {
    private let cache: CachingTransport
    private let groups: CacheGroups
    private let bodyLimit: Int
    private let isPersonal: @Sendable (Request, Context) -> Bool

    /// Makes a cache.
    ///
    /// - Parameters:
    ///   - memoryLimit: The maximum size of all responses, in bytes.
    ///   - bodyLimit: The maximum length of a stored body, in bytes; at most 64 MiB.
    ///   - repository: The repository whose sign-out removes the responses; `nil` for none.
    ///   - isPersonal: Whether the response to a request may depend on its user; by default, whether the
    ///     request has `Authorization` or `Cookie`.
    public init(
        memoryLimit: Int = 16 << 20,
        bodyLimit: Int = 256 << 10,
        repository: MuxRepository? = nil,
        isPersonal: @escaping @Sendable (_ request: Request, _ context: Context) -> Bool = { request, _ in
            request.headers.contains(.authorization) || request.headers.contains(.cookie)
        }
    ) {
        let bodyLimit = min(bodyLimit, 64 << 20)
        self.bodyLimit = bodyLimit
        self.groups = CacheGroups(limit: max(memoryLimit, 1 << 20))
        self.isPersonal = isPersonal
        self.cache = CachingTransport(
            HandlerTransport(),
            options: .init(
                memoryLimit: memoryLimit,
                memoryBodyLimit: bodyLimit,
                heuristicLimit: .zero,
                staleLimit: .zero
            ),
            repository: repository ?? MuxRepository(store: MemoryStore())
        )
    }

    /// The counts since the cache was made: hits, calls of handlers, and requests that shared a call.
    public var statistics: MuxRepository.Statistics { self.cache.statistics }

    /// Removes all responses of a group.
    ///
    /// The responses of running handlers are sent, and not stored. Groups have one name for all hosts, unlike
    /// in RFC 9875, section 2, where each origin has its own groups.
    ///
    /// - Parameter group: The name of the group in `Cache-Groups`.
    public func clear(group: String) async {
        for url in self.groups.clear(group) { await self.cache.clear(url) }
    }

    /// Removes all responses; the responses of running handlers are sent, and not stored.
    public func clear() async {
        self.groups.clear()
        await self.cache.clear()
    }

    /// Responds with a stored response, or with the response of the handler.
    @concurrent
    public func handle(
        _ request: Request,
        context: Context,
        next: @concurrent (Request, Context) async throws -> Response
    ) async throws -> Response {
        // Middleware that was added twice handles a request once.
        guard !HandlerExchange.caches.contains(ObjectIdentifier(self)) else { return try await next(request, context) }
        guard let call = SharedCacheRules.call(for: request, isPersonal: self.isPersonal(request, context)) else {
            let response = try await next(request, context)
            if !(HTTPMethod(rawValue: request.method.rawValue)?.isSafe ?? false) {
                await self.clearGroups(in: HTTPHeaders(response.headers), status: response.status.code)
            }
            return response
        }
        let exchange = HandlerExchange()
        do {
            let reply = try await withThrowingTaskGroup(of: HTTPReply.self) { group in
                group.addTask { [cache = self.cache] in
                    defer { exchange.end() }
                    return try await HandlerExchange.$current.withValue(exchange) { try await cache.send(call) }
                }
                // The task of the request runs the handler: `next` must not escape.
                for await headers in exchange.demands {
                    exchange.answer(await self.answer(request, context, call, headers, exchange, next))
                }
                return try await group.next() ?? HTTPReply(status: 500)
            }
            if SharedCacheRules.standsForResult(reply), let result = exchange.result { return try result.get() }
            return Self.response(reply, to: request)
        } catch is MuxNetwork.HTTPError {
            // The cache cannot represent the request, or could not keep the response.
            guard let result = exchange.result else { return try await next(request, context) }
            return try result.get()
        }
    }

    /// Calls the handler.
    ///
    /// - Returns: The response for the cache.
    private func answer(
        _ request: Request,
        _ context: Context,
        _ call: HTTPCall,
        _ headers: HTTPHeaders,
        _ exchange: HandlerExchange,
        _ next: @concurrent (Request, Context) async throws -> Response
    ) async -> HTTPReply {
        let began = self.groups.begin()
        defer { self.groups.end() }
        var rules = SharedCacheRules(call)
        do {
            let response = try await HandlerExchange.$caches.withValue(
                HandlerExchange.caches + [ObjectIdentifier(self)]
            ) {
                try await next(rules.conditional(request, headers), context)
            }
            exchange.result = .success(response)
            let fields = HTTPHeaders(response.headers)
            if !rules.isSafe { await self.clearGroups(in: fields, status: response.status.code) }
            rules.mayStore = rules.isSafe && fields[.setCookie] == nil
            // A 304 always goes to the cache: the condition may be the cache's own.
            if response.status == .notModified {
                return HTTPReply(status: 304, headers: rules.stored(304, fields))
            }
            guard rules.mayStore, let length = response.body.contentLength, length <= self.bodyLimit else {
                return rules.standIn(response.status.code, fields)
            }
            var reply = HTTPReply(status: response.status.code, headers: rules.stored(response.status.code, fields))
            let body = CollectedBody(limit: length)
            // The body of a response to HEAD is empty, or is not sent; its writer may have other effects.
            try await response.body.write(CollectingWriter(body: body))
            if request.method != .head {
                guard body.count == length else { throw CollectedBody.WrongLength() }
                (reply.body, reply.trailers) = body.contents
            }
            if request.method == .get, SharedCacheRules.mayBeStored(reply.headers) {
                let mayStore = await self.add(CacheGroups.names(in: fields["Cache-Groups"]), call, began)
                if !mayStore {
                    rules.mayStore = false
                    reply.headers = rules.stored(reply.status, fields)
                }
            }
            return reply
        } catch {
            exchange.result = .failure(error)
            rules.mayStore = false
            let status = (error as? any HTTPResponseError)?.status.code ?? 500
            // An error with status 304 is no response to a condition.
            return rules.standIn(status == 304 ? 500 : status, [:])
        }
    }

    /// Removes the groups of `Cache-Group-Invalidation` in the response to an unsafe request (RFC 9875,
    /// section 3).
    private func clearGroups(in fields: HTTPHeaders, status: Int) async {
        guard status < 400 else { return }
        for group in CacheGroups.names(in: fields["Cache-Group-Invalidation"]) { await self.clear(group: group) }
    }

    /// Records the groups of a response before the response is stored.
    ///
    /// - Returns: Whether the response may be stored.
    private func add(_ names: [String], _ call: HTTPCall, _ began: UInt64) async -> Bool {
        switch self.groups.add(names, call.url, began) {
        case .added: return true
        case .outdated: return false
        case .full:
            await self.clear()
            return false
        }
    }

    private static func response(_ reply: HTTPReply, to request: Request) -> Response {
        let headers = SharedCacheRules.restored(reply.headers)
        if SharedCacheRules.isNotModified(reply, request) {
            return Response(status: .notModified, fields: headers, without: [.contentType, .contentEncoding])
        }
        let hasBody = request.method != .head && reply.status != 204 && reply.status != 304
        guard hasBody else {
            let isHead = request.method == .head && reply.status != 204 && reply.status != 304
            return Response(status: .init(code: reply.status), fields: headers, keepsLength: isHead)
        }
        let bytes = ByteBuffer(data: reply.body)
        let trailers = HTTPFields(reply.trailers)
        let body =
            trailers.isEmpty
            ? ResponseBody(byteBuffer: bytes)
            : ResponseBody(contentLength: bytes.readableBytes) { writer in
                try await writer.write(bytes)
                try await writer.finish(trailers)
            }
        return Response(status: .init(code: reply.status), headers: HTTPFields(headers), body: body)
    }
}

extension HTTPField.Name {
    /// The groups of a response: RFC 9875, section 2.
    public static var cacheGroups: Self { .init("Cache-Groups") ?? .cacheControl }

    /// The groups whose responses an unsafe request has changed: RFC 9875, section 3.
    public static var cacheGroupInvalidation: Self { .init("Cache-Group-Invalidation") ?? .cacheControl }
}

extension Response {
    /// A response without a body.
    fileprivate init(
        status: HTTPTypes.HTTPResponse.Status,
        fields: HTTPHeaders,
        keepsLength: Bool = false,
        without names: [HTTPHeaders.Name] = []
    ) {
        var fields = fields
        for name in names { fields[name] = nil }
        self.init(status: status, headers: HTTPFields(fields))
        if !keepsLength { self.headers[.contentLength] = nil }
    }
}
