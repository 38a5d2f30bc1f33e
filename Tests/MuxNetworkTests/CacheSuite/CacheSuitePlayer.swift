import Foundation
import MuxNetwork
import MuxTesting

/// Makes the cache under test: a new and empty cache over `base`, in virtual time.
typealias CacheSubject =
    @Sendable (
        _ base: any HTTPTransport, _ clock: VirtualClock, _ wallTime: @escaping @Sendable () -> Date
    ) -> any HTTPTransport

/// The outcome of one test without its dependencies.
enum CacheSuiteOutcome: Sendable, Equatable {
    case passed
    case failed(String)
    /// A precondition of the test did not hold, so the test has no result.
    case voided(String)
    /// The client or the cache resent a request, so the test has no result.
    case retried

    var reason: String? {
        switch self {
        case .passed: nil
        case .failed(let reason), .voided(let reason): reason
        case .retried: "retry"
        }
    }
}

/// Runs tests of the suite against a cache: upstream's `test.mjs`, configured as for a browser's cache.
///
/// **Differences.** A pause advances virtual time. The runner looks for field values that must be absent.
/// Upstream never finds such a value, because upstream reads a property that `Headers` does not have. Interim
/// responses do not reach the callers of an `HTTPTransport`, so no interim response counts as received. The
/// cache modes of the Fetch standard become the equivalent request directives.
struct CacheSuitePlayer: Sendable {
    let origin: CacheSuiteOrigin
    let subject: CacheSubject

    private struct Violation: Error {
        var isSetup: Bool
        var message: String
    }

    private static let start = Date(timeIntervalSince1970: 1_782_864_000)
    private static let atOnce = 16

    /// Runs tests, several at a time.
    ///
    /// - Returns: The outcomes by test id.
    func play(_ tests: [CacheSuiteTest]) async -> [String: CacheSuiteOutcome] {
        await withTaskGroup(of: (String, CacheSuiteOutcome).self) { group in
            var outcomes: [String: CacheSuiteOutcome] = [:]
            for (index, test) in tests.enumerated() {
                if index >= Self.atOnce, let (id, outcome) = await group.next() { outcomes[id] = outcome }
                group.addTask { (test.id, await self.play(test)) }
            }
            for await (id, outcome) in group { outcomes[id] = outcome }
            return outcomes
        }
    }

    /// Runs a test with a new cache and a new connection.
    @concurrent
    func play(_ test: CacheSuiteTest) async -> CacheSuiteOutcome {
        let clock = VirtualClock()
        let wallTime: @Sendable () -> Date = {
            Self.start.addingTimeInterval(TimeInterval(clock.now.offset.components.seconds))
        }
        let session = self.origin.open(test, clock: clock, wallTime: wallTime)
        let base = SystemTransport.system(HTTPTransportConfiguration())
        let cache = self.subject(base, clock, wallTime)
        do {
            var replies: [HTTPReply] = []
            for (index, request) in test.requests.enumerated() {
                let call = try self.call(request, number: index + 1, test, session, before: replies.last)
                let reply = try await cache.send(call)
                replies.append(reply)
                try self.check(reply, to: request, number: index + 1, session)
                guard request.pausesAfter else { continue }
                if self.revalidatesBehind(test) { try await self.letWorkEnd(base) }
                clock.advance(by: .seconds(3))
            }
            try self.check(session.seen, test, replies)
            return .passed
        } catch let violation as Violation {
            guard violation.isSetup else { return .failed(violation.message) }
            return violation.message == "retry" ? .retried : .voided(violation.message)
        } catch {
            return .failed("no answer: \(error)")
        }
    }

    // MARK: - Requests

    private func call(
        _ request: CacheSuiteRequest,
        number: Int,
        _ test: CacheSuiteTest,
        _ session: CacheSuiteSession,
        before: HTTPReply?
    ) throws -> HTTPCall {
        guard let url = session.url(of: request) else { throw Violation(isSetup: true, message: "no URL") }
        var call = HTTPCall(method: request.method, url: url)
        let now = request.fixesModifiedSince ? before.flatMap { Self.serverTime(of: $0) } : nil
        for field in request.requestHeaders {
            // Fetch, section 2.2.2: blanks around a value are removed.
            let value = field.text(now: now, datesInRFC850: request.datesInRFC850)
                .trimmingCharacters(in: .whitespaces)
            call.headers.append(value, for: Self.name(field.name))
        }
        if let mode = request.cacheMode, call.headers[.cacheControl] == nil, let directives = Self.directives[mode] {
            call.headers[.cacheControl] = directives
        }
        if let body = request.requestBody {
            call.body = .data(Data(body.utf8))
            if call.headers[.contentType] == nil { call.headers[.contentType] = "text/plain;charset=UTF-8" }
        }
        call.headers.append(test.id, for: "Test-ID")
        call.headers.append(String(number), for: "Req-Num")
        return call
    }

