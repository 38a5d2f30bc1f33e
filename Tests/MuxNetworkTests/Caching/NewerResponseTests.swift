import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@testable import MuxNetwork

/// A newer response replaces an older response, even if the newer response is not stored.
///
/// RFC 9111, sections 4 and 4.3.3.
@Suite(.standard)
struct NewerResponseTests {
    private let world = CachingWorld()

    private static let long = String(repeating: "x", count: 200)
    private static let reload: HTTPHeaders = ["Cache-Control": "no-cache"]

    private static func reply(_ text: String, _ headers: HTTPHeaders, status: Int = 200) -> HTTPReply {
        HTTPReply(status: status, headers: headers, body: Data(text.utf8))
    }

    /// Responses that are not stored, but replace the stored response.
    private static let superseding: [HTTPReply] = [
        reply("2", ["Cache-Control": "no-store"]),
        reply("2", ["Cache-Control": "no-store", "ETag": "\"1\""]),
        reply("2", ["Cache-Control": "max-age=0"]),
        reply("2", ["Cache-Control": "max-age=0, must-revalidate"]),
        reply("2", [:]),
        reply("2", ["Cache-Control": "max-age=60", "Vary": "*"]),
        reply(long, ["Cache-Control": "max-age=60"]),
        reply(long, ["Cache-Control": "max-age=60", "Content-Length": "200"]),
        reply("2", [:], status: 201), reply("", [:], status: 204), reply("", [:], status: 205),
        reply("", [:], status: 300), reply("", [:], status: 301), reply("", [:], status: 302),
        reply("", [:], status: 400), reply("", [:], status: 401), reply("", [:], status: 403),
        reply("", [:], status: 404), reply("", [:], status: 410), reply("", [:], status: 451),
    ]

    private static func options(_ folder: CacheFolder? = nil) -> CachingTransport.Configuration {
        var options = CachingTransport.Configuration()
        options.bodyLimit = 100
        options.memoryBodyLimit = 100
        guard let folder else { return options }
        options.cacheKey = "HTTP"
        options.memoryBodyLimit = 10
        options.directory = folder.url
        return options
    }

    /// A cache in front of a server that returns these responses in turn, and then fails.
    private func cache(_ replies: [HTTPReply], _ options: CachingTransport.Configuration = options()) -> (
        CachingTransport, ClosureTransport
    ) {
        let left = Locked(replies[...])
        return self.world.cache(options) { _ in
            guard let reply = left.withLock({ $0.popFirst() }) else {
                throw HTTPError.transport(.closedWithoutResponse(FetchLost()))
            }
            return reply
        }
    }

    // MARK: - (a) Not stored

    @Test(arguments: superseding)
    func `WR-11 a newer response that is not stored removes the older response`(newer: HTTPReply) async throws {
        let (cache, server) = self.cache([Self.reply("1", ["Cache-Control": "max-age=1000", "ETag": "\"1\""]), newer])
        _ = try await cache.send(self.world.call())
        #expect(try await cache.send(self.world.call()).headers.cacheStatuses.last?.isHit == true)

        #expect(try await cache.send(self.world.call("GET", Self.reload)).status == newer.status)

        let offline = try? await cache.send(self.world.call())
        #expect(offline?.body != Data("1".utf8))
        #expect(server.calls.count == 3)
        #expect(server.calls.last?.headers["If-None-Match"] == nil)
        #expect(await settledOccupancy { cache.occupancy } == (0, 0, 0))
    }

