import Foundation
import MuxConformance
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct LeaseTests {
    /// A file lease whose time of day is that of a virtual clock.
    private static func lease(
        _ scratch: Scratch,
        _ clock: VirtualClock,
        _ fileSystem: any FileSystem = POSIXFileSystem()
    ) -> FileLease {
        FileLease(
            named: "../lease",
            directory: scratch.folder,
            fileSystem: fileSystem,
            wallTime: { World.start.addingTimeInterval(clock.now.offset.secondsValue) },
            time: TimeSource(clock)
        )
    }

    @Test func `L05 the lease in a file is a lease`() async throws {
        let clock = VirtualClock()
        let scratches = Locked<[Scratch]>([])
        try await MuxLeaseConformance.run(
            advancing: { clock.advance(by: $0) },
            of: {
                let scratch = Scratch()
                scratches.withLock { $0.append(scratch) }
                return (Self.lease(scratch, clock), Self.lease(scratch, clock))
            }
        )
    }

    @Test func `L05 a lease that is kept on a server is a lease`() async throws {
        let clock = VirtualClock()
        let servers = Locked<[LoopbackLeaseServer]>([])
        try await MuxLeaseConformance.run(
            advancing: { clock.advance(by: $0) },
            of: {
                let server = LoopbackLeaseServer(clock: clock)
                let port = try server.start()
                servers.withLock { $0.append(server) }
                return (LoopbackLease(port: port), LoopbackLease(port: port))
            }
        )
        for server in servers.withLock({ $0 }) { await server.stop() }
    }

    /// A lease that breaks a rule.
    private struct BrokenLease: MuxLease {
        let base: any MuxLease
        var givesToAnybody = false
        var forgetsToGiveBack = false
        var neverRaises = false

        func take(as owner: String, for duration: Duration) async throws -> MuxLeaseTerm {
            var term = try await self.base.take(as: self.givesToAnybody ? "all" : owner, for: duration)
            if self.givesToAnybody { term.owner = owner }
            if self.neverRaises { term.generation = 1 }
            return term
        }

        func giveBack(_ term: MuxLeaseTerm) async throws {
            if !self.forgetsToGiveBack { try await self.base.giveBack(term) }
        }

        func wait(for term: MuxLeaseTerm) async throws {}
    }

    @Test(arguments: 0..<3)
    func `L05 the conformance suite sees a broken lease`(fault: Int) async throws {
        let clock = VirtualClock()
        let scratch = Scratch()
        await #expect(throws: ConformanceFailure.self) {
            try await MuxLeaseConformance.run(
                advancing: { clock.advance(by: $0) },
                of: {
                    let place = try Scratch(copyOf: scratch)
                    let lease = BrokenLease(
                        base: Self.lease(place, clock),
                        givesToAnybody: fault == 0,
                        forgetsToGiveBack: fault == 1,
                        neverRaises: fault == 2
                    )
                    return (lease, lease)
                }
            )
        }
    }

    @Test func `L02 a clock that was set back keeps nobody waiting for longer than the lease`() async throws {
        let clock = VirtualClock()
        let scratch = Scratch()
        let shift = Locked(TimeInterval(0))
        let lease = FileLease(
            named: "lease",
            directory: scratch.folder,
            fileSystem: POSIXFileSystem(),
            wallTime: { World.start.addingTimeInterval(clock.now.offset.secondsValue + shift.withLock { $0 }) },
            time: TimeSource(clock)
        )
        _ = try await lease.take(as: "dead", for: .seconds(10))
        shift.withLock { $0 = -86_400 }

        let seen = try await lease.take(as: "bob", for: .seconds(10))
        #expect(seen.owner == "dead")
        #expect(seen.remaining <= .seconds(10))
        clock.advance(by: .seconds(10))

        #expect(try await lease.take(as: "bob", for: .seconds(10)).owner == "bob")
    }

    @Test(arguments: [
        "", "garbage", "[]", #"{"generation":-1}"#,
        #"{"generation":18446744073709551615,"owner":"x","deadline":1e300,"seconds":1e300}"#,
        #"{"generation":18446744073709551615,"owner":"x","deadline":-1e300,"seconds":10}"#,
        #"{"generation":1,"owner":"x","deadline":1e300,"seconds":-5}"#,
        #"{"generation":1,"deadline":1e300,"seconds":10}"#,
    ])
    func `L02 a lease file that makes no sense keeps nobody waiting`(content: String) async throws {
        let clock = VirtualClock()
        let scratch = Scratch()
        let lease = Self.lease(scratch, clock)
        let first = try await lease.take(as: "alice", for: .seconds(10))
        let names = try FileManager.default.contentsOfDirectory(atPath: scratch.folder.path)
        let name = try #require(names.first { $0.hasPrefix("lease-") && !$0.hasSuffix(".lock") })
        try Data(content.utf8).write(to: scratch.folder.appending(path: name))

        let term = try await lease.take(as: "bob", for: .seconds(10))
        #expect(term.owner == "bob")
        #expect(try await Self.lease(scratch, clock).take(as: "carol", for: .seconds(10)) == term)
        try await lease.giveBack(first)
        #expect(try await lease.take(as: "carol", for: .seconds(10)).owner == "bob")
        try await lease.giveBack(term)
        #expect(try await lease.take(as: "carol", for: .seconds(Int64.max)).remaining == .seconds(86_400), "a day")
    }

    @Test func `L02 a time far away in a lease file keeps others waiting for the lease and no longer`() async throws {
        let clock = VirtualClock()
        let scratch = Scratch()
        let lease = Self.lease(scratch, clock)
        _ = try await lease.take(as: "alice", for: .seconds(10))
        let names = try FileManager.default.contentsOfDirectory(atPath: scratch.folder.path)
        let name = try #require(names.first { $0.hasPrefix("lease-") && !$0.hasSuffix(".lock") })
        let content = #"{"generation":7,"owner":"x","deadline":1e300,"seconds":10}"#
        try Data(content.utf8).write(to: scratch.folder.appending(path: name))
        let holder = LeaseHolder(lease, owner: "bob", duration: .seconds(10), time: TimeSource(clock))
        let work = Task { try await holder.run { 5 } }
        await clock.waitForSleepers(1)
        clock.advance(by: .seconds(10))
        #expect(try await work.value == 5)
    }

    @Test func `L03 no lock of the system is held between two calls`() async throws {
        let clock = VirtualClock()
        let scratch = Scratch()
        let calls = RecordingFileSystem()
        let holder = LeaseHolder(
            Self.lease(scratch, clock, calls),
            owner: "alice",
            duration: .seconds(10),
            time: TimeSource(clock)
        )
        let gate = Gate<Void>()
        let work = Task { try await holder.run { try await gate.pass() } }
        await gate.waitForCall(1)

        let locks = calls.calls.filter { $0.operation == .lock }.count
        #expect(locks > 0)
        #expect(calls.calls.filter { $0.operation == .unlock }.count == locks)
        // Another open file of the same process would wait for ever.
        #expect(try await Self.lease(scratch, clock).take(as: "bob", for: .seconds(1)).owner == "alice")
        gate.open()
        try await work.value
        #expect(try await Self.lease(scratch, clock).take(as: "bob", for: .seconds(1)).owner == "bob")
    }

    @Test func `L03 every lock is given back before anything else can happen`() async throws {
        let clock = VirtualClock()
        let calls = RecordingFileSystem()
        let lease = Self.lease(Scratch(), clock, calls)
        let term = try await lease.take(as: "alice", for: .seconds(1))
        _ = try await lease.take(as: "bob", for: .seconds(1))
        try await lease.giveBack(term)
        var isHeld = false
        for call in calls.calls {
            if call.operation == .lock {
                #expect(!isHeld)
                isHeld = true
            }
            if call.operation == .unlock { isHeld = false }
        }
        #expect(!isHeld)
    }

    @Test func `L01 a holder that lives has its lease extended until its work is done`() async throws {
        let clock = VirtualClock()
        let scratch = Scratch()
        let holder = LeaseHolder(
            Self.lease(scratch, clock),
            owner: "alice",
            duration: .seconds(9),
            time: TimeSource(clock)
        )
        let gate = Gate<Void>()
        let work = Task { try await holder.run { try await gate.pass() } }
        await gate.waitForCall(1)

        for _ in 0..<10 {
            await clock.waitForSleepers(1)
            clock.advance(by: .seconds(3))
        }
        await clock.waitForSleepers(1)

        #expect(try await Self.lease(scratch, clock).take(as: "bob", for: .seconds(1)).owner == "alice")
        gate.open()
        try await work.value
    }

    @Test func `L01 two who use one holder's lease give it back when the last has ended`() async throws {
        let clock = VirtualClock()
        let scratch = Scratch()
        let holder = LeaseHolder(
            Self.lease(scratch, clock),
            owner: "alice",
            duration: .seconds(9),
            time: TimeSource(clock)
        )
        let gate = Gate<Void>()
        let first = Task { try await holder.run { try await gate.pass() } }
        await gate.waitForCall(1)
        let second = Task { try await holder.run { try await gate.pass() } }
        await gate.waitForCall(2)
        try await holder.runIfFree {}

        gate.open(1)
        try await first.value
        #expect(try await Self.lease(scratch, clock).take(as: "bob", for: .seconds(1)).owner == "alice")
        gate.open(2)
        try await second.value
        #expect(try await Self.lease(scratch, clock).take(as: "bob", for: .seconds(1)).owner == "bob")
    }

    @Test func `L01 what needs the lease now is not done while somebody else has it`() async throws {
        let clock = VirtualClock()
        let scratch = Scratch()
        let holder = LeaseHolder(
            Self.lease(scratch, clock),
            owner: "alice",
            duration: .seconds(9),
            time: TimeSource(clock)
        )
        let term = try await Self.lease(scratch, clock).take(as: "bob", for: .seconds(60))
        let runs = Locked(0)
        try await holder.runIfFree { runs.withLock { $0 += 1 } }
        #expect(runs.withLock { $0 } == 0)
        try await Self.lease(scratch, clock).giveBack(term)
        try await holder.runIfFree { runs.withLock { $0 += 1 } }
        #expect(runs.withLock { $0 } == 1)
        #expect(try await Self.lease(scratch, clock).take(as: "bob", for: .seconds(1)).owner == "bob", "given back")
    }

    /// A lease that somebody else has until its time is up, and that tells nothing, or too much, of its end.
    private struct SilentLease: MuxLease {
        let clock: VirtualClock
        let takes = Locked(0)
        let waits = Locked(0)
        let fails: Bool

        func take(as owner: String, for duration: Duration) async throws -> MuxLeaseTerm {
            self.takes.withLock { $0 += 1 }
            let remaining = .seconds(10) - self.clock.now.offset
            guard remaining > .zero else { return MuxLeaseTerm(owner: owner, generation: 2, remaining: duration) }
            return MuxLeaseTerm(owner: "somebody", generation: 1, remaining: remaining)
        }

        func giveBack(_ term: MuxLeaseTerm) async throws {}
        func wait(for term: MuxLeaseTerm) async throws {
            if self.fails { throw FetchFailed() }
            // So that a holder that heeds this again and again does not keep the test busy for ever.
            if self.waits.next() > 50 { try await self.clock.sleep(for: .seconds(1_000)) }
        }
    }

    @Test(arguments: [true, false])
    func `L02 a lease that cannot tell of its end is waited for, without asking all the time`(fails: Bool) async throws
    {
        let clock = VirtualClock()
        let lease = SilentLease(clock: clock, fails: fails)
        let holder = LeaseHolder(lease, owner: "bob", duration: .seconds(10), time: TimeSource(clock))
        let executor = OrderedExecutor()
        let work = Task(executorPreference: executor) { try await holder.run { 5 } }
        executor.settle()
        #expect(lease.takes.withLock { $0 } == (fails ? 1 : 2))
        clock.advance(by: .seconds(10))
        #expect(try await work.value == 5)
        #expect(lease.takes.withLock { $0 } == (fails ? 2 : 3))
    }

    @Test func `L02 who waits for a lease that is given back goes on at once`() async throws {
        let clock = VirtualClock()
        let server = LoopbackLeaseServer(clock: clock)
        let port = try server.start()
        let term = try await LoopbackLease(port: port).take(as: "alice", for: .seconds(60))
        let holder = LeaseHolder(
            LoopbackLease(port: port),
            owner: "bob",
            duration: .seconds(60),
            time: TimeSource(clock)
        )
        let work = Task { try await holder.run { 5 } }
        await server.waitForWaiters()

        try await LoopbackLease(port: port).giveBack(term)

        #expect(try await work.value == 5)
        #expect(clock.now.offset == .zero)
        await server.stop()
    }

    @Test func `L02 who is cancelled while waiting for a lease leaves at once`() async throws {
        let clock = VirtualClock()
        let scratch = Scratch()
        _ = try await Self.lease(scratch, clock).take(as: "alice", for: .seconds(60))
        let holder = LeaseHolder(
            Self.lease(scratch, clock),
            owner: "bob",
            duration: .seconds(60),
            time: TimeSource(clock)
        )
        let work = Task { try await holder.run { 5 } }
        await clock.waitForSleepers(1)
        work.cancel()
        await #expect(throws: CancellationError.self) { try await work.value }
    }

    @Test func `L01 a lease that cannot be asked for is an error of its own and nothing is sent`() async throws {
        let oauth = OAuthWorld()
        let lease = RecordingFileSystem { _, call in call.operation == .lock ? .refuse(EIO) : nil }
        let runner = OAuthDependentRunner<String, String>(
            store: oauth.tokens,
            lease: Self.lease(Scratch(), oauth.world.clock, lease),
            repository: oauth.world.repository,
            refreshAccess: { _ in throw FetchFailed() },
            signIn: {
                oauth.signIns.withLock { $0 += 1 }
                throw FetchFailed()
            }
        )
        let error = await #expect(throws: RunnerError.self) { try await runner.run { .output($0) } }
        #expect(error?.code == .leaseUnavailable)
        #expect(oauth.signIns.withLock { $0 } == 0)
    }

    /// Counts how often it is taken.
    private struct CountedLease: MuxLease {
        let base: any MuxLease
        let takes = Locked(0)

        func take(as owner: String, for duration: Duration) async throws -> MuxLeaseTerm {
            defer { self.takes.withLock { $0 += 1 } }
            return try await self.base.take(as: owner, for: duration)
        }

        func giveBack(_ term: MuxLeaseTerm) async throws { try await self.base.giveBack(term) }
        func wait(for term: MuxLeaseTerm) async throws { try await self.base.wait(for: term) }
    }

    @Test func `PT-01 a lease is extended long before it ends, and nobody else gets it`() async throws {
        let clock = VirtualClock()
        let scratch = Scratch()
        let lease = CountedLease(base: Self.lease(scratch, clock))
        let holder = LeaseHolder(lease, owner: "alice", duration: .seconds(9), time: TimeSource(clock))
        let gate = Gate<Void>()
        let work = Task { try await holder.run { try await gate.pass() } }
        await gate.waitForCall(1)

        for second in 1...14 {
            await clock.waitForSleepers(1)
            clock.advance(by: .seconds(1))
            // An extension that was due sleeps again when it is done.
            await clock.waitForSleepers(1)
            let seen = try await Self.lease(scratch, clock).take(as: "bob", for: .seconds(9))
            #expect(seen.owner == "alice", "after \(second) seconds")
        }

        #expect(lease.takes.withLock { $0 } == 5, "every three seconds")
        gate.open()
        try await work.value
        #expect(try await Self.lease(scratch, clock).take(as: "bob", for: .seconds(9)).owner == "bob")
    }
}