    /// The cache modes of Fetch, section 4.6, as directives of RFC 9111, section 5.2.1.
    private static let directives = [
        "no-store": "no-store", "no-cache": "max-age=0", "reload": "no-cache", "force-cache": "max-stale",
        "only-if-cached": "only-if-cached, max-stale",
    ]

    private func revalidatesBehind(_ test: CacheSuiteTest) -> Bool {
        test.requests.contains { request in
            request.responseHeaders.contains { $0.text(now: nil).contains("stale-while-revalidate") }
        }
    }

    /// Waits for the end of a background revalidation, which upstream's pause of three seconds includes.
    ///
    /// Virtual time includes no time for the revalidation, and a cache does not report the end. So the wait
    /// lasts as long as a number of other exchanges.
    private func letWorkEnd(_ base: any HTTPTransport) async throws {
        let url = self.origin.url.appending(path: "meanwhile")
        for _ in 0..<256 { _ = try await base.send(HTTPCall(url: url)) }
    }

    // MARK: - The client's view

    private func check(
        _ reply: HTTPReply,
        to request: CacheSuiteRequest,
        number: Int,
        _ session: CacheSuiteSession
    ) throws {
        func header(_ name: String) -> String? { reply.headers[Self.name(name)] }
        let numbers = (header("Request-Numbers") ?? "").split(separator: " ")
        try self.expect(Set(numbers).count == numbers.count, isSetup: true, "retry")
        try self.checkType(reply, request, number)
        try self.checkStatus(reply, request, number)

        let isSetup = request.isSetup(.expectedResponseHeaders)
        for expected in request.expectedResponseHeaders {
            let name = expected.name
            let value = header(name)
            switch expected {
            case .named:
                try self.expect(value != nil, isSetup: isSetup, "response \(number) has no \(name)")
            case .field(let field):
                let now = Self.serverTime(of: reply)
                let text = field.text(now: now, base: request.fixesLocations ? header("Server-Base-Url") : nil)
                try self.expect(
                    value == text,
                    isSetup: isSetup,
                    "\(name) of response \(number) is \(Self.quoted(value)), not \(Self.quoted(text))"
                )
            case .sameAs(_, let other):
                try self.expect(
                    value != nil && value == header(other),
                    isSetup: isSetup,
                    "\(name) of response \(number) is \(Self.quoted(value)), \(other) is \(Self.quoted(header(other)))"
                )
            case .greater(_, let least):
                try self.expect(
                    value.flatMap { Int($0) }.map { $0 > least } ?? false,
                    isSetup: isSetup,
                    "\(name) of response \(number) is \(Self.quoted(value)), not greater than \(least)"
                )
            }
        }
        for missing in request.missingResponseHeaders {
            let value = header(missing.name)
            let isMissing =
                if case .field(let field) = missing {
                    value?.contains(field.text(now: nil)) != true
                } else {
                    value == nil
                }
            try self.expect(
                isMissing,
                isSetup: request.isSetup(.expectedResponseHeadersMissing),
                "response \(number) has \(missing.name): \(Self.quoted(value))"
            )
        }
        try self.expect(
            request.expectedInterimResponses.isEmpty,
            isSetup: request.isSetup(.expectedInterimResponses),
            "interim responses do not reach the caller"
        )
        try self.checkBody(reply, request, number, session)
    }

    private func checkType(_ reply: HTTPReply, _ request: CacheSuiteRequest, _ number: Int) throws {
        let count = reply.headers["Server-Request-Count"].flatMap { Int($0) }
        let isSetup = request.isSetup(.expectedType)
        switch request.expectedType {
        case .cached:
            // Some caches omit the field in their own 304.
            let isCached = count.map { $0 < number } ?? (reply.status == 304)
            try self.expect(isCached, isSetup: isSetup, "response \(number) does not come from cache")
        case .notCached:
            try self.expect(count == number, isSetup: isSetup, "response \(number) comes from cache")
        case .etagValidated, .lastModifiedValidated, nil: break
        }
    }

    private func checkStatus(_ reply: HTTPReply, _ request: CacheSuiteRequest, _ number: Int) throws {
        func expect(_ status: Int, isSetup: Bool) throws {
            try self.expect(
                reply.status == status,
                isSetup: isSetup,
                "status of response \(number) is \(reply.status), not \(status)"
            )
        }
        switch (request.expectedStatus, request.responseStatus) {
        case (.value(let status), _): try expect(status, isSetup: request.isSetup(.expectedStatus))
        case (.waived, _): break
        case (.absent, let status?): try expect(status.code, isSetup: true)
        case (.absent, nil) where reply.status == 999:
            let message = "request \(number) should have been conditional"
            throw Violation(isSetup: request.isSetup(.expectedType), message: message)
        case (.absent, nil): try expect(200, isSetup: true)
        }
    }