    @Test(arguments: superseding, ["1", String(repeating: "1", count: 50)])
    func `WR-11 a replaced response is gone from disk at once`(newer: HTTPReply, body: String) async throws {
        let folder = try CacheFolder()
        let options = Self.options(folder)
        do {
            let (cache, _) = self.cache([Self.reply(body, ["Cache-Control": "max-age=1000"]), newer], options)
            _ = try await cache.send(self.world.call())
            await self.world.repository.saveAll()
            _ = try await cache.send(self.world.call("GET", Self.reload))
        }

        // The process ends without another save.
        let next = self.world.relaunched()
        let server = ClosureTransport { _ in Self.reply("3", [:]) }
        let cache = CachingTransport(server, options: options, repository: next.repository)
        #expect(try await cache.send(next.call()).body == Data("3".utf8))
        #expect(server.calls.count == 1)
        #expect(try folder.files().isEmpty)
    }

    /// Sends two calls, and ends the process without a save after the second response.
    ///
    /// - Returns: The next response in the next process, and the number of its requests to the server.
    private func afterRelaunch(_ replies: [HTTPReply], _ second: HTTPCall) async throws -> (Data, Int) {
        let folder = try CacheFolder()
        let options = Self.options(folder)
        do {
            let (cache, _) = self.cache(replies, options)
            _ = try await cache.send(self.world.call())
            await self.world.repository.saveAll()
            _ = try await cache.send(second)
        }
        let next = self.world.relaunched()
        let server = ClosureTransport { _ in Self.reply("3", [:]) }
        let cache = CachingTransport(server, options: options, repository: next.repository)
        return (try await cache.send(next.call()).body, server.calls.count)
    }

    @Test(arguments: ["1", String(repeating: "1", count: 50)])
    func `WR-11 the next process does not use a response without validation after a change`(body: String)
        async throws
    {
        let replies = [Self.reply(body, ["Cache-Control": "max-age=1000"]), Self.reply("", [:], status: 204)]
        let next = try await self.afterRelaunch(replies, self.world.call("PUT"))
        #expect(next == (Data("3".utf8), 1))
    }

    @Test func `WR-11 the next process validates a response whose order is disputed`() async throws {
        let dates = ["Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:27 GMT"]
        let replies = dates.map { Self.reply("1", ["Cache-Control": "max-age=1000", "Date": $0]) }
        let next = try await self.afterRelaunch(replies, self.world.call("GET", Self.reload))
        #expect(next == (Data("3".utf8), 1))
    }

    @Test(arguments: superseding)
    func `WR-11 a validation that yields a new response leaves no old response for offline use`(newer: HTTPReply)
        async throws
    {
        let (cache, server) = self.cache([Self.reply("1", ["Cache-Control": "max-age=10", "ETag": "\"0\""]), newer])
        _ = try await cache.send(self.world.call())
        self.world.clock.advance(by: .seconds(11))
        #expect(try await cache.send(self.world.call()).status == newer.status)
        #expect(server.calls.last?.headers["If-None-Match"] == "\"0\"")

        let offline = try? await cache.send(self.world.call("GET", ["Cache-Control": "max-stale"]))
        #expect(offline?.body != Data("1".utf8))
        #expect(server.calls.count == 3)
    }

    @Test(arguments: superseding)
    func `WR-11 a background revalidation with a new response ends the use of the old response`(newer: HTTPReply)
        async throws
    {
        let swr: HTTPHeaders = ["Cache-Control": "max-age=10, stale-while-revalidate=1000", "ETag": "\"0\""]
        let (cache, server) = self.cache([Self.reply("1", swr), newer, Self.reply("3", swr)])
        _ = try await cache.send(self.world.call())
        self.world.clock.advance(by: .seconds(11))
        #expect(try await cache.send(self.world.call()).body == Data("1".utf8))
        #expect(await settledOccupancy { cache.occupancy } == (0, 0, 0))

        #expect(try await cache.send(self.world.call()).body == Data("3".utf8))
        #expect(server.calls.count == 3)
    }

