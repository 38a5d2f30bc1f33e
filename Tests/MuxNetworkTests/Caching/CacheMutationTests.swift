import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Seeded pairs of requests with mutated fields, judged by a literal model of RFC 9111.
///
/// `MUX_FUZZ=667` makes a million pairs. `MUX_SEED=7` begins with the batch of seed 7.
@Suite(.standard(minutes: 60))
struct CacheMutationTests {
    private let fuzz = FuzzRun()

    init() { self.fuzz.announce() }

    @Test func `HC-04 no mutated response is used where RFC 9111 forbids the use`() async {
        let (batches, lanes) = (repetitions(12) * self.fuzz.factor, 2)
        // With complete batches, an input runs at the same time regardless of the first seed.
        let first = self.fuzz.seed / UInt64(Self.batchSize)
        let tally = Locked(Tally())
        await withTaskGroup { group in
            for lane in 0..<lanes {
                group.addTask {
                    for batch in stride(from: lane, to: batches, by: lanes) {
                        let found = await Self.batch(first &+ UInt64(batch))
                        tally.withLock { $0.add(found) }
                    }
                }
            }
        }
        let total = tally.withLock(\.self)
        if self.fuzz.factor > 1 { print("HC-04: \(total)") }
        for flaw in total.flaws.prefix(10) { Issue.record("\(flaw)") }
        #expect(total.flaws.isEmpty, "\(total.flaws.count) in all")
        // A cache that stores few responses or no responses fails.
        #expect(total.plainHits * 100 > total.plain * 7, "\(total)")
        #expect(total.freshHits * 100 >= total.fresh * 99, "\(total)")
    }

    /// The flaws and counts of a number of inputs.
    private struct Tally: Sendable, CustomStringConvertible {
        var flaws: [String] = []
        var hits = 0
        var forbidden = 0
        /// The inputs without mutations, and the fresh hits of these inputs.
        var plain = 0
        var plainHits = 0
        /// The inputs without mutations that the model calls fresh, and the hits of these inputs.
        var fresh = 0
        var freshHits = 0

        /// Compares the response to the second request with the verdict of the model.
        mutating func note(_ input: MutatedExchange, _ reply: HTTPReply, _ model: LiteralCacheModel, at now: Int) {
            let isHit = reply.headers.cacheStatuses.last?.isHit == true
            let isUsed = reply.headers["X-Answer"] == "1"
            let verdict = model.verdict(input.method, input.request, at: now, .notAsked)
            if case .forbidden = verdict { self.forbidden += 1 }
            self.hits += isHit ? 1 : 0
            if !input.isMutated {
                self.plain += 1
                self.fresh += verdict == .fresh ? 1 : 0
                self.freshHits += verdict == .fresh && isHit ? 1 : 0
                self.plainHits += verdict == .fresh && isHit ? 1 : 0
            }
            if isHit != isUsed, isHit || input.server == .notAsked {
                self.flaws.append("hit: \(isHit), used: \(isUsed): \(input)")
            }
            guard isUsed else { return }
            let judged = isHit ? verdict : model.verdict(input.method, input.request, at: now, input.server)
            if case .forbidden(let reason) = judged { self.flaws.append("\(reason): \(input)") }
            if let flaw = input.flaw(of: reply) { self.flaws.append("\(flaw): \(input)") }
        }

        mutating func add(_ other: Tally) {
            self.flaws += other.flaws
            self.hits += other.hits
            self.forbidden += other.forbidden
            self.plain += other.plain
            self.plainHits += other.plainHits
            self.fresh += other.fresh
            self.freshHits += other.freshHits
        }

        var description: String {
            "\(self.hits) hits, \(self.forbidden) forbidden, \(self.plainHits) hits of \(self.plain) not mutated, "
                + "\(self.freshHits) hits of \(self.fresh) fresh, \(self.flaws.count) flaws"
        }
    }

    private static let batchSize = 500