    private func checkBody(
        _ reply: HTTPReply,
        _ request: CacheSuiteRequest,
        _ number: Int,
        _ session: CacheSuiteSession
    ) throws {
        guard request.checksBody else { return }
        let text = String(decoding: reply.body, as: UTF8.self)
        func expect(_ expected: String, isSetup: Bool) throws {
            try self.expect(
                text == expected,
                isSetup: isSetup,
                "body of response \(number) is \(Self.quoted(text)), not \(Self.quoted(expected))"
            )
        }
        switch (request.expectedText, request.responseBody) {
        case (.value(let expected), _): try expect(expected, isSetup: request.isSetup(.expectedText))
        case (.waived, _): break
        case (.absent, let body?): try expect(body, isSetup: true)
        case (.absent, nil) where reply.status != 204 && reply.status != 304 && request.method != "HEAD":
            try expect(session.token, isSetup: true)
        case (.absent, nil): break
        }
    }

    // MARK: - The server's view

    private func check(_ seen: [CacheSuiteSession.Seen], _ test: CacheSuiteTest, _ replies: [HTTPReply]) throws {
        // The server does not see a request whose response is expected from the cache.
        var left = seen[...]
        for (number, (request, reply)) in zip(1..., zip(test.requests, replies)) where request.expectedType != .cached {
            let isSetup = request.isSetup(.expectedType)
            let atServer = left.popFirst()
            if request.expectedType == .notCached {
                let message = "response \(number) comes from cache"
                try self.expect(try self.sent(atServer, number).number == number, isSetup: isSetup, message)
            }
            if request.expectedType?.isValidated == true {
                try self.expect(atServer != nil, isSetup: isSetup, "request \(number) was not sent")
                let condition = request.expectedType == .etagValidated ? "if-none-match" : "if-modified-since"
                let isConditional = atServer?.headers[condition] != nil
                try self.expect(isConditional, isSetup: isSetup, "request \(number) has no \(condition)")
            }
            try self.checkFields(of: request, atServer, number)
            for field in atServer?.expected ?? [] where !Self.unchecked.contains(field.name.lowercased()) {
                let received = reply.headers[Self.name(field.name)]
                try self.expect(
                    received == field.value,
                    isSetup: true,
                    "\(field.name) of response \(number) is \(Self.quoted(received)), not \(Self.quoted(field.value))"
                )
            }
            if let method = request.expectedMethod {
                let actual = try self.sent(atServer, number).method
                let message = "request \(number) had method \(actual), not \(method)"
                try self.expect(actual == method, isSetup: request.isSetup(.expectedMethod), message)
            }
        }
    }

    private func checkFields(of request: CacheSuiteRequest, _ seen: CacheSuiteSession.Seen?, _ number: Int) throws {
        for (isExpected, fields, member) in [
            (true, request.expectedRequestHeaders, CacheSuiteRequest.CodingKeys.expectedRequestHeaders),
            (false, request.missingRequestHeaders, .expectedRequestHeadersMissing),
        ] {
            for expected in fields {
                let value = try self.sent(seen, number).headers[expected.name.lowercased()]
                let isFound =
                    if case .field(let field) = expected { value == field.text(now: nil) } else { value != nil }
                try self.expect(
                    isFound == isExpected,
                    isSetup: request.isSetup(member),
                    "\(expected.name) of request \(number) is \(Self.quoted(value))"
                )
            }
        }
    }

    /// The request at the server; a missing request is a failure and no setup error, as in upstream.
    private func sent(_ seen: CacheSuiteSession.Seen?, _ number: Int) throws -> CacheSuiteSession.Seen {
        guard let seen else { throw Violation(isSetup: false, message: "request \(number) was not sent") }
        return seen
    }

    /// Fields without a check: upstream skips `Date`, and the Fetch API cannot read `Set-Cookie`.
    private static let unchecked: Set<String> = ["date", "set-cookie", "set-cookie2"]

    // MARK: - Helpers

    private func expect(_ holds: Bool, isSetup: Bool, _ message: @autoclosure () -> String) throws {
        guard !holds else { return }
        throw Violation(isSetup: isSetup, message: message())
    }

    private static func name(_ text: String) -> HTTPHeaders.Name { HTTPHeaders.Name(rawValue: text) ?? "Invalid" }

    private static func quoted(_ text: String?) -> String { text.map { "\"\($0)\"" } ?? "missing" }

    /// The time of the server's clock at the creation of the response.
    private static func serverTime(of reply: HTTPReply) -> Date? {
        reply.headers["Server-Now"].flatMap { Double($0) }.map { Date(timeIntervalSince1970: $0 / 1000) }
    }
}
