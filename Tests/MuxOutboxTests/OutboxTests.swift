import Foundation
import MuxKit
import MuxNetwork
import MuxOutbox
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct OutboxTests {
    @Test func `OB-01 a change is durable when add returns, and is sent`() async throws {
        let world = OutboxWorld()
        let gate = Gate<Void>()
        world.server.react(.wait { try? await gate.pass() })
        let outbox = world.outbox()

        let id = try await outbox.add(Note("a"))

        let text = try String(contentsOf: world.file, encoding: .utf8)
        #expect(text.contains("\"text\":\"a\""))
        await gate.waitForCall()
        #expect(await outbox.list == ["a sending"])
        gate.open()
        await world.waitForRest(outbox)
        #expect(await outbox.list.isEmpty)
        #expect(world.server.applied.map(\.content) == ["a"])
        #expect(world.server.applied.map(\.key) == [id])
    }

    @Test func `OB-11 add costs one write and one synchronization, for any number of changes`() async throws {
        let world = OutboxWorld(server: FakeChangeServer { _, _ in .refuseConnection })
        let fileSystem = RecordingFileSystem()
        let outbox = world.outbox(fileSystem: fileSystem)
        try await outbox.add(Note("0"))
        await world.waitForRest(outbox)
        fileSystem.restart()

        for number in 1...100 { try await outbox.add(Note("\(number)")) }

        let calls = fileSystem.calls.map(\.operation)
        #expect(calls.count { $0 == .write } == 100)
        #expect(calls.count { $0 == .synchronize } == 100)
        #expect(calls.count <= 700, "\(Set(calls))")
        await world.waitForRest(outbox)
    }

    @Test func `OB-01 the changes of a lane are sent in order, and lanes are sent concurrently`() async throws {
        let world = OutboxWorld()
        let gate = Gate<Void>()
        let server = FakeChangeServer { content, _ in
            content.hasPrefix("a") ? .wait { try? await gate.pass() } : .confirm
        }
        let held = OutboxWorld(world.scratch, server: server)
        let outbox = held.outbox()

        for number in 1...3 { try await outbox.add(Note("a\(number)", in: "a")) }
        for number in 1...3 { try await outbox.add(Note("b\(number)", in: "b")) }

        await gate.waitForCall()
        await server.waitForApplied(4)
        #expect(server.applied.map(\.content).sorted() == ["a1", "b1", "b2", "b3"])
        gate.openForGood(returning: ())
        await held.waitForRest(outbox)
        #expect(server.applied.map(\.content).filter { $0.hasPrefix("a") } == ["a1", "a2", "a3"])
        #expect(server.applied.map(\.content).filter { $0.hasPrefix("b") } == ["b1", "b2", "b3"])
    }

    @Test func `OB-01 a later process sends the changes of an ended process`() async throws {
        let scratch = Scratch()
        do {
            let world = OutboxWorld(scratch)
            world.server.react(.refuseConnection)
            let outbox = world.outbox()
            for number in 1...3 { try await outbox.add(Note("\(number)")) }
            await world.waitForRest(outbox)
            #expect(await outbox.list == ["1 waiting", "2 waiting", "3 waiting"])
        }
        let world = OutboxWorld(scratch)
        let outbox = world.outbox()

        outbox.start()

        await world.server.waitForApplied(3)
        await world.waitForRest(outbox)
        #expect(world.server.applied.map(\.content) == ["1", "2", "3"])
        #expect(await outbox.list.isEmpty)
    }

    @Test func `OB-02 a lost response is repeated with the same key and the flag of an earlier arrival`() async throws {
        let world = OutboxWorld()
        let attempts = Locked<[MuxOutbox<Note>.Attempt]>([])
        let outbox = MuxOutbox<Note>(
            "Notes",
            repository: world.repository,
            directory: world.folder,
            policy: MuxOutboxPolicy(retry: .immediate(maxAttempts: .max)),
            wakingOn: []
        ) { note, attempt in
            attempts.withLock { $0.append(attempt) }
            try await world.server.receive(note.text, key: attempt.idempotencyKey)
        }
        world.server.react(.refuseConnection, .loseResponse, .confirm)

        try await outbox.add(Note("a"))

        await world.server.waitForRequest(3)
        await world.waitForRest(outbox)
        #expect(world.server.applied.count == 1)
        #expect(world.server.repetitionCount == 1)
        let all = attempts.withLock { $0 }
        #expect(all.map(\.number) == [1, 2, 3])
        #expect(all.map(\.mayHaveArrived) == [false, false, true])
        #expect(Set(all.map(\.idempotencyKey)).count == 1)
    }

    @Test func `OB-02 of 1000 changes with lost responses each is applied once`() async throws {
        let lost = Locked<Set<String>>([])
        let server = FakeChangeServer { _, key in
            lost.withLock { $0.insert(key ?? "").inserted } ? .loseResponse : .confirm
        }
        let world = OutboxWorld(server: server)
        let outbox = world.outbox(policy: MuxOutboxPolicy(retry: .immediate(maxAttempts: .max)))

        for number in 0..<1_000 { try await outbox.add(Note("\(number)", in: "\(number % 5)")) }

        await server.waitForApplied(1_000)
        await world.waitForRest(outbox)
        #expect(server.applied.count == 1_000)
        #expect(Set(server.applied.map(\.key)).count == 1_000)
        #expect(server.repetitionCount == 1_000)
        #expect(await outbox.list.isEmpty)
        for lane in 0..<5 {
            let numbers = server.applied.compactMap { Int($0.content) }.filter { $0 % 5 == lane }
            #expect(numbers == numbers.sorted())
        }
    }
}