    /// Runs inputs with separate URLs against one cache.
    private static func batch(_ batch: UInt64) async -> Tally {
        let world = CachingWorld()
        let playing = Locked<(input: MutatedExchange, isFirst: Bool)?>(nil)
        let (cache, _) = world.cache { call in
            // A background revalidation of an earlier input may arrive late.
            guard let (input, isFirst) = playing.withLock(\.self), call.url == input.url else {
                return HTTPReply(status: 500)
            }
            guard isFirst else { return try input.second(to: call) }
            world.clock.advance(by: .seconds(input.delay))
            return input.first
        }
        var tally = Tally()
        let start = Int(world.now.timeIntervalSince1970)
        for number in 0..<self.batchSize {
            let askedAt = start + 200_000 * number
            world.clock.advance(by: .seconds(askedAt - Int(world.now.timeIntervalSince1970)))
            let input = MutatedExchange(seed: batch &* UInt64(self.batchSize) &+ UInt64(number), at: askedAt)
            playing.withLock { $0 = (input, true) }
            do {
                _ = try await cache.send(input.call("GET", input.asked))
                let receivedAt = Int(world.now.timeIntervalSince1970)
                world.clock.advance(by: .seconds(input.wait))
                playing.withLock { $0?.isFirst = false }
                let reply = try await cache.send(input.call(input.method, input.request))
                let model = LiteralCacheModel(
                    asked: input.asked,
                    askedAt: askedAt,
                    receivedAt: receivedAt,
                    status: input.first.status,
                    answer: input.answer
                )
                tally.note(input, reply, model, at: receivedAt + input.wait)
            } catch HTTPError.transport(.closedWithoutResponse, _) where input.server == .unreachable {
                // The correct result if no stored response may be used.
                tally.plain += input.isMutated ? 0 : 1
            } catch {
                tally.flaws.append("threw \(error): \(input)")
            }
        }
        return tally
    }
}

/// The input of a seed: a request, the response, and a second request.
private struct MutatedExchange: CustomStringConvertible {
    typealias Field = LiteralCacheModel.Field

    private struct Lost: Error {}

    private static let whole = "0123456789"

    let seed: UInt64
    let isMutated: Bool
    /// Seconds from the first request to the response, and from the response to the second request.
    let delay: Int
    let wait: Int
    let asked: [Field]
    let status: Int
    let answer: [Field]
    let body: String
    let method: String
    let request: [Field]
    /// The state of the server at the second request; `notAsked` for a server that responds.
    let server: LiteralCacheModel.Server
    private let confirms: Bool

    /// Creates the input of a seed, with the first request at `now`, in seconds since 1970.
    init(seed: UInt64, at now: Int) {
        var draw = FieldDraw(seed: seed, at: now)
        self.seed = seed
        self.isMutated = draw.isMutated
        self.delay = draw.one(of: [0, 0, 0, 0, 1, 7])
        self.wait = draw.one(of: [0, 0, 1, 1, 4, 5, 5, 6, 9, 10, 11, 20, 59, 60, 61, 90, 600, 3600, 86_400])
        let selecting = draw.fields(FieldDraw.selecting)
        let range = draw.chance(10) ? draw.fields(["range": (1, FieldDraw.ranges)]) : []
        self.asked = draw.mutated(selecting + range + draw.fields(["cache-control": (12, FieldDraw.wishes)]))
        var (answer, status, body) = (draw.answer(), draw.one(of: FieldDraw.statuses), Self.whole)
        if !range.isEmpty, !draw.chance(4) {
            let (part, first, count) = draw.one(of: FieldDraw.parts)
            (status, body) = (206, String(Self.whole.dropFirst(first).prefix(count)))
            answer.append(Field(name: "content-range", value: part))
        }
        (self.answer, self.status, self.body) = (draw.mutated(answer), status, body)
        self.method = draw.one(of: Array(repeating: "GET", count: 30) + ["HEAD", "HEAD", "POST"])
        var next = selecting
        if draw.chance(5), !next.isEmpty { next.remove(at: draw.index(next.count)) }
        if draw.chance(8) { next = draw.fields(FieldDraw.selecting) }
        if !range.isEmpty, !draw.chance(4) { next += draw.fields(["range": (1, FieldDraw.ranges)]) }
        self.request = draw.mutated(next + draw.fields(FieldDraw.requests))
        self.server = draw.one(of: [.notAsked, .notAsked, .notAsked, .unreachable, .failing])
        self.confirms = draw.chance(2)
    }

