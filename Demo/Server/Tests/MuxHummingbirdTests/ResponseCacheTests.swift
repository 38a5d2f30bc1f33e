import Foundation
import HTTPTypes
import Hummingbird
import MuxKit
import MuxNetwork
import Synchronization
import Testing

@testable import MuxHummingbird

@Suite(.timeLimit(.minutes(2)))
struct ResponseCacheTests {
    private static let fresh: HTTPFields = [.cacheControl: "max-age=60"]

    // MARK: - Storing

    @Test func `NB-04 a fresh response is sent without the handler, with its own fields`() async throws {
        let server = try await HandlerServer { _, number in
            .text("\(number)", [.cacheControl: "max-age=60, stale-while-revalidate=5", .vary: "Accept-Language"])
        }
        let first = try await server.send("/a?b")
        let second = try await server.send("/a?b")
        #expect(String(decoding: second.body, as: UTF8.self) == "1")
        #expect(try await server.text("/a?c") == "2")
        for reply in [first, second] {
            #expect(reply.headers[.cacheControl] == "max-age=60, stale-while-revalidate=5")
            #expect(reply.headers[.vary] == "Accept-Language")
            #expect(reply.headers.fields.allSatisfy { !$0.name.canonical.hasPrefix("mux-") })
        }
        #expect(first.headers[.age] == nil && second.headers[.age] != nil)
        #expect(second.headers[.cacheStatus]?.contains("hit") == true)
        #expect(server.cache.statistics.hits == 1)
    }

    @Test(arguments: [
        nil, "no-store", "private, max-age=60", "private=\"a, b\", max-age=60", "max-age=0", "s-maxage=0, max-age=60",
    ])
    func `NB-04 the handler forbids or does not grant a lifetime`(control: String?) async throws {
        let server = try await HandlerServer { _, number in
            .text("\(number)", control.map { [.cacheControl: $0] } ?? [:])
        }
        #expect(try await server.text("/") == "1")
        let reply = try await server.send("/")
        #expect(reply.body == Data("2".utf8))
        #expect(reply.headers[.cacheControl] == control)
    }

    @Test(arguments: ["s-maxage=60", "s-maxage=60, max-age=0", "max-age=0, s-maxage=\"60\"", "public, max-age=60"])
    func `NB-04 a shared lifetime counts, also for personal requests`(control: String) async throws {
        let server = try await HandlerServer { _, number in .text("\(number)", [.cacheControl: control]) }
        #expect(try await server.text("/", ["Authorization": "Bearer a"]) == "1")
        #expect(try await server.text("/", ["Cookie": "b=c"]) == "1")
        #expect(try await server.text("/") == "1")
        #expect(try await server.send("/").headers[.cacheControl] == control)
    }

    @Test func `NB-04 a response with Set-Cookie is not stored`() async throws {
        let server = try await HandlerServer { _, number in
            .text("\(number)", [.cacheControl: "public, max-age=60", .setCookie: "session=\(number)"])
        }
        #expect(try await server.send("/").headers[.setCookie] == "session=1")
        #expect(try await server.send("/").headers[.setCookie] == "session=2")
    }

    // MARK: - Users

    @Test(arguments: ["Authorization", "Cookie"])
    func `NB-04 a user gets neither another user's response nor the public response`(name: String) async throws {
        let server = try await HandlerServer { request, number in
            let user = request.headers[HTTPField.Name(name) ?? .cookie] ?? "nobody"
            return .text("\(user) \(number)", Self.fresh)
        }
        let name = HTTPHeaders.Name(stringLiteral: name)
        #expect(try await server.text("/") == "nobody 1")
        #expect(try await server.text("/", [name: "a"]) == "a 2")
        #expect(try await server.text("/", [name: "b"]) == "b 3")
        #expect(try await server.text("/", [name: "a"]) == "a 4")
        #expect(try await server.text("/") == "nobody 1")
        #expect(try await server.text("/", ["Mux-Personal": "1"]) == "nobody 1")
    }

    @Test func `NB-04 a personal response without Cache-Control stays without`() async throws {
        let server = try await HandlerServer { _, number in .text("\(number)") }
        #expect(try await server.send("/", "GET", [.cookie: "a=b"]).headers[.cacheControl] == nil)
    }