@Suite(.standard)
struct OutboxFailureTests {
    @Test func `OB-03 a transient failure waits for the delay of the policy`() async throws {
        let world = OutboxWorld()
        let policy = MuxOutboxPolicy(retry: .fixed(.seconds(10), maxAttempts: .max, jitter: .none))
        let outbox = world.outbox(policy: policy)
        world.server.react(.refuse(status: 500, "Broken."), .loseRequest)

        try await outbox.add(Note("a"))

        await world.waitForRest(outbox)
        #expect(world.server.requestCount == 1)
        #expect(await outbox.list == ["a waiting"])
        world.clock.advance(by: .seconds(9))
        #expect(world.server.requestCount == 1)
        world.clock.advance(by: .seconds(1))
        await world.server.waitForRequest(2)
        await world.waitForRest(outbox)
        world.clock.advance(by: .seconds(10))
        await world.server.waitForApplied()
        await world.waitForRest(outbox)
        #expect(await outbox.list.isEmpty)
    }

    @Test func `OB-03 a lane waits for Retry-After, and not longer than a call of retryNow`() async throws {
        let world = OutboxWorld()
        let outbox = world.outbox(policy: MuxOutboxPolicy(retry: .immediate(maxAttempts: .max)))
        world.server.react(.busy(retryAfter: .seconds(100)), .busy(retryAfter: .seconds(100)))

        try await outbox.add(Note("a"))

        await world.waitForRest(outbox)
        world.clock.advance(by: .seconds(99))
        #expect(world.server.requestCount == 1)
        world.clock.advance(by: .seconds(1))
        await world.server.waitForRequest(2)
        await world.waitForRest(outbox)
        outbox.retryNow()
        await world.server.waitForApplied()
        await world.waitForRest(outbox)
        #expect(world.clock.now.offset == .seconds(100))
    }

    @Test func `OB-03 a discarded change does not end the Retry-After of another change`() async throws {
        let world = OutboxWorld()
        let outbox = world.outbox()
        world.server.react(.refuse(status: 422, "No."), .busy(retryAfter: .seconds(100)))
        let id = try await outbox.add(Note("1"))
        try await outbox.add(Note("2"))
        await world.server.waitForRequest(2)
        await world.waitForRest(outbox)

        try await outbox.discard(id)

        await world.waitForRest(outbox)
        #expect(await outbox.list == ["2 waiting"])
        #expect(world.server.requestCount == 2)
        world.clock.advance(by: .seconds(100))
        await world.server.waitForApplied()
        await world.waitForRest(outbox)
    }

    @Test func `OB-03 a lane waits for an event, such as the return of the network`() async throws {
        let world = OutboxWorld()
        let network = Locked<(@Sendable () -> Void)?>(nil)
        let wakeUp = RetrySignal.WakeUp { wake in
            network.withLock { $0 = wake }
            return { network.withLock { $0 = nil } }
        }
        let outbox = world.outbox(
            policy: MuxOutboxPolicy(
                retry: RetryPolicy(
                    maxAttempts: .max,
                    backoff: .fixed(.seconds(3_600)),
                    jitter: .none,
                    wakeJitter: .zero
                )
            ),
            wakingOn: [wakeUp]
        )
        world.server.react(.refuseConnection)
        try await outbox.add(Note("a"))
        await world.waitForRest(outbox)
        let wake = await settled {
            network.withLock { $0 }
        } when: {
            $0 != nil
        }

        wake?()

        await world.server.waitForApplied()
        await world.waitForRest(outbox)
        #expect(world.clock.now.offset == .zero)
    }