    @Test(arguments: [408, 416, 425, 429, 500, 502, 503, 504])
    func `WR-11 a status that does not describe the resource replaces no stored response`(status: Int) async throws {
        let (cache, server) = self.cache([
            Self.reply("1", ["Cache-Control": "max-age=1000"]), Self.reply("", [:], status: status),
        ])
        _ = try await cache.send(self.world.call())
        #expect(try await cache.send(self.world.call("GET", Self.reload)).status == status)
        #expect(try await cache.send(self.world.call()).body == Data("1".utf8))
        #expect(server.calls.count == 2)
    }

    @Test(arguments: [403, 408, 416, 421, 425, 428, 429, 431, 511])
    func `WR-11 a status about the request replaces no stored response, even with a lifetime`(status: Int) async throws
    {
        var refusal = Self.reply("", ["Cache-Control": "max-age=30"], status: status)
        if status == 403 { refusal.headers["Retry-After"] = "1" }
        let (cache, server) = self.cache([
            Self.reply("1", ["Cache-Control": "max-age=10", "ETag": "\"1\""]), refusal,
        ])
        _ = try await cache.send(self.world.call())
        self.world.clock.advance(by: .seconds(11))
        #expect(try await cache.send(self.world.call()).status == status)
        self.world.clock.advance(by: .seconds(1))
        #expect(try await cache.send(self.world.call()).body == Data("1".utf8))
        #expect(server.calls.map { $0.headers["If-None-Match"] } == [nil, "\"1\"", "\"1\""])
    }

    @Test func `WR-11 the replacement of a variant does not remove other variants`() async throws {
        func call(_ language: String, _ headers: HTTPHeaders = [:]) -> HTTPCall {
            self.world.call("GET", headers.merging(["Accept-Language": language]))
        }
        let vary: HTTPHeaders = ["Cache-Control": "max-age=1000", "Vary": "Accept-Language"]
        let folder = try CacheFolder()
        let options = Self.options(folder)
        let (cache, server) = self.cache(
            [
                Self.reply("de", vary), Self.reply("en", vary),
                Self.reply("en2", vary.merging(["Cache-Control": "no-store"])),
            ],
            options
        )
        for language in ["de", "en"] { _ = try await cache.send(call(language)) }
        await self.world.repository.saveAll()
        _ = try await cache.send(call("en", Self.reload))

        #expect(try await cache.send(call("de")).body == Data("de".utf8))
        await #expect(throws: HTTPError.self) { try await cache.send(call("en")) }
        #expect(server.calls.count == 4)
        let next = self.world.relaunched()
        let again = CachingTransport(
            ClosureTransport { _ in throw HTTPError.transport(.closedWithoutResponse(FetchLost())) },
            options: options,
            repository: next.repository
        )
        #expect(try await again.send(call("de")).body == Data("de".utf8))
        await #expect(throws: HTTPError.self) { try await again.send(call("en")) }
    }

    @Test(arguments: ["X-Name", "Accept-Language"] as [HTTPHeaders.Name])
    func `WR-11 variants whose fields differ in bytes only are different`(name: HTTPHeaders.Name) async throws {
        // The same text in two Unicode forms, and a letter whose lower case is an ASCII letter.
        let values = ["\u{e9}k", "e\u{301}k", "\u{e9}\u{212a}"].map { value -> HTTPHeaders in [name: value] }
        let (cache, server) = self.world.cache { _ in
            Self.reply("", ["Cache-Control": "max-age=1000", "Vary": name.rawValue])
        }
        for _ in 0..<2 {
            for headers in values { _ = try await cache.send(self.world.call("GET", headers)) }
        }
        #expect(server.calls.count == 3)
        // Concurrent requests with the same text share an exchange.
        #expect(Set(values.map { SelectingFields(headers: $0).text(of: [name]) }).count == 3)
    }

