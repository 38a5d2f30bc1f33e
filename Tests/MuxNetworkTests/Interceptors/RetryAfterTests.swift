import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// A host receives no requests during the pause of its `Retry-After` field.
@Suite(.standard)
struct RetryAfterTests {
    private let world = CachingWorld()
    private let server = NumberServer()

    private func busy(_ status: Int, _ retryAfter: String?) {
        let headers: HTTPHeaders = retryAfter.map { ["Retry-After": $0] } ?? [:]
        self.server.state.withLock { $0.instead = HTTPReply(status: status, headers: headers) }
    }

    private func timeLeft(_ error: any Error) -> Duration? {
        guard let error = error as? HTTPError, case .transport(.serverBusy(let time), _) = error else { return nil }
        return time
    }

    @Test(arguments: [(503, "7"), (429, "7"), (403, "7"), (503, "7.0"), (503, "Sun, 06 Nov 1994 08:49:44 GMT")])
    func `N04 after a Retry-After of seven seconds the host gets no request for seven seconds`(
        status: Int,
        text: String
    ) async throws {
        let client = self.world.client(self.server.transport)
        self.busy(status, text)
        await #expect { try await client.execute(GetNumber()) } throws: { ($0 as? HTTPError)?.status?.code == status }
        self.server.state.withLock { $0.instead = nil }

        for second in 0..<7 {
            let left = Duration.seconds(7 - second)
            await #expect { try await client.execute(GetNumber(id: "\(second)")) } throws: { self.timeLeft($0) == left }
            await #expect { try await client.execute(ChangeNumber()) } throws: { self.timeLeft($0) == left }
            self.world.clock.advance(by: .seconds(1))
        }
        #expect(self.server.calls.count == 1)

        #expect(try await client.execute(GetNumber()).output.version == 1)
        #expect(self.server.calls.count == 2)
    }

    @Test func `N04 a date in Retry-After is relative to the server's clock`() async throws {
        let client = self.world.client(self.server.transport)
        let headers: HTTPHeaders = [
            "Date": "Sun, 06 Nov 1994 07:00:00 GMT", "Retry-After": "Sun, 06 Nov 1994 07:00:07 GMT",
        ]
        self.server.state.withLock { $0.instead = HTTPReply(status: 503, headers: headers) }
        _ = try? await client.execute(GetNumber())

        await #expect { try await client.execute(GetNumber()) } throws: { self.timeLeft($0) == .seconds(7) }
    }

