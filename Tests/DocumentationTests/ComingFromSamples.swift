import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

// The articles for migrations from NSCache and URLCache, from a typed HTTP layer, and from retrying
// operations.

// MARK: - NSCache and URLCache

struct Thumbnail: Equatable, Sendable {
    var bytes: [UInt8] = []

    init(bytes: [UInt8] = []) { self.bytes = bytes }
    init(contentsOf file: URL) throws { self.bytes = [UInt8](try Data(contentsOf: file)) }

    static func render(_ url: URL) async throws -> Thumbnail { Thumbnail() }
}

func boundedMemory(_ url: URL, _ thumbnail: Thumbnail) {
    let thumbnails = MemoryCache<URL, Thumbnail>(maximumCount: 500, maximumCost: 64 << 20)
    thumbnails.insert(thumbnail, for: url, cost: thumbnail.bytes.count)
    let found = thumbnails.value(for: url)
    _ = found
}

func boundedMap(_ url: URL) async throws {
    let policy = MuxPolicy(
        timeToLive: .seconds(10 * 60),
        maximumCount: 500,
        maximumCost: .init(64 << 20) { (thumbnail: Thumbnail) in thumbnail.bytes.count }
    )
    let thumbnails = MultiplexerMap<URL, Thumbnail>(policy: policy) { try await Thumbnail.render($0) }.register()

    let thumbnail = try await thumbnails.request(key: url)
    let present = thumbnails.cachedValue(key: url)  // the value in memory, of any age, without waiting
    _ = (thumbnail, present)
}

func answersOnDisk() async throws {
    var options = CachingTransport.Configuration()
    options.cacheKey = "HTTP"  // without a name everything stays in memory
    options.memoryLimit = 16 << 20
    options.diskLimit = 256 << 20
    let client = HTTPClient(transport: .caching(options: options))

    let response = try await client.response(to: GetProfile())
    print(response.cacheStatus?.isHit ?? false)
}

func answersOfAnyURL(_ url: URL) async throws {
    let transport = CachingTransport()
    let reply = try await transport.send(HTTPCall(url: url))
    print(reply.status, reply.body.count)
}

func removingTheOldCache(_ folderOfTheOldCache: URL) {
    URLCache.shared.removeAllCachedResponses()
    try? FileManager.default.removeItem(at: folderOfTheOldCache)  // if the old cache had a separate folder
}

func decodedImages(_ url: URL) async throws {
    let images = DecodedMedia<Thumbnail>(maximumCost: 64 << 20) { file in
        let image = try Thumbnail(contentsOf: file)
        return (image, cost: image.bytes.count)
    }

    let image = images.cachedValue(url: url)  // in memory, or nil
    let loaded = try await images.request(url: url)  // from memory, from the file, or from the network
    _ = (image, loaded)
}

// MARK: - A typed HTTP layer

struct Order: Codable, Equatable, Sendable {
    var id: Int
    var placed: Date?
}

struct OrderProblem: Decodable, Sendable {
    var title: String
}

struct GetOrders: HTTPRequest {
    var customer: String
    var endpoint: HTTPEndpoint { .init(scheme: .https, host: "api.domain.com", path: "/customers/{id}/orders") }
    var method: HTTPMethod { .get }
    var pathValues: [String: String] { ["id": self.customer] }
    var queryItems: HTTPQuery { ["sort": "date"] }
    typealias Output = [Order]
    typealias ServerError = OrderProblem
}

struct PostOrder: HTTPRequest {
    var order: Order
    var endpoint: HTTPEndpoint { .init(scheme: .https, host: "api.domain.com", path: "/orders") }
    var method: HTTPMethod { .post }
    var body: HTTPBody? { .json(self.order) }
    var mapper: HTTPMapper<Order> { .json(errors: OrderProblem.self, dates: .secondsSince1970) }
}

func orders(_ client: HTTPClient) async throws {
    do {
        show(try await client.output(of: GetOrders(customer: "42")))
    } catch let error as HTTPError where error.status == .conflict {
        show((try? error.decode(OrderProblem.self))?.title ?? "The order was changed meanwhile.")
    }
}

struct TracingTransport: HTTPTransport, Sendable {
    var base: any HTTPTransport = .system

    func send(_ call: HTTPCall) async throws -> HTTPReply {
        var call = call
        call.headers["X-Request-ID"] = UUID().uuidString
        return try await self.base.send(call)
    }
}

@discardableResult
func loadOrders(
    _ client: HTTPClient,
    _ request: GetOrders,
    _ completion: @escaping @MainActor @Sendable (Result<[Order], any Error>) -> Void
) -> Task<Void, Never> {
    let task = Task { @MainActor in
        do { completion(.success(try await client.output(of: request))) } catch { completion(.failure(error)) }
    }
    return task
}