    @Test func `WR-11 a response to a request with no-store replaces only another version`() async throws {
        let stored = Self.reply("1", ["Cache-Control": "max-age=1000", "ETag": "\"1\""])
        let (cache, server) = self.cache([stored, stored, Self.reply("2", ["ETag": "\"2\""])])
        let unstored = self.world.call("GET", ["Cache-Control": "no-store"])
        _ = try await cache.send(self.world.call())
        _ = try await cache.send(unstored)
        #expect(try await cache.send(self.world.call()).headers.cacheStatuses.last?.isHit == true)
        #expect(try await cache.send(unstored).body == Data("2".utf8))
        await #expect(throws: HTTPError.self) { try await cache.send(self.world.call()) }
        #expect(server.calls.count == 4)
    }

    @Test(arguments: [("\"2\"", false), ("\"1\"", true), ("W/\"1\"", true)])
    func `WR-11 a 304 to the caller's own condition shows which version is current`(tag: String, stays: Bool)
        async throws
    {
        let (cache, _) = self.cache([
            Self.reply("1", ["Cache-Control": "max-age=10", "ETag": "\"1\""]), HTTPReply(status: 304),
        ])
        _ = try await cache.send(self.world.call())
        self.world.clock.advance(by: .seconds(11))
        #expect(try await cache.send(self.world.call("GET", ["If-None-Match": tag])).status == 304)
        let after = try? await cache.send(self.world.call())
        #expect((after != nil) == stays)
    }

    // MARK: - (b) Pairs of responses and their order

    /// The kind of the server's response.
    enum Kind: String, CaseIterable, Sendable {
        case stored, unstored, missing, part, confirmed
    }

    /// The order of the `Date` fields of the first and the second response.
    enum Dates: CaseIterable, Sendable {
        case none, equal, rising, falling

        func text(_ number: Int) -> String? {
            let seconds =
                switch self {
                case .none: Int?.none
                case .equal: 37
                case .rising: 36 + number
                case .falling: 39 - number
                }
            return seconds.map { "Sun, 06 Nov 1994 08:49:\($0) GMT" }
        }
    }

    private struct Race: Sendable, CustomStringConvertible {
        var kinds: [Kind]
        var dates: Dates
        /// The numbers of the requests in the order in which their responses arrive.
        var ends: [Int]

        static let all: [Race] = Kind.allCases.flatMap { first in
            Kind.allCases.flatMap { second in
                Dates.allCases.flatMap { dates in
                    [[1, 2], [2, 1]].map { Race(kinds: [first, second], dates: dates, ends: $0) }
                }
            }
        }

        var description: String { "\(self.kinds.map(\.rawValue)), dates \(self.dates), ends \(self.ends)" }
        /// The number of the request with the more recent response.
        var winner: Int { self.dates == .falling ? 1 : 2 }

        func reply(_ number: Int) -> HTTPReply {
            var headers: HTTPHeaders = ["Cache-Control": "max-age=1000", "ETag": "\"\(number)\""]
            headers["Date"] = self.dates.text(number)
            switch self.kinds[number - 1] {
            case .stored: return NewerResponseTests.reply(String(number), headers)
            case .unstored:
                headers["Cache-Control"] = "no-store"
                return NewerResponseTests.reply(String(number), headers)
            case .missing:
                (headers["Cache-Control"], headers["ETag"]) = (nil, nil)
                return NewerResponseTests.reply("", headers, status: 404)
            case .part:
                headers["Content-Range"] = "bytes 0-1/10"
                return NewerResponseTests.reply("pp", headers, status: 206)
            case .confirmed:
                headers["ETag"] = "\"0\""
                return HTTPReply(status: 304, headers: headers)
            }
        }

        /// The body that the cache returns afterwards without the server; `nil` if no response is stored.
        var remaining: String? {
            switch self.kinds[self.winner - 1] {
            case .stored: String(self.winner)
            case .confirmed: "0"
            case .unstored, .missing, .part: nil
            }
        }
    }