    @Test func `NB-04 requests do not wait for a personal request, and share one call`() async throws {
        let (arrivals, arrival) = AsyncStream<Void>.makeStream()
        let (starts, start) = AsyncStream<Void>.makeStream()
        let server = try await HandlerServer { request, _ in
            let isPersonal = request.headers.contains(.cookie)
            if isPersonal { start.yield() }
            for await _ in arrivals {}
            return .text(isPersonal ? "personal" : "shared", Self.fresh)
        }
        let texts = try await withThrowingTaskGroup(of: String.self) { group in
            group.addTask { try await server.text("/", [.cookie: "a=b"]) }
            for await _ in starts { break }
            for _ in 0..<100 { group.addTask { try await server.text("/") } }
            while server.cache.statistics.requests < 50 { await Task.yield() }
            arrival.finish()
            return try await group.reduce(into: [:]) { $0[$1, default: 0] += 1 }
        }
        #expect(texts == ["personal": 1, "shared": 100])
        #expect(server.requests.count == 2)
    }

    @Test func `NB-04 the app decides which requests are personal`() async throws {
        let cache = ResponseCacheMiddleware<BasicRequestContext>(isPersonal: { request, _ in
            request.uri.queryParameters["user"] != nil
        })
        let server = try await HandlerServer(cache) { _, number in .text("\(number)", Self.fresh) }
        #expect(try await server.text("/", ["Cookie": "theme=dark"]) == "1")
        #expect(try await server.text("/") == "1")
        #expect(try await server.text("/?user=a") == "2")
        #expect(try await server.text("/?user=a") == "3")
    }

    // MARK: - Validation

    @Test func `NB-04 the client's version is current: 304 without the handler`() async throws {
        let server = try await HandlerServer { _, _ in .text("text", Self.fresh) }
        let tag = try #require(try await server.send("/").headers[.eTag])
        let reply = try await server.send("/", "GET", [.ifNoneMatch: "\"x\", \(tag)"])
        #expect(reply.status == 304)
        #expect(reply.body.isEmpty && reply.headers[.eTag] == tag && reply.headers[.contentLength] == nil)
        #expect(try await server.send("/", "GET", [.ifNoneMatch: "\"x\""]).status == 200)
        #expect(server.requests.count == 1)
    }

    @Test func `NB-04 a stale response is validated with the handler's ETag`() async throws {
        let server = try await HandlerServer { request, number in
            if request.headers[.ifNoneMatch] == "\"v1\"" {
                return Response(status: .notModified, headers: [.eTag: "\"v1\""])
            }
            return .text("\(number)", [.cacheControl: "max-age=0", .eTag: "\"v1\""])
        }
        #expect(try await server.text("/") == "1")
        let reply = try await server.send("/")
        #expect(reply.status == 200 && reply.body == Data("1".utf8))
        #expect(server.requests.map { $0.headerFields[.ifNoneMatch] } == [nil, "\"v1\""])
        // The first response to a client with the version.
        let other = try await server.send("/other", "GET", [.ifNoneMatch: "\"v1\""])
        #expect(other.status == 304)
    }

    @Test func `NB-04 Vary separates variants, and parts come from the stored response`() async throws {
        let server = try await HandlerServer { request, number in
            .text(
                "\(request.headers[.acceptLanguage] ?? "-") \(number)",
                [.cacheControl: "max-age=60", .vary: "Accept-Language"]
            )
        }
        #expect(try await server.text("/", [.acceptLanguage: "de"]) == "de 1")
        #expect(try await server.text("/", [.acceptLanguage: "fr"]) == "fr 2")
        #expect(try await server.text("/", [.acceptLanguage: "de"]) == "de 1")
        let part = try await server.send("/", "GET", [.acceptLanguage: "fr", .range: "bytes=0-1"])
        #expect(part.status == 206 && part.body == Data("fr".utf8))
        let head = try await server.send("/", "HEAD", [.acceptLanguage: "fr"])
        #expect(head.headers[.contentLength] == "4" && server.requests.count == 2)
    }

    @Test func `NB-04 a handler that reads the body may be called twice`() async throws {
        let server = try await HandlerServer { request, number in
            _ = try await request.body.collect(upTo: 1)
            // The validated version is not the version in the condition, so the cache asks without a condition.
            if number == 2 { return Response(status: .notModified, headers: [.eTag: "\"other\""]) }
            return .text("\(number)", [.cacheControl: "max-age=0", .eTag: "\"\(number)\""])
        }
        #expect(try await server.text("/") == "1")
        #expect(try await server.text("/") == "3")
        #expect(server.requests.map { $0.headerFields[.ifNoneMatch] } == [nil, "\"1\"", nil])
    }