// MARK: - Retrying operations

private struct PhotoService: Sendable {
    struct Call: Sendable {
        func cancel() {}
    }

    func start(_ url: URL, _ done: @escaping @Sendable (Result<Data, any Error>) -> Void) -> Call {
        done(.success(Data([7])))
        return Call()
    }
}

nonisolated final class UploadOperation: Operation, @unchecked Sendable {
    let file: URL

    init(_ file: URL) { self.file = file }

    var error: (any Error)? { nil }
}

private func retriedOperation(_ service: PhotoService, _ url: URL, _ queue: OperationQueue) {
    let policy = RetryPolicy.table([.seconds(1), .seconds(3), .seconds(15)], maxAttempts: 4, jitter: .none)
    let download = RetryingOperation<Data>(policy, wakingOn: [.reachable("api.domain.com")]) { run in
        let call = service.start(url) { result in
            switch result {
            case .success(let data): run.end(returning: data)
            case .failure(let error as Busy): run.end(throwing: error, .after(.seconds(30)))
            case .failure(let error): run.end(throwing: error)
            }
        }
        run.onCancel { call.cancel() }
    }
    download.completionBlock = { [weak download] in
        if case .success(let data)? = download?.result { print(data.count) }
    }
    queue.addOperation(download)
}

func demandsOnAnOperation(_ download: RetryingOperation<Data>, _ foreground: Notification.Name) {
    download.retryNow()  // at once
    download.retry(in: .seconds(60))  // in a minute, in place of the present wait
    download.retry(wakingOn: [.reachable("api.domain.com"), .notification(foreground)])
}

func wrappedOperation(_ file: URL, _ queue: OperationQueue) {
    let upload = RetryableOperationWrapper(
        UploadOperation(file),
        .exponential(base: .seconds(1), maxAttempts: 3),
        failure: { $0.error },
        another: { failed, _ in UploadOperation(failed.file) }
    )
    queue.addOperation(upload)
}

func retriedAsynchronously() async throws {
    let policy = RetryPolicy.table([.seconds(1), .seconds(3), .seconds(15)], maxAttempts: 4, jitter: .none)
    let page = try await retry(policy, wakingOn: .reachable("api.domain.com")) { _ in try await fetchPage() }
    _ = page
}

func retriedWithProviders() async throws {
    let onceAtOnce = RetryProvider { failure in failure.index == 0 ? .after(.zero) : .pass }
    let onlyBusy = RetryProvider.when { $0 is Busy }
    let page = try await retry(.web, providers: [onceAtOnce, onlyBusy]) { _ in try await fetchPage() }
    _ = page
}

// MARK: - Promises of the articles

@Suite(.standard(endsAtRest: false))
struct ComingFromSamplesTests {
    @Test func `CO-28 a memory cache keeps its bounds at once, and a bound of zero keeps no value`() {
        let two = MemoryCache<Int, String>(maximumCount: 2)
        for key in 1...5 { two.insert("\(key)", for: key) }
        #expect(two.count == 2)
        #expect(two.statistics.evictions == 3)

        let costly = MemoryCache<Int, String>(maximumCount: nil, maximumCost: 10)
        costly.insert("a", for: 1, cost: 6)
        costly.insert("b", for: 2, cost: 6)
        #expect(costly.totalCost == 6)
        costly.insert("c", for: 3, cost: 11)
        #expect(costly.value(for: 3) == nil)

        let none = MemoryCache<Int, String>(maximumCount: 0)
        none.insert("a", for: 1)
        #expect(none.value(for: 1) == nil)
    }

    @Test func `CO-28 unlike NSCache a map fetches once, and again after the time to live`() async throws {
        let clock = VirtualClock()
        let fetch = ScriptedFetch<Thumbnail>([.value(Thumbnail(bytes: [1])), .value(Thumbnail(bytes: [2]))])
        let repository = MuxRepository(store: MemoryStore(), clock: clock)
        let policy = MuxPolicy(timeToLive: .seconds(10 * 60), maximumCount: 500)
        let thumbnails = MultiplexerMap<URL, Thumbnail>(policy: policy, repository: repository) { _ in
            try await fetch()
        }
        let url = URL(filePath: "/photo.png")

        #expect(try await thumbnails.request(key: url).bytes == [1])
        #expect(try await thumbnails.request(key: url).bytes == [1])
        clock.advance(by: .seconds(10 * 60))
        #expect(try await thumbnails.request(key: url).bytes == [2])
        #expect(fetch.callCount == 2)
    }