    @Test func `OB-03 a refused change is kept with the message of the server, and blocks no change`() async throws {
        let isDeleted = Locked(true)
        let server = FakeChangeServer { content, _ in
            content == "1" && isDeleted.withLock { $0 } ? .refuse(status: 409, "The post was deleted.") : .confirm
        }
        let world = OutboxWorld(server: server)
        let outbox = world.outbox()

        let id = try await outbox.add(Note("1", in: "a"))
        try await outbox.add(Note("2", in: "a"))
        try await outbox.add(Note("3", in: "b"))

        await world.server.waitForApplied(2)
        await world.waitForRest(outbox)
        let refused = "1 refused(\"The post was deleted.\")"
        #expect(await outbox.list == [refused])
        #expect(world.events.count(of: .changeFailed) == 1)
        // The failure is also known after a relaunch.
        let later = world.relaunched()
        let again = later.outbox()
        #expect(await again.list == [refused])
        await later.waitForRest(again)
        #expect(world.server.requestCount == 3)

        isDeleted.withLock { $0 = false }
        try await again.retry(id)

        await world.server.waitForApplied(3)
        await later.waitForRest(again)
        #expect(await again.list.isEmpty)
        #expect(world.server.applied.last?.key != id, "a server may have stored the refusal with the key")
    }

    @Test func `OB-03 a failed change blocks exactly the changes named by blocked(by:)`() async throws {
        let world = OutboxWorld()
        let outbox = world.outbox().blocked { later, failed in later.text.hasPrefix(failed.text) }
        world.server.react(.refuse(status: 422, "No."))

        let id = try await outbox.add(Note("1"))
        for text in ["1a", "2", "1ab", "3"] { try await outbox.add(Note(text)) }

        await world.server.waitForApplied(2)
        await world.waitForRest(outbox)
        #expect(world.server.applied.map(\.content) == ["2", "3"])
        #expect(await outbox.list == ["1 refused(\"No.\")", "1a waiting", "1ab waiting"])

        try await outbox.discard(id)

        await world.server.waitForApplied(4)
        await world.waitForRest(outbox)
        #expect(world.server.applied.map(\.content) == ["2", "3", "1a", "1ab"])
    }

    @Test func `OB-03 without keys a change with a lost response is listed as unknown, and not sent again`()
        async throws
    {
        let world = OutboxWorld()
        let policy = MuxOutboxPolicy(retry: .immediate(maxAttempts: .max), serverDetectsRepetitions: false)
        let outbox = world.outbox(policy: policy)
        world.server.react(.refuseConnection, .loseResponse)

        let id = try await outbox.add(Note("1"))
        try await outbox.add(Note("2"))

        await world.server.waitForApplied(2)
        await world.waitForRest(outbox)
        #expect(await outbox.list == ["1 unknown"])
        #expect(world.server.requestCount == 3)
        try await outbox.retry(id)
        await world.server.waitForRequest(4)
        await world.waitForRest(outbox)
        #expect(await outbox.list.isEmpty)
    }

    @Test(arguments: [425, 429, 503])
    func `OB-03 without keys a change is sent again after a status that says "later"`(status: Int) async throws {
        let world = OutboxWorld()
        let outbox = world.outbox(
            policy: MuxOutboxPolicy(retry: .immediate(maxAttempts: .max), serverDetectsRepetitions: false)
        )
        world.server.react(.refuse(status: status, "Later."))

        try await outbox.add(Note("1"))

        await world.waitForRest(outbox)
        #expect(await outbox.list.isEmpty)
        #expect(world.server.applied.map(\.content) == ["1"])
    }

    /// The error of a request that replaced a processed change after a redirection.
    private func laterFailure(_ status: HTTPStatus) throws -> HTTPError {
        let url = try #require(URL(string: "https://host/changes"))
        let request = HTTPCall(method: "POST", url: url)
        return .status(.init(HTTPResponse(request: request, status: status, url: url.appending(path: "1"))))
    }