    var url: URL { CacheFolder.url("/\(self.seed)") }

    func call(_ method: String, _ fields: [Field]) -> HTTPCall {
        HTTPCall(method: method, url: self.url, headers: Self.headers(fields))
    }

    private static func headers(_ fields: [Field]) -> HTTPHeaders {
        var headers = HTTPHeaders()
        for field in fields { headers.append(field.value, for: HTTPHeaders.Name(stringLiteral: field.name)) }
        return headers
    }

    /// The response to the first request.
    var first: HTTPReply {
        let marker = [Field(name: "x-answer", value: "1")]
        return HTTPReply(status: self.status, headers: Self.headers(self.answer + marker), body: Data(self.body.utf8))
    }

    /// The response to a later request that reaches the server.
    func second(to call: HTTPCall) throws -> HTTPReply {
        let marker: HTTPHeaders = ["X-Answer": "2"]
        let isConditional = call.headers["If-None-Match"] != nil || call.headers["If-Modified-Since"] != nil
        switch self.server {
        case .unreachable: throw HTTPError.transport(.closedWithoutResponse(Lost()))
        case .failing: return HTTPReply(status: 503, headers: marker)
        case .notAsked where isConditional && self.confirms: return HTTPReply(status: 304, headers: marker)
        case .notAsked: return HTTPReply(status: 200, headers: marker, body: Data("another".utf8))
        }
    }

    /// The difference of `reply` from the first response, or from the announced part of the first response.
    ///
    /// RFC 9111, sections 3.3 and 4.3.2.
    func flaw(of reply: HTTPReply) -> String? {
        let body = String(decoding: reply.body, as: UTF8.self)
        switch reply.status {
        case _ where self.method == "HEAD": return body.isEmpty ? nil : "a body for HEAD"
        case 304:
            guard let tags = reply.headers["ETag"].map({ LiteralText.trimmed($0) }) else { return nil }
            guard let known = self.request.first(where: { $0.name == "if-none-match" })?.value else { return nil }
            let opaque = tags.hasPrefix("W/") ? String(tags.dropFirst(2)) : tags
            return known.contains(opaque) || known.contains("*") ? nil : "a 304 for another version"
        case 206 where !self.isMutated:
            let numbers = reply.headers["Content-Range"].flatMap { LiteralText.numbers($0, "bytes ") } ?? []
            guard numbers.count == 3 else { return nil }
            let places = numbers[0]...numbers[1]
            return body == Self.whole.dropFirst(places.lowerBound).prefix(places.count) ? nil : "other bytes: \(body)"
        case 206: return nil
        default: return body == self.body ? nil : "another body: \(body)"
        }
    }

    var description: String {
        func text(_ fields: [Field]) -> String {
            "[" + fields.map { "\($0.name): \($0.value.debugDescription)" }.joined(separator: ", ") + "]"
        }
        return "MUX_SEED=\(self.seed): \(text(self.asked)), after \(self.delay) s \(self.status) \(text(self.answer)), "
            + "after \(self.wait) s \(self.method) \(text(self.request)), server \(self.server)"
    }
}

/// Draws fields from plausible values, and mutates the values.
private struct FieldDraw {
    typealias Field = LiteralCacheModel.Field
    /// One of `rarity` messages has the field, with one of `values`.
    typealias Choice = (rarity: Int, values: [String])