    @Test func `N04 the pause is for the host of the response, and not for the host that redirected`() async throws {
        let busy = try #require(URL(string: "https://busy.example.com/numbers/a"))
        let (server, sent) = (self.server, Locked(0))
        let transport = ClosureTransport { call in
            let isFirst = sent.withLock { sent in
                sent += 1
                return sent == 1
            }
            guard isFirst else { return try await server.transport.send(call) }
            return HTTPReply(status: 503, headers: ["Retry-After": "7"], url: busy)
        }
        let client = self.world.client(transport)
        _ = try? await client.execute(GetNumber())

        #expect(try await client.execute(GetNumber()).output.version == 1)
        await #expect { try await client.execute(GetNumber(host: "busy.example.com")) } throws: {
            self.timeLeft($0) == .seconds(7)
        }
    }

    @Test func `N04 hosts whose pause is over are removed`() async throws {
        let interceptor = RetryAfterInterceptor(time: TimeSource(self.world.clock), wallTime: { self.world.now })
        self.busy(503, "7")
        for number in 0..<100 {
            let url = try #require(URL(string: "https://\(number).example.com/"))
            let call = try ValidatedCall(HTTPCall(url: url))
            _ = try await interceptor.send(call) { try await self.server.transport.exchange($0) }
            self.world.clock.advance(by: .seconds(1))
        }
        #expect(interceptor.count <= 7)
    }

    @Test func `N04 other hosts receive requests during the pause`() async throws {
        let client = self.world.client(self.server.transport)
        self.busy(503, "7")
        _ = try? await client.execute(GetNumber())
        self.server.state.withLock { $0.instead = nil }

        for host in ["example.org", "example.com:8443", "www.example.com"] {
            let request = GetNumber(host: HTTPHost(host))
            #expect(try await client.execute(request).output.version == 1)
        }
        #expect(self.server.calls.count == 4)
    }

    @Test(arguments: [
        (503, nil), (503, "soon"), (503, "-7"), (503, "0"), (500, "7"), (200, "7"), (301, "7"), (502, "7"),
    ])
    func `N04 another status or an invalid Retry-After does not pause a host`(status: Int, text: String?) async throws {
        let client = self.world.client(self.server.transport)
        self.busy(status, text)

        for _ in 0..<2 { _ = try? await client.response(to: GetNumber()) }

        #expect(self.server.calls.count == 2)
    }

    @Test func `N04 the pause of a host has a maximum`() async throws {
        let client = self.world.client(self.server.transport)
        self.busy(503, "99999999999999999999")
        _ = try? await client.execute(GetNumber())
        self.server.state.withLock { $0.instead = nil }

        self.world.clock.advance(by: FailurePause.longestRetryAfter - .seconds(1))
        await #expect { try await client.execute(GetNumber()) } throws: { self.timeLeft($0) == .seconds(1) }
        self.world.clock.advance(by: .seconds(1))
        _ = try await client.execute(GetNumber())
    }

    @Test func `N04 a later and shorter Retry-After does not shorten the pause`() async throws {
        let (long, short) = (Gate<Void>(), Gate<Void>())
        let transport = ClosureTransport { call in
            let isLong = call.url.path() == "/numbers/long"
            try await (isLong ? long : short).pass()
            return HTTPReply(status: 503, headers: ["Retry-After": isLong ? "7" : "1"])
        }
        let client = self.world.client(transport)
        async let first = client.response(to: GetNumber(id: "long"))
        async let second = client.response(to: GetNumber(id: "short"))
        await long.waitForCall(1)
        await short.waitForCall(1)
        long.open()
        _ = try await first
        short.open()
        _ = try await second

        self.world.clock.advance(by: .seconds(6))
        await #expect { try await client.response(to: GetNumber()) } throws: { self.timeLeft($0) == .seconds(1) }
    }

    @Test func `N04 a stale value is served during the pause`() async throws {
        let client = self.world.client(self.server.transport)
        let number = client.multiplexer(cacheKey: "Number", repository: self.world.repository, GetNumber())
        _ = try await number.request()
        self.world.clock.advance(by: .seconds(10))
        self.busy(503, "7")

        #expect(try await number.requestEntry().staleReason == .fetchFailed)
        self.world.clock.advance(by: .seconds(3))
        #expect(try await number.requestEntry().staleReason == .backingOff)
        #expect(self.server.calls.count == 2)
        self.server.state.withLock { $0.instead = nil }
        self.world.clock.advance(by: .seconds(4))
        #expect(try await number.requestEntry().isStale == false)
    }

    @Test func `N04 the retry advice contains the remaining pause`() {
        let error = HTTPError.transport(.serverBusy(retryAfter: .seconds(7)))
        #expect(error.retryAdvice == RetryAdvice(isTransient: true, retryAfter: .seconds(7)))
        #expect(error.isConnectivityFailure && !error.isBadDependency)
        #expect(error.description.contains("7"))
    }

    @Test func `N04 a download is not sent during the pause`() async throws {
        struct Sink: HTTPSink {
            func receive(head: HTTPReply) throws {}
            func receive(_ bytes: Data) throws {}
        }
        let interceptor = RetryAfterInterceptor(time: TimeSource(self.world.clock), wallTime: { self.world.now })
        let call = try ValidatedCall(HTTPCall(url: try #require(URL(string: "https://example.com/numbers/a"))))
        let download = { (call: ValidatedCall) in try await self.server.transport.stream(call.call, into: Sink()) }
        self.busy(503, "7")
        #expect(try await interceptor.send(call, next: download).status == 503)

        await #expect {
            try await interceptor.send(call, next: download)
        } throws: {
            self.timeLeft($0) == .seconds(7)
        }
        #expect(self.server.calls.count == 1)
    }

    // MARK: - WR-07

    @Test(arguments: [(403, "60"), (429, "60"), (503, "59.5"), (503, "Sun, 06 Nov 1994 08:50:37 GMT"), (500, "60")])
    func `WR-07 200 requests for a stale value send one request during the time of Retry-After`(
        status: Int,
        text: String
    ) async throws {
        let client = self.world.client(self.server.transport)
        let policy = MuxPolicy(staleWhileRevalidate: .seconds(100_000))
        let number = client.multiplexer(policy: policy, repository: self.world.repository, GetNumber())
        let map = client.multiplexerMap(policy: policy, repository: self.world.repository) { GetNumber(id: $0) }
        _ = try await (number.request(), map.request(key: "b"))
        self.world.clock.advance(by: .seconds(10))
        let headers: HTTPHeaders = ["Retry-After": text, "Date": "Sun, 06 Nov 1994 08:49:37 GMT"]
        self.server.state.withLock { $0.instead = HTTPReply(status: status, headers: headers) }

        for _ in 0..<200 {
            #expect(try await number.request().version == 1)
            // The first failure may pause all requests to the host, so the renewal of the number runs first.
            _ = await settledOccupancy { number.occupancy }
            #expect(try await map.request(key: "b").version == 1)
            _ = await settledOccupancy { map.occupancy }
        }
        self.world.clock.advance(by: .seconds(59))
        for _ in 0..<5 {
            _ = try await (number.request(), map.request(key: "b"))
            _ = await settledOccupancy { number.occupancy }
            _ = await settledOccupancy { map.occupancy }
        }

        #expect(self.server.calls.count { $0.url.path() == "/numbers/a" } == 2)
        #expect(self.server.calls.count { $0.url.path() == "/numbers/b" } <= 3)
        self.server.state.withLock { $0.instead = nil }
        self.world.clock.advance(by: .seconds(61))
        _ = try await number.request()
        _ = await settledOccupancy { number.occupancy }
        #expect(try await number.requestEntry().isStale == false)
    }

    @Test func `WR-07 no redirection leads to a host during its pause`() async throws {
        let asked = Locked<[String]>([])
        let transport = ExchangeTransport(clock: self.world.clock) { call, sink in
            asked.withLock { $0.append(call.url.absoluteString) }
            let isBusy = call.url.host() == "busy.example.com"
            let target = call.url.path() == "/numbers/c" ? "https://idle.example.com/c" : "https://busy.example.com/x"
            let isTarget = call.url.host() != "example.com"
            let reply =
                isBusy
                ? HTTPReply(status: 503, headers: ["Retry-After": "1.5"])
                : isTarget
                    ? HTTPReply(status: 200, headers: [:]) : HTTPReply(status: 302, headers: ["Location": target])
            try await sink.receive(head: reply)
            if isTarget, !isBusy { try await sink.receive(Data("{\"version\":1}".utf8)) }
            return [:]
        }
        let client = self.world.client(transport)
        await #expect { try await client.execute(GetNumber(id: "a")) } throws: {
            ($0 as? HTTPError)?.status?.code == 503
        }

        for _ in 0..<20 {
            await #expect { try await client.execute(GetNumber(id: "b")) } throws: {
                self.timeLeft($0) == .milliseconds(1500)
            }
        }
        #expect(try await client.execute(GetNumber(id: "c")).output.version == 1, "elsewhere")
        #expect(asked.withLock { $0.count { $0.hasPrefix("https://busy.") } } == 1)

        self.world.clock.advance(by: .milliseconds(1500))
        await #expect { try await client.execute(GetNumber(id: "b")) } throws: {
            ($0 as? HTTPError)?.status?.code == 503
        }
        #expect(asked.withLock { $0.count { $0.hasPrefix("https://busy.") } } == 2)
    }
}