    @Test func `CO-28 a cacheable response is reused, and a removed response is not`() async throws {
        let url = try #require(URL(string: "https://api.domain.com/profile"))
        let reply = HTTPReply(status: 200, headers: ["Cache-Control": "max-age=60"], body: Data("{}".utf8))
        let scripted = ScriptedTransport([], thereafter: reply)
        let transport = CachingTransport(scripted, repository: MuxRepository(store: MemoryStore()))

        #expect(try await transport.send(HTTPCall(url: url)).status == 200)
        #expect(try await transport.send(HTTPCall(url: url)).status == 200)
        #expect(scripted.calls.count == 1)
        await transport.clear(url)
        #expect(try await transport.send(HTTPCall(url: url)).status == 200)
        #expect(scripted.calls.count == 2)
    }

    @Test func `orders are decoded, and a refusal has a typed error`() async throws {
        let transport = ScriptedTransport([
            .json([Order(id: 1)]),
            .json(["title": "Closed"], status: 409),
        ])
        let client = HTTPClient(transport: transport)
        let request = GetOrders(customer: "a/b")

        #expect(try await client.output(of: request) == [Order(id: 1)])
        #expect(transport.calls.first?.url.path(percentEncoded: true) == "/customers/a%2Fb/orders")
        let error = await #expect(throws: HTTPError.self) { try await client.output(of: request) }
        #expect(try error?.decode(OrderProblem.self).title == "Closed")
    }

    @Test func `CO-28 a request determines the encoding of its body and the decoding of its response`() async throws {
        let transport = ScriptedTransport([
            .success(HTTPReply(status: 201, body: Data(#"{"id": 1, "placed": 60}"#.utf8))),
            .json(["title": "Closed"], status: 409),
        ])
        let client = HTTPClient(transport: transport)
        let request = PostOrder(order: Order(id: 1, placed: Date(timeIntervalSince1970: 60)))

        #expect(try await client.output(of: request) == request.order)
        #expect(transport.calls.first?.body?.data == Data(#"{"id":1,"placed":"1970-01-01T00:01:00Z"}"#.utf8))
        let error = await #expect(throws: HTTPError.self) { try await client.output(of: request) }
        #expect(try error?.decode(OrderProblem.self).title == "Closed")
    }

    @Test func `CO-28 a transport around another transport receives each request with its token`() async throws {
        let scripted = ScriptedTransport([], thereafter: HTTPReply(status: 200, body: Data("[]".utf8)))
        let repository = MuxRepository(store: MemoryStore())
        let transport = CachingTransport(TracingTransport(base: scripted), repository: repository)
        let client = HTTPClient(transport: transport)

        _ = try await client.output(of: GetOrders(customer: "42"), token: "a token")

        let call = try #require(scripted.calls.first)
        #expect(call.headers["X-Request-ID"] != nil)
        #expect(call.headers["Authorization"] == "Bearer a token")
    }

    @MainActor @Test func `CO-28 a callback receives the output of the request`() async throws {
        let client = HTTPClient(transport: ScriptedTransport([.success(HTTPReply(status: 200, body: Data("[]".utf8)))]))
        let result = await withCheckedContinuation { continuation in
            loadOrders(client, GetOrders(customer: "42")) { continuation.resume(returning: $0) }
        }
        #expect(try result.get().isEmpty)
    }

    @Test func `CO-28 an operation waits as its table specifies, and a button ends the wait`() async throws {
        let clock = VirtualClock()
        let policy = RetryPolicy.table([.seconds(1), .seconds(60)], maxAttempts: 4, jitter: .none)
        let download = RetryingOperation<Int>(policy, clock: clock) { run in
            if run.attempt.index < 2 { run.end(throwing: Busy()) } else { run.end(returning: run.attempt.index) }
        }
        let queue = OperationQueue()
        async let ended: Void = withCheckedContinuation { continuation in
            download.completionBlock = { continuation.resume() }
            queue.addOperation(download)
        }

        await clock.waitForSleepers()
        clock.advance(by: .seconds(1))
        await clock.waitForSleepers()  // a wait of a minute, which retryNow() ends
        download.retryNow()
        await ended

        #expect(try download.result?.get() == 2)
        #expect(clock.now.offset == .seconds(1))
        #expect(download.attempts.count == 2)
    }

    @Test func `CO-28 a provider decides before the error and the policy`() async throws {
        let clock = VirtualClock()
        let onceAtOnce = RetryProvider { failure in failure.index == 0 ? .after(.zero) : .pass }
        let onlyBusy = RetryProvider.when { $0 is Busy }
        let fetch = ScriptedFetch<Int>([.failure(SocketClosed()), .failure(SocketClosed())])
        let error = await #expect(throws: RetryError.self) {
            try await retry(.web, providers: [onceAtOnce, onlyBusy], clock: clock) { _ in try await fetch() }
        }
        #expect(error?.reason == .refused)
        #expect(error?.attempts.count == 2)
    }
}
