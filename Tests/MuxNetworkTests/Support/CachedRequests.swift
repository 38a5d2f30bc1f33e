import Foundation
import MuxKit
import MuxNetwork
import MuxTesting

/// The environment of a test of cached requests: virtual time, a store, and clients of a simulated server.
struct CachingWorld: Sendable {
    let clock: VirtualClock
    let store: MemoryStore
    let repository: MuxRepository
    private let start: Date

    init(
        store: MemoryStore = MemoryStore(),
        start: Date = Date(timeIntervalSince1970: 784_111_777),
        observer: (any MuxObserver)? = nil
    ) {
        let clock = VirtualClock()
        self.clock = clock
        self.store = store
        self.start = start
        self.repository = MuxRepository(
            store: store,
            durability: .relaxed,
            observer: observer,
            time: TimeSource(clock),
            wallTime: { start.addingTimeInterval(TimeInterval(clock.now.offset.components.seconds)) },
            random: { 0.5 },
            spawn: TaskLauncher()
        )
    }

    var now: Date { self.start.addingTimeInterval(TimeInterval(self.clock.now.offset.components.seconds)) }

    /// The same store in a new process.
    func relaunched() -> CachingWorld { CachingWorld(store: self.store, start: self.now) }

    func client(
        _ transport: any HTTPTransport,
        viewer: String? = nil,
        authenticator: (any HTTPAuthenticator)? = nil,
        _ change: (inout HTTPClient.Configuration) -> Void = { _ in }
    ) -> HTTPClient {
        var configuration = HTTPClient.Configuration()
        configuration.clock = self.clock
        let (start, clock) = (self.start, self.clock)
        configuration.wallTime = { start.addingTimeInterval(TimeInterval(clock.now.offset.components.seconds)) }
        configuration.viewer = viewer
        change(&configuration)
        return HTTPClient(configuration: configuration, transport: transport, authenticator: authenticator)
    }
}

/// A server in memory with numbers as resources, whose versions are the entity tags.
final class NumberServer: Sendable {
    struct State: Sendable {
        var versions: [String: Int] = [:]
        var headers: HTTPHeaders = ["Cache-Control": "max-age=10"]
        /// The response to all requests, unless `nil`.
        var instead: HTTPReply?
        var answersConditions = true
    }

    let state = Locked(State())
    private let sent = Locked<[HTTPCall]>([])

    var calls: [HTTPCall] { self.sent.withLock { $0 } }
    /// The conditions of the requests so far.
    var conditions: [String?] { self.calls.map { $0.headers["If-None-Match"] ?? $0.headers["If-Modified-Since"] } }

    var transport: ClosureTransport {
        ClosureTransport { call in
            self.sent.withLock { $0.append(call) }
            return self.state.withLock { state in
                if let instead = state.instead { return instead }
                let path = call.url.path()
                guard call.method == "GET" else {
                    state.versions[path, default: 1] += 1
                    return HTTPReply(status: 204)
                }
                let version = state.versions[path, default: 1]
                var headers = state.headers
                headers["ETag"] = "\"\(version)\""
                if state.answersConditions, call.headers["If-None-Match"] == "\"\(version)\"" {
                    return HTTPReply(status: 304, headers: headers)
                }
                return HTTPReply(status: 200, headers: headers, body: Data("{\"version\":\(version)}".utf8))
            }
        }
    }
}

struct Number: Codable, Sendable, Equatable {
    static let decoded = Locked(0)
    var version: Int
}

/// A request for a number of the server.
struct GetNumber: HTTPRequest {
    typealias Output = Number
    var id = "a"
    var host: HTTPHost = "example.com"
    var onDecoding: @Sendable () -> Void = {}
    var endpoint: HTTPEndpoint { .init(scheme: .https, host: self.host, path: "/numbers/{id}") }
    var method: HTTPMethod { .get }
    var pathValues: [String: String] { ["id": self.id] }
    var mapper: HTTPMapper<Number> {
        .init(output: { response in
            self.onDecoding()
            return try JSONDecoder().decode(Number.self, from: response.body)
        })
    }
}

/// A request that changes a number of the server.
struct ChangeNumber: HTTPCommand {
    var id = "a"
    var method = HTTPMethod.post
    var endpoint: HTTPEndpoint { .init(scheme: .https, host: "example.com", path: "/numbers/{id}") }
    var pathValues: [String: String] { ["id": self.id] }
}

extension CachingWorld {
    /// The URL of the calls by ``call(_:_:)``.
    var url: URL { CacheFolder.url("/a") }

    /// A cache of complete responses in front of a simulated server.
    func cache(
        _ options: CachingTransport.Configuration = .init(),
        _ answer: @escaping @Sendable (HTTPCall) async throws -> HTTPReply
    ) -> (CachingTransport, ClosureTransport) {
        let server = ClosureTransport(answer)
        return (CachingTransport(server, options: options, repository: self.repository), server)
    }

    func call(_ method: String = "GET", _ headers: HTTPHeaders = [:]) -> HTTPCall {
        HTTPCall(method: method, url: self.url, headers: headers)
    }
}