    // MARK: - One call

    @Test func `NB-04 1,000 concurrent requests call the handler once`() async throws {
        let (arrivals, arrival) = AsyncStream<Void>.makeStream()
        let server = try await HandlerServer { _, number in
            // Ends after many requests have arrived.
            for await _ in arrivals { break }
            return .text("\(number)", Self.fresh)
        }
        let texts = try await withThrowingTaskGroup(of: String.self) { group in
            for _ in 0..<1_000 { group.addTask { try await server.text("/") } }
            while server.cache.statistics.requests < 100 { await Task.yield() }
            arrival.finish()
            return try await group.reduce(into: [:]) { $0[$1, default: 0] += 1 }
        }
        #expect(texts == ["1": 1_000])
        #expect(server.requests.count == 1)
    }

    // MARK: - Removal

    @Test func `NB-04 a group is removed, by the app and by a change`() async throws {
        let server = try await HandlerServer { request, number in
            guard request.method == .get else {
                return .text("", [.cacheGroupInvalidation: "\"a\\\"b\""])
            }
            return .text("\(number)", [.cacheControl: "max-age=60", .cacheGroups: "\"x\", \"a\\\"b\"; p=1, token"])
        }
        #expect(try await server.text("/1") == "1")
        #expect(try await server.text("/2") == "2")
        await server.cache.clear(group: "token")
        #expect(try await server.text("/1") == "1")
        await server.cache.clear(group: "x")
        #expect(try await server.text("/1") == "3")
        #expect(try await server.text("/2") == "4")
        _ = try await server.send("/other", "POST")
        #expect(try await server.text("/1") == "6")
        await server.cache.clear()
        #expect(try await server.text("/1") == "7")
    }

    @Test func `NB-04 a response of a group that is removed meanwhile is not stored`() async throws {
        let cache = ResponseCacheMiddleware<BasicRequestContext>()
        let server = try await HandlerServer(cache) { _, number in
            if number == 1 { await cache.clear(group: "a") }
            return .text("\(number)", [.cacheControl: "max-age=60", .cacheGroups: "\"a\""])
        }
        #expect(try await server.text("/") == "1")
        #expect(try await server.text("/") == "2")
        #expect(try await server.text("/") == "2")
    }

    @Test(arguments: ["POST", "PUT", "DELETE"])
    func `NB-04 a change removes the response of its URL`(method: String) async throws {
        let server = try await HandlerServer { _, number in .text("\(number)", Self.fresh) }
        #expect(try await server.text("/") == "1")
        #expect(try await server.send("/", method).body == Data("2".utf8))
        #expect(try await server.text("/") == "3")
    }

    // MARK: - Failures

    @Test func `NB-04 an error of the handler is not stored, and keeps its response`() async throws {
        let server = try await HandlerServer { _, number in
            guard number > 1 else { throw HTTPError(.conflict, headers: Self.fresh, message: "no") }
            return .text("\(number)", Self.fresh)
        }
        let reply = try await server.send("/")
        #expect(reply.status == 409 && String(decoding: reply.body, as: UTF8.self).contains("no"))
        #expect(try await server.text("/") == "2")
    }

    @Test func `NB-04 a stored response replaces an error only with stale-if-error`() async throws {
        let server = try await HandlerServer { request, number in
            struct Failure: Error {}
            guard number < 3 else { throw Failure() }
            return .text(
                "\(number)",
                [
                    .cacheControl: request.uri.path == "/a" ? "max-age=0, stale-if-error=60" : "max-age=0",
                    .eTag: "\"\(number)\"",
                ]
            )
        }
        #expect(try await server.text("/a") == "1")
        #expect(try await server.text("/b") == "2")
        #expect(try await server.text("/a") == "1")
        #expect(try await server.send("/b").status == 500)
    }

    @Test func `NB-04 redirections, pauses and Clear-Site-Data are for the client`() async throws {
        let server = try await HandlerServer { request, number in
            switch request.uri.path {
            case "/moved": Response(status: .movedPermanently, headers: [.cacheControl: "max-age=60", .location: "/"])
            case "/busy": .text("\(number)", [.retryAfter: "60"], status: .serviceUnavailable)
            case "/out": .text("\(number)", [HTTPField.Name("Clear-Site-Data") ?? .server: "\"cache\""])
            default: .text("\(number)", Self.fresh)
            }
        }
        #expect(try await server.text("/") == "1")
        #expect(try await server.send("/busy").headers[.retryAfter] == "60")
        #expect(try await server.send("/out").headers["Clear-Site-Data"] == "\"cache\"")
        #expect(try await server.text("/new") == "4")
        #expect(try await server.text("/") == "1")
        // The client follows the stored redirection.
        #expect(try await server.text("/moved") == "1")
        #expect(try await server.text("/moved") == "1")
        #expect(server.requests.count == 5)
    }