    private var mutator: Mutator
    private let now: Int
    let isMutated: Bool

    init(seed: UInt64, at now: Int) {
        self.now = now
        self.mutator = Mutator(seed: seed, words: Self.words)
        self.isMutated = Bool.random(using: &self.mutator)
    }

    mutating func index(_ count: Int) -> Int { Int.random(in: 0..<count, using: &self.mutator) }
    mutating func one<T>(of values: [T]) -> T { values[self.index(values.count)] }
    mutating func chance(_ rarity: Int) -> Bool { self.index(rarity) == 0 }

    /// Fields of a message, with several members or two lines of `Cache-Control` and `Vary` in some messages.
    mutating func fields(_ choices: KeyValuePairs<String, Choice>) -> [Field] {
        var fields: [Field] = []
        for (name, choice) in choices where self.chance(choice.rarity) {
            var lines = 1
            if ["cache-control", "vary"].contains(name), self.chance(6) { lines = 2 }
            for _ in 0..<lines {
                var members = [self.one(of: choice.values)]
                while ["cache-control", "vary"].contains(name), self.chance(3) {
                    members.append(self.one(of: choice.values))
                }
                fields.append(Field(name: name, value: members.joined(separator: self.one(of: [", ", ",", " ,\t"]))))
            }
        }
        return fields
    }

    /// The fields of a response.
    mutating func answer() -> [Field] {
        var fields = self.fields(Self.answers)
        if !self.chance(6) { fields += self.fields(["cache-control": (1, Self.directives)]) }
        if !self.chance(4) { fields.append(Field(name: "date", value: self.date([-90, -10, -1, 0, 0, 0, 0, 3]))) }
        if self.chance(3) {
            fields.append(Field(name: "expires", value: self.date([-90, 0, 5, 10, 60, 60, 600, 90_000])))
            if self.chance(8) { fields.append(Field(name: "expires", value: self.one(of: ["0", "-1", ""]))) }
        }
        if self.chance(3) {
            fields.append(Field(name: "last-modified", value: self.date([-1, -60, -600, -9_000_000])))
        }
        return fields
    }