    @Test func `OB-03 without keys a change is not sent again after a 503 of a redirection to GET`() async throws {
        let world = OutboxWorld()
        let policy = MuxOutboxPolicy(retry: .immediate(maxAttempts: .max), serverDetectsRepetitions: false)
        let failure = try self.laterFailure(503)
        let outbox = world.outbox(policy: policy, received: { throw failure })

        try await outbox.add(Note("1"))

        await world.server.waitForApplied(1)
        await world.waitForRest(outbox)
        #expect(await outbox.list == ["1 unknown"])
        #expect(world.server.requestCount == 1)
    }

    @Test func `OB-03 a change keeps its key after a 404 of a redirection to GET`() async throws {
        let world = OutboxWorld()
        let failure = try self.laterFailure(404)
        let outbox = world.outbox(received: { throw failure })
        let id = try await outbox.add(Note("1"))
        await world.server.waitForApplied(1)
        await world.waitForRest(outbox)
        #expect(await outbox.list.first?.hasPrefix("1 refused") == true)

        try await outbox.retry(id)

        await world.server.waitForRequest(2)
        await world.waitForRest(outbox)
        #expect(world.server.applied.map(\.content) == ["1"])
    }

    /// An error of the app's own client.
    private struct APIError: WrappingError {
        let wrappedError: (any Error)?
    }

    @Test func `OB-03 without a dependency, the lane waits after a wrapped refusal of the token`() async throws {
        let url = try #require(URL(string: "https://host/changes"))
        let request = HTTPCall(method: "POST", url: url)
        let refusal = HTTPError.status(.init(HTTPResponse(request: request, status: 401, url: url)))
        for error in [BadDependency(), refusal] as [any Error] {
            let world = OutboxWorld()
            let failures = Locked<[any Error]>([APIError(wrappedError: error)])
            let outbox = world.outbox(
                policy: MuxOutboxPolicy(retry: .fixed(.seconds(10), maxAttempts: .max, jitter: .none)),
                received: { if let error = failures.withLock({ $0.popLast() }) { throw error } }
            )
            try await outbox.add(Note("1"))
            await world.waitForRest(outbox)
            #expect(await outbox.list == ["1 waiting"])

            world.clock.advance(by: .seconds(10))

            await world.server.waitForRequest(2)
            await world.waitForRest(outbox)
            #expect(await outbox.list.isEmpty)
        }
    }

    @Test func `OB-03 a wrapped 401 of a redirection to GET is no refusal of the token`() async throws {
        let world = OutboxWorld()
        let failure = APIError(wrappedError: try self.laterFailure(401))
        let outbox = world.outbox(received: { throw failure })

        try await outbox.add(Note("1"))

        await world.server.waitForApplied(1)
        await world.waitForRest(outbox)
        #expect(await outbox.list.first?.hasPrefix("1 refused") == true)
    }

    @Test func `OB-03 a policy without further attempts ends in a failure`() async throws {
        let world = OutboxWorld()
        let outbox = world.outbox(policy: MuxOutboxPolicy(retry: .immediate(maxAttempts: 2)))
        world.server.react(.refuse(status: 500, "Broken."), .refuse(status: 500, "Broken."))

        try await outbox.add(Note("1"))
        try await outbox.add(Note("2"))

        await world.server.waitForApplied(1)
        await world.waitForRest(outbox)
        #expect(await outbox.list == ["1 refused(\"Broken.\")"])
    }

    @Test func `OB-03 offline, a single lane tries, and all lanes continue after its success`() async throws {
        let isOffline = Locked(true)
        let server = FakeChangeServer { _, _ in isOffline.withLock { $0 } ? .refuseConnection : .confirm }
        let world = OutboxWorld(server: server)
        let policy = MuxOutboxPolicy(retry: .fixed(.seconds(60), maxAttempts: .max, jitter: .none))
        let outbox = world.outbox(policy: policy)
        for number in 0..<50 { try await outbox.add(Note("\(number)", in: "\(number)")) }
        await world.waitForRest(outbox)
        let attempts = server.requestCount
        #expect(attempts <= 5)

        isOffline.withLock { $0 = false }
        world.clock.advance(by: .seconds(60))

        await server.waitForApplied(50)
        await world.waitForRest(outbox)
        #expect(await outbox.list.isEmpty)
        #expect(server.requestCount == attempts + 50)
    }