    @Test func `NB-04 a long body and a body of unknown length are sent unchanged`() async throws {
        let cache = ResponseCacheMiddleware<BasicRequestContext>(bodyLimit: 1_000)
        let server = try await HandlerServer(cache) { request, _ in
            let isLong = request.uri.path == "/long"
            return Response(
                status: .ok,
                headers: Self.fresh,
                body: .init(contentLength: isLong ? 2_000 : nil) { writer in
                    for _ in 0..<2 { try await writer.write(ByteBuffer(repeating: 1, count: 1_000)) }
                    try await writer.finish(nil)
                }
            )
        }
        for path in ["/long", "/stream"] {
            for _ in 0..<2 { #expect(try await server.send(path).body.count == 2_000) }
        }
        #expect(server.requests.count == 4)
    }

    @Test(arguments: ["/a%2Fb", "/%61", "/../a", "/a/./b", "//a", "/a?b=%7e"])
    func `NB-04 another spelling of a URL gets no stored response of the URL`(path: String) async throws {
        let server = try await HandlerServer { request, _ in .text(request.head.path ?? "", Self.fresh) }
        for known in ["/a", "/a/b", "/a?b=~"] { _ = try await server.text(known) }
        let before = server.requests.count
        let target = try await server.text(path)
        #expect(server.requests.count == before + 1)
        #expect(server.requests.last?.path == target)
    }

    @Test(arguments: [
        ("/a b", "h"), ("/a|b", "h"), ("/%zz", "h"), ("/%6", "h"), ("/a#b", "h"), ("a", "h"), ("*", "h"), ("", "h"),
        ("/a", ""), ("/a", "h/b"), ("/a", "b@h"), ("/a", "h?"), ("/a", "h h"),
    ])
    func `NB-04 a target that is not a path and query is for the handler only`(target: String, host: String) {
        func call(_ target: String, _ host: String) -> HTTPCall? {
            let head = HTTPTypes.HTTPRequest(method: .get, scheme: "http", authority: host, path: target)
            return SharedCacheRules.call(for: Request(head: head, body: .init(buffer: .init())), isPersonal: false)
        }
        #expect(call(target, host) == nil)
        #expect(call("/a", "h")?.url.absoluteString == "http://h/a")
    }

    @Test func `NB-04 the groups have a limit`() throws {
        let groups = CacheGroups(limit: 300)
        let urls = try (0..<3).map { try #require(URL(string: "http://h/\($0)")) }
        let began = groups.begin()
        #expect(groups.add(["a", "b"], urls[0], began) == .added)
        #expect(groups.add(["a"], urls[0], began) == .added)
        #expect(groups.clear("b") == [urls[0]])
        #expect(groups.add(["a"], urls[1], began) == .added)
        #expect(groups.add(["b"], urls[1], began) == .outdated)
        #expect(groups.add(["a"], urls[2], began) == .full)
        groups.clear()
        #expect(groups.clear("a") == [])
        groups.end()
        #expect(groups.add(["b"], urls[0], groups.begin()) == .added)
        // Without a place in the list, each clearing counts for all groups.
        for number in 0..<2_000 { _ = groups.clear("\(number)") }
        #expect(groups.add(["c"], urls[0], began) == .outdated)
        #expect(groups.add([], urls[0], began) == .added)
        #expect(groups.add(["c"], urls[0], groups.begin()) == .added)
    }

    // MARK: - Updates

    @Test func `NB-04 a 304 of the handler that sets a cookie validates for one client`() async throws {
        let server = try await HandlerServer { request, number in
            let fields: HTTPFields = [.cacheControl: "public, max-age=0", .eTag: "\"v\""]
            guard request.headers[.ifNoneMatch] != nil, number < 4 else { return .text("\(number)", fields) }
            return Response(status: .notModified, headers: [.eTag: "\"v\"", .setCookie: "session=\(number)"])
        }
        #expect(try await server.text("/") == "1")
        let reply = try await server.send("/")
        #expect(reply.status == 200 && reply.body == Data("1".utf8))
        #expect(reply.headers[.setCookie] == "session=2")
        #expect(reply.headers[.cacheControl] == "public, max-age=0")
        // The response with the cookie is not stored.
        let next = try await server.send("/")
        #expect(next.headers[.setCookie] == nil && next.body == Data("3".utf8))
    }

    @Test func `NB-04 a personal request validates a shared response with a 304 without fields`() async throws {
        let server = try await HandlerServer { request, number in
            if request.headers[.ifNoneMatch] != nil { return Response(status: .notModified, headers: [.eTag: "\"v\""]) }
            return .text("\(number)", [.cacheControl: "public, max-age=0", .eTag: "\"v\"", .vary: "Accept"])
        }
        for headers: HTTPHeaders in [[:], [.cookie: "a=b"], [:]] {
            let reply = try await server.send("/", "GET", headers)
            #expect(reply.status == 200 && reply.body == Data("1".utf8))
            #expect(reply.headers[.cacheControl] == "public, max-age=0" && reply.headers[.vary] == "Accept")
        }
        let own = try await server.send("/", "GET", [.ifNoneMatch: "\"v\"", .cacheControl: "no-cache"])
        #expect(own.status == 304 && own.headers[.cacheControl] == nil && own.headers[.vary] == nil)
    }

    @Test func `NB-04 HEAD neither prolongs an outdated response nor removes its fields`() async throws {
        let server = try await HandlerServer { request, number in
            var response = Response.text("\(number)", [.cacheControl: "max-age=0, stale-if-error=60"])
            if request.uri.path == "/tagged" {
                response.headers[.eTag] = "\"v\""
                if request.method == .head { response.headers[.cacheControl] = nil }
            }
            return response
        }
        _ = try await server.send("/tagged")
        let head = try await server.send("/tagged", "HEAD")
        #expect(head.headers[.eTag] == "\"v\"" && head.headers[.cacheControl] == nil && head.headers[.vary] == nil)
        #expect(try await server.send("/", "HEAD").headers[.eTag] != nil)
    }

    @Test func `NB-04 a GET with a body over HTTP 2 gives the handler no body`() throws {
        let head = HTTPTypes.HTTPRequest(method: .get, scheme: "https", authority: "h", path: "/")
        let request = Request(head: head, body: .init(buffer: ByteBuffer(string: "x")))
        let call = try #require(SharedCacheRules.call(for: request, isPersonal: false))
        #expect(call.url.scheme == "https")
        #expect("\(SharedCacheRules(call).conditional(request, [:]).body)".contains("x") == false)
    }

    @Test func `NB-04 a change of another spelling removes its groups`() async throws {
        let server = try await HandlerServer { request, number in
            guard request.method == .get else { return .text("", [.cacheGroupInvalidation: "\"a\""]) }
            return .text("\(number)", [.cacheControl: "max-age=60", .cacheGroups: "\"a\""])
        }
        #expect(try await server.text("/") == "1")
        _ = try await server.send("/%61", "PUT")
        #expect(try await server.text("/") == "3")
    }

    @Test func `NB-04 middleware that was added twice handles a request once`() async throws {
        let cache = ResponseCacheMiddleware<BasicRequestContext>()
        let server = try await HandlerServer(cache, isTwice: true) { _, number in .text("\(number)", Self.fresh) }
        #expect(try await server.text("/") == "1")
        #expect(try await server.text("/") == "1")
    }

    @Test func `NB-04 a body of another length than announced is an error`() async throws {
        let server = try await HandlerServer { request, _ in
            let count = request.uri.path == "/long" ? 3 : 1
            return Response(
                status: .ok,
                headers: Self.fresh,
                body: .init(contentLength: 2) { writer in
                    try await writer.write(ByteBuffer(repeating: 1, count: count))
                    try await writer.finish(nil)
                }
            )
        }
        #expect(try await server.send("/long").status == 500)
        #expect(try await server.send("/short").status == 500)
    }

    @Test func `NB-04 the writer of a body without bytes runs`() async throws {
        let written = Mutex(0)
        let server = try await HandlerServer { _, _ in
            Response(
                status: .ok,
                headers: Self.fresh,
                body: .init(contentLength: 0) { writer in
                    written.withLock { $0 += 1 }
                    try await writer.finish(nil)
                }
            )
        }
        _ = try await server.send("/")
        _ = try await server.send("/other", "HEAD")
        #expect(written.withLock { $0 } == 2)
    }
}