    @Test(arguments: [false, true])
    func `WR-11 the more recent of two responses applies, regardless of the order of arrival`(onDisk: Bool) async throws
    {
        for race in Race.all {
            let folder = try CacheFolder()
            let gate = Gate<HTTPReply>()
            let world = CachingWorld()
            let (cache, _) = world.cache(Self.options(onDisk ? folder : nil)) { call in
                guard call.headers["Cache-Control"] == nil else { return try await gate.pass() }
                return Self.reply("0", ["Cache-Control": "max-age=1000", "ETag": "\"0\""])
            }
            _ = try await cache.send(world.call())
            if onDisk { await world.repository.saveAll() }
            let calls = race.kinds.map { kind in
                var headers = Self.reload
                if kind == .part { headers["Range"] = "bytes=0-1" }
                return world.call("GET", headers)
            }
            var tasks: [Task<HTTPReply, any Error>] = []
            for (number, call) in zip(1..., calls) {
                tasks.append(Task { try await cache.send(call) })
                await gate.waitForCall(number)
            }
            for number in race.ends {
                gate.open(number, returning: race.reply(number))
                _ = try await tasks[number - 1].value
            }

            let left = try await cache.send(world.call("GET", ["Cache-Control": "only-if-cached"]))
            let body = left.status == 504 ? nil : String(decoding: left.body, as: UTF8.self)
            #expect(body == race.remaining, "\(race)")
            #expect(await settledOccupancy { cache.occupancy } == (0, 0, 0))
        }
    }

    @Test func `WR-11 a slow background revalidation does not replace the response of a reload`() async throws {
        for kind in [Kind.stored, .unstored] {
            let gate = Gate<HTTPReply>()
            let world = CachingWorld()
            let (cache, _) = world.cache { call in
                guard call.headers["X-First"] == nil else {
                    return Self.reply("0", ["Cache-Control": "max-age=10, stale-while-revalidate=1000"])
                }
                return try await gate.pass()
            }
            _ = try await cache.send(world.call("GET", ["X-First": "1"]))
            world.clock.advance(by: .seconds(11))
            #expect(try await cache.send(world.call()).body == Data("0".utf8))
            await gate.waitForCall(1)
            let reload = Task { try await cache.send(world.call("GET", Self.reload)) }
            await gate.waitForCall(2)
            let race = Race(kinds: [.stored, kind], dates: .none, ends: [2, 1])
            gate.open(2, returning: race.reply(2))
            _ = try await reload.value
            gate.open(1, returning: race.reply(1))
            #expect(await settledOccupancy { cache.occupancy } == (0, 0, 0))

            let left = try await cache.send(world.call("GET", ["Cache-Control": "only-if-cached"]))
            #expect(left.status == 504 ? race.remaining == nil : left.body == Data("2".utf8), "\(kind)")
        }
    }

    @Test func `WR-11 parts of one version complete each other in any order`() async throws {
        let gate = Gate<HTTPReply>()
        let (cache, server) = self.world.cache { _ in try await gate.pass() }
        let ranges = ["bytes=0-4", "bytes=5-9"]
        var tasks: [Task<HTTPReply, any Error>] = []
        for (number, range) in zip(1..., ranges) {
            tasks.append(Task { try await cache.send(self.world.call("GET", ["Range": range])) })
            await gate.waitForCall(number)
        }
        for (number, range, text) in [(2, "5-9", "56789"), (1, "0-4", "01234")] {
            let fields: HTTPHeaders = [
                "Cache-Control": "max-age=60", "ETag": "\"1\"", "Content-Range": "bytes \(range)/10",
            ]
            gate.open(number, returning: Self.reply(text, fields, status: 206))
            _ = try await tasks[number - 1].value
        }

        #expect(try await cache.send(self.world.call()).body == Data("0123456789".utf8))
        #expect(server.calls.count == 2)
    }