    @Test(
        arguments: [
            OAuthError.transport(URLError(.notConnectedToInternet)),
            RunnerError.signInFailed(underlying: URLError(.timedOut)),
        ] as [any Error]
    )
    func `OB-03 without a connection to the token server, a single lane tries`(error: any Error) async throws {
        let world = OutboxWorld()
        let (isOffline, calls) = (Locked(true), Locked(0))
        let policy = MuxOutboxPolicy(retry: .fixed(.seconds(60), maxAttempts: .max, jitter: .none))
        let outbox = world.outbox(
            policy: policy,
            token: {
                calls.withLock { $0 += 1 }
                if isOffline.withLock({ $0 }) { throw error }
                return "token"
            }
        )
        for number in 0..<50 { try await outbox.add(Note("\(number)", in: "\(number)")) }
        await world.waitForRest(outbox)
        #expect(calls.withLock { $0 } <= 5)

        isOffline.withLock { $0 = false }
        world.clock.advance(by: .seconds(60))

        await world.server.waitForApplied(50)
        await world.waitForRest(outbox)
        #expect(await outbox.list.isEmpty)
    }

    @Test func `OB-03 a failure before the request is no attempt, and the lane waits`() async throws {
        let world = OutboxWorld()
        let failures = Locked<[any Error]>([RunnerError.signedOut, CancellationError(), MuxStoreError.noRoom])
        let outbox = world.outbox(
            policy: MuxOutboxPolicy(
                retry: .fixed(.seconds(10), maxAttempts: 1, jitter: .none),
                serverDetectsRepetitions: false
            ),
            token: {
                if let error = failures.withLock({ $0.popLast() }) { throw error }
                return "token"
            }
        )
        try await outbox.add(Note("a"))
        for left in [2, 1, 0] {
            await world.waitForRest(outbox)
            #expect(failures.withLock { $0.count } == left)
            #expect(await outbox.list == ["a waiting"])
            world.clock.advance(by: .seconds(10))
        }
        await world.server.waitForApplied()
        await world.waitForRest(outbox)
        #expect(world.events.count(of: .changeFailed) == 0)
        #expect(world.events.count(of: .changeDelayed) == 3)
    }

    @Test func `OB-03 a lane waits for the disk, also with a policy for no time`() async throws {
        let world = OutboxWorld()
        let (isBroken, refusals) = (Locked(false), Locked(0))
        let fileSystem = RecordingFileSystem { _, call in
            guard isBroken.withLock({ $0 }), call.operation == .lock else { return nil }
            refusals.withLock { $0 += 1 }
            return .refuse(EIO)
        }
        world.server.react(.refuseConnection)
        var retry = RetryPolicy.fixed(.milliseconds(1), maxAttempts: .max, jitter: .none)
        retry.maximumDuration = .milliseconds(10)
        let outbox = world.outbox(policy: MuxOutboxPolicy(retry: retry), fileSystem: fileSystem)
        try await outbox.add(Note("a"))
        await world.waitForRest(outbox)
        isBroken.withLock { $0 = true }

        world.clock.advance(by: .milliseconds(1))
        await world.waitForRest(outbox)
        let first = refusals.withLock { $0 }
        world.clock.advance(by: .milliseconds(900))
        await world.waitForRest(outbox)
        #expect(first > 0 && refusals.withLock { $0 } == first)
        for _ in 0..<10 {
            world.clock.advance(by: .seconds(1))
            await world.waitForRest(outbox)
        }
        isBroken.withLock { $0 = false }
        world.clock.advance(by: .seconds(2))

        await world.server.waitForApplied()
        #expect(world.events.count(of: .changeFailed) == 0)
    }

    @Test func `OB-03 the time limit of the policy counts from the first attempt`() async throws {
        let world = OutboxWorld()
        var retry = RetryPolicy.fixed(.milliseconds(4_500), maxAttempts: .max, jitter: .none)
        retry.maximumDuration = .seconds(5)
        let failures = Locked<[any Error]>([RunnerError.signedOut])
        world.server.react(.refuse(status: 500, "Broken."))
        let outbox = world.outbox(
            policy: MuxOutboxPolicy(retry: retry),
            token: {
                if let error = failures.withLock({ $0.popLast() }) { throw error }
                return "token"
            }
        )
        try await outbox.add(Note("a"))
        await world.waitForRest(outbox)
        // The first step had no token, and no attempt.
        world.clock.advance(by: .seconds(1))
        await world.waitForRest(outbox)
        #expect(world.server.requestCount == 1)
        #expect(await outbox.list == ["a waiting"])

        world.clock.advance(by: .milliseconds(4_500))

        await world.waitForRest(outbox)
        #expect(world.server.applied.map(\.content) == ["a"])
    }