    /// A date with an offset in seconds from the first request, in one of the three formats.
    private mutating func date(_ offsets: [Int]) -> String {
        var seconds = time_t(self.now + self.one(of: offsets))
        var parts = tm()
        gmtime_r(&seconds, &parts)
        let form = self.one(of: [
            "%a, %d %b %Y %H:%M:%S GMT", "%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT",
            "%a %b %e %H:%M:%S %Y",
        ])
        var bytes = [CChar](repeating: 0, count: 64)
        let count = strftime(&bytes, bytes.count, form, &parts)
        return String(decoding: bytes.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    /// Mutates values of some fields, with at most one byte of obs-text per value (RFC 9110, section 5.5).
    mutating func mutated(_ fields: [Field]) -> [Field] {
        guard self.isMutated else { return fields }
        return fields.map { field in
            guard !self.chance(3) else { return field }
            var obsText = 0
            let scalars = self.mutator.mutated(Array(field.value.utf8)).filter { byte in
                if byte >= 0x80 { obsText += 1 }
                return byte == 9 || (32..<127).contains(byte) || byte >= 0x80 && obsText == 1
            }
            return Field(name: field.name, value: String(String.UnicodeScalarView(scalars.map { Unicode.Scalar($0) })))
        }
    }

    // MARK: - Plausible values

    static let statuses = Array(repeating: 200, count: 24) + [203, 404, 410, 301, 302, 307, 500, 299, 599]
    static let ranges = ["bytes=0-4", "bytes=2-3", "bytes=0-", "bytes=-3", "bytes=5-20", "bytes=0-0,3-4"]
    static let parts = [("bytes 0-4/10", 0, 5), ("bytes 2-9/10", 2, 8), ("bytes 0-9/10", 0, 10), ("bytes 5-6/*", 5, 2)]

    static let wishes = [
        "no-cache", "no-store", "max-age=0", "max-age=5", "max-age=60", "min-fresh=5", "min-fresh=60", "max-stale",
        "max-stale=5", "max-stale=60", "only-if-cached", "no-transform", "stale-if-error=60", "max-age=\"5\"", "x",
    ]

    static let directives = [
        "max-age=5", "max-age=10", "max-age=60", "max-age=60", "max-age=600", "max-age=600", "max-age=86400",
        "max-age=3600", "max-age=90000",
        "max-age=0", "max-age=2147483648", "max-age=99999999999999999999", "max-age=1.5", "max-age=-1",
        "max-age=\"60\"", "MAX-AGE=60", "no-cache", "no-store", "No-Store", "private", "public", "must-revalidate",
        "must-understand", "immutable", "s-maxage=0", "s-maxage=600", "proxy-revalidate", "no-transform",
        "stale-while-revalidate=10", "stale-while-revalidate=600", "stale-if-error=60", "no-cache=\"Set-Cookie\"",
        "private=\"Set-Cookie\"", "x=\"a, no-store, b\"", "community=\"\\\"\"", "pre-check=0",
    ]

    static let selecting: KeyValuePairs<String, Choice> = [
        "accept": (4, ["text/html", "application/json;q=0.5, */*", "*/*"]),
        "accept-language": (3, ["en", "de, en;q=0.5", "EN", ""]),
        "accept-encoding": (6, ["gzip", "gzip , br", "identity"]),
        "authorization": (8, ["Bearer a", "Bearer b"]),
        "cookie": (6, ["a=b", "a=c; d=e"]),
        "x-key": (4, ["1", "2", "a, b", "A", "\"a , b\""]),
    ]

    static let requests: KeyValuePairs<String, Choice> = [
        "cache-control": (6, Self.wishes), "pragma": (12, ["no-cache"]), "range": (12, Self.ranges),
        "if-none-match": (12, ["\"1\"", "W/\"1\", \"2\"", "*"]), "if-match": (60, ["\"1\""]),
        "if-modified-since": (20, ["Sun, 06 Nov 1994 08:49:37 GMT"]), "if-range": (60, ["\"1\""]),
    ]

    static let answers: KeyValuePairs<String, Choice> = [
        "age": (4, ["0", "5", "60", "599", "5, 60", "-1", "1.5", "2147483648", "99999999999999999999"]),
        "etag": (3, ["\"1\"", "W/\"1\"", "\"\"", "1"]),
        "vary": (
            4, ["Accept", "accept-language", "Accept-Encoding", "X-Key", "Cookie", "Authorization", "User-Agent", "*"]
        ),
        "pragma": (12, ["no-cache"]), "warning": (12, ["110 - \"stale\"", "299 - \"x\""]),
        "content-encoding": (12, ["identity", "x-a"]), "set-cookie": (8, ["a=b"]),
        "connection": (12, ["close", "Cache-Control", "Age, Vary", "Expires"]),
        "content-type": (4, ["text/plain"]), "content-location": (20, ["/a"]),
    ]

    private static let words: [[UInt8]] = [
        ",", ", ", "\"", "\\", "=", ";", "*", " ", "  ", "\t", "-", "0", "1", "9", "+1", "0x10", "1e9", "GMT", "gmt",
        "UTC",
        "94", "1994", "2094", "no-store", "no-cache", "no-cache,", "max-age=", "max-age=1", "max-age",
        "must-revalidate",
        "immutable", "public", "stale-while-revalidate=9", "stale-if-error=9", "max-stale", "min-fresh=1", "Cookie",
        "X-Key", "Vary", "W/", "\u{e9}", "Sun, 06 Nov 1994 08:49:37 GMT", "18446744073709551616", "bytes", ":", "/",
    ].map { Array($0.utf8) }
}