    @Test func `WR-11 an earlier Date in a later exchange causes one more request`() async throws {
        func reply(_ text: String, _ second: Int) -> HTTPReply {
            Self.reply(
                text,
                [
                    "Cache-Control": "max-age=1000", "ETag": "\"\(text)\"",
                    "Date": "Sun, 06 Nov 1994 08:49:\(second) GMT",
                ]
            )
        }
        let (cache, server) = self.cache([reply("1", 37), reply("2", 30), reply("2", 31)])
        _ = try await cache.send(self.world.call())
        #expect(try await cache.send(self.world.call("GET", Self.reload)).body == Data("2".utf8))

        #expect(try await cache.send(self.world.call()).body == Data("2".utf8))
        #expect(server.calls.last?.headers["If-None-Match"] == "\"1\"")
        #expect(try await cache.send(self.world.call()).headers.cacheStatuses.last?.isHit == true)
        #expect(server.calls.count == 3)
    }

    @Test func `WR-11 Date and the order of exchanges decide which of two responses is newer`() {
        let now = Date(timeIntervalSince1970: 1_000_000)
        func order(_ date: TimeInterval?, _ sent: UInt64, _ completed: UInt64 = 9) -> ResponseOrder {
            ResponseOrder(date: date.map { now.addingTimeInterval($0) }, sent: sent, completed: completed)
        }
        let table: [(ResponseOrder, ResponseOrder, ResponseOrder.Relation)] = [
            (order(nil, 2), order(nil, 1), .newer), (order(nil, 1), order(nil, 2), .older),
            (order(0, 2), order(0, 1), .newer), (order(0, 1), order(0, 2), .older),
            (order(1, 1), order(0, 2), .newer), (order(0, 2), order(1, 1), .older),
            (order(0, 10), order(1, 1), .disputed), (order(nil, 2), order(1, 1), .newer),
            (order(0, 1), order(nil, 2), .older), (order(-5, 1), order(nil, 0, 0), .newer),
            // A `Date` more than an hour ahead comes from a wrong clock.
            (order(0, 10), order(86_400, 1), .newer), (order(86_400, 1), order(0, 2), .older),
            (order(86_400, 10), order(86_401, 1), .disputed),
        ]
        for (new, stored, relation) in table {
            #expect(new.relation(to: stored, at: now) == relation, "\(new) and \(stored)")
        }
    }

    @Test func `WR-11 the record of a URL with many variants has a limit, and no older response is stored`() throws {
        let url = try #require(URL(string: "https://a.example/"))
        let date = Date(timeIntervalSince1970: 1_000_000)
        let now = StoredResponse.Now(moment: Moment(nanoseconds: 0), date: date)
        var exchanges = RunningExchanges()
        exchanges.recordStart(of: url.absoluteString)
        exchanges.recordStart(of: url.absoluteString)
        func request(_ language: Int) throws -> CacheableRequest {
            CacheableRequest(try ValidatedCall(HTTPCall(url: url, headers: [.acceptLanguage: String(language)])))
        }
        let refused = Self.reply("", ["Cache-Control": "no-store", "Vary": "Accept-Language"])
        for number in 0..<1_000 {
            let order = ResponseOrder(date: nil, sent: UInt64(number + 100), completed: UInt64(number + 101))
            let newer = try #require(SupersedingResponse(refused, to: request(number), order, at: date))
            exchanges.recordResponse(newer, of: url.absoluteString, at: date)
        }
        #expect(exchanges.recordedCount(of: url.absoluteString) <= 65)

        let kept = Self.reply("1", ["Cache-Control": "max-age=60", "Vary": "Accept-Language"])
        for (number, sent, isSuperseded) in [(0, 1, true), (999, 1, true), (2_000, 500, true), (999, 2_000, false)] {
            let request = try request(number)
            var response = try #require(
                StoredResponse(kept, to: request, at: now, delay: .zero, heuristicLimit: .zero)
            )
            response.sent = UInt64(sent)
            #expect(
                exchanges.isSuperseded(response, to: request.selectingFields, of: url.absoluteString, at: date)
                    == isSuperseded,
                "\(number) \(sent)"
            )
        }
    }
}