    @Test func `OB-03 a lost response of a discarded change ends the waits for a connection`() async throws {
        let world = OutboxWorld()
        let (gate, isFirst) = (Gate<Void>(), Locked(true))
        let policy = MuxOutboxPolicy(retry: .fixed(.seconds(60), maxAttempts: .max, jitter: .none))
        world.server.react(.confirm, .refuseConnection)
        let outbox = world.outbox(
            policy: policy,
            received: {
                guard
                    isFirst.withLock({ isFirst in
                        defer { isFirst = false }
                        return isFirst
                    })
                else { return }
                try await gate.pass()
                throw URLError(.networkConnectionLost)
            }
        )
        let id = try await outbox.add(Note("a", in: "a"))
        await gate.waitForCall()
        try await outbox.add(Note("b", in: "b"))
        await settled {
            outbox.offlineCount
        } when: {
            $0 == 1
        }
        try await outbox.discard(id)

        gate.open()

        await world.server.waitForApplied(2)
        #expect(world.server.applied.map(\.content) == ["a", "b"])
    }

    @Test func `OB-03 the delay after failures before a request begins again after an attempt`() async throws {
        let world = OutboxWorld()
        let calls = Locked(0)
        let outbox = world.outbox(token: {
            let number = calls.withLock { calls in
                calls += 1
                return calls
            }
            // The third and the fifth call get a token.
            if [3, 5].contains(number) { return "token" }
            throw MuxStoreError.noRoom
        })
        for text in ["a", "b"] { try await outbox.add(Note(text)) }
        for (delay, count) in [(1, 2), (2, 4), (1, 5)] {
            await world.waitForRest(outbox)
            world.clock.advance(by: .seconds(delay))
            await world.waitForRest(outbox)
            #expect(calls.withLock { $0 } == count, "after \(delay) s")
        }
        #expect(world.server.applied.map(\.content) == ["a", "b"])
    }

    @Test(arguments: [
        RunnerError.critical(underlying: URLError(.userCancelledAuthentication), isOriginator: true),
        .reset, .signedOut, .timedOut(after: .seconds(1)),
    ])
    func `OB-03 without keys a change is unknown if the runner ended its call during the request`(
        error: RunnerError
    ) async throws {
        let world = OutboxWorld()
        let policy = MuxOutboxPolicy(retry: .immediate(maxAttempts: .max), serverDetectsRepetitions: false)
        let outbox = world.outbox(policy: policy, received: { throw error })

        try await outbox.add(Note("1"))

        await world.server.waitForApplied(1)
        await world.waitForRest(outbox)
        #expect(await outbox.list == ["1 unknown"])
        #expect(world.server.requestCount == 1)

        // After a refusal of the token, the change is certainly not applied.
        let failures = Locked<[any Error]>([error])
        let next = OutboxWorld()
        let other = next.outbox(
            policy: policy,
            received: { if let error = failures.withLock({ $0.popLast() }) { throw error } },
            refusesToken: true
        )
        try await other.add(Note("2"))
        await next.waitForRest(other)
        #expect(await other.list.isEmpty)
        #expect(next.server.applied.count == 2)
    }

    @Test func `OB-03 a host that cannot be reached does not stop the lanes of another host`() async throws {
        let server = FakeChangeServer { content, _ in content.hasPrefix("a") ? .refuseConnection : .confirm }
        let world = OutboxWorld(server: server)
        let outbox = world.outbox(
            policy: MuxOutboxPolicy(retry: .fixed(.seconds(10), maxAttempts: .max, jitter: .none))
        )
        try await outbox.add(Note("a", in: "a"))
        await world.waitForRest(outbox)
        for text in ["b", "c", "d"] { try await outbox.add(Note(text, in: text)) }
        await world.waitForRest(outbox)
        #expect(server.applied.isEmpty)

        world.clock.advance(by: .seconds(10))

        await world.waitForRest(outbox)
        #expect(server.applied.map(\.content).sorted() == ["b", "c", "d"])
        #expect(await outbox.list == ["a waiting"])
    }

    @Test func `OB-03 an app's CancellationError is a transient failure`() async throws {
        let world = OutboxWorld()
        let calls = Tally()
        let outbox = MuxOutbox<Note>(
            "Notes",
            repository: world.repository,
            directory: world.folder,
            policy: MuxOutboxPolicy(retry: .immediate(maxAttempts: .max)),
            wakingOn: []
        ) { _, _ in if calls.add() < 3 { throw CancellationError() } }

        try await outbox.add(Note("a"))

        await calls.reached(3)
        await world.waitForRest(outbox)
        #expect(await outbox.list.isEmpty)
    }
}
