import Foundation
import MuxConformance
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct LeaseTests {
    /// A file lease with the time of day of a virtual clock.
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

    @Test func `L05 the file lease conforms to the lease contract`() async throws {
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

    @Test func `L05 a lease on a server conforms to the lease contract`() async throws {
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
    func `L05 the conformance suite detects a broken lease`(fault: Int) async throws {
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

    @Test func `L02 after a clock was set back no process waits longer than the lease`() async throws {
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
    func `L02 an invalid lease file makes no process wait`(content: String) async throws {
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

    @Test func `L02 a distant deadline in a lease file makes others wait for the lease's duration only`() async throws {
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

    @Test func `L03 no system lock is held between two calls`() async throws {
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
        // If a lock were held, another open file of the same process would wait for ever.
        #expect(try await Self.lease(scratch, clock).take(as: "bob", for: .seconds(1)).owner == "alice")
        gate.open()
        try await work.value
        #expect(try await Self.lease(scratch, clock).take(as: "bob", for: .seconds(1)).owner == "bob")
    }

    @Test func `L03 every lock is released before the next lock is taken`() async throws {
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

    @Test func `L01 a live holder extends its lease until its work is done`() async throws {
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

    @Test func `L01 a lease with two users is given back when the last user has ended`() async throws {
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

    @Test func `L01 work that needs a free lease does not run while another owner has the lease`() async throws {
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

    /// A lease of another owner for ten seconds, whose `wait` fails or returns too early.
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
            // Prevents an endless loop if a holder repeats this wait.
            if self.waits.next() > 50 { try await self.clock.sleep(for: .seconds(1_000)) }
        }
    }

    @Test(arguments: [true, false])
    func `L02 a holder waits for a lease without a reliable wait, and does not poll`(fails: Bool) async throws {
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

    @Test func `L02 a waiter continues at once when the lease is given back`() async throws {
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

    @Test func `L02 a cancelled waiter for a lease leaves at once`() async throws {
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

    @Test func `L01 an unavailable lease causes a separate error and nothing is sent`() async throws {
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

    @Test func `L02 a lease that is taken during work without a lease is given back`() async throws {
        let (oauth, scratch) = (OAuthWorld(), Scratch())
        let refusals = Locked(0)
        let fileSystem = RecordingFileSystem { _, call in
            let isRefused = refusals.withLock { refusals in
                guard call.operation == .lock, refusals > 0 else { return false }
                refusals -= 1
                return true
            }
            return isRefused ? .refuse(EROFS) : nil
        }
        let runner = OAuthDependentRunner<String, String>(
            store: oauth.tokens,
            lease: Self.lease(scratch, oauth.world.clock, fileSystem),
            repository: oauth.world.repository,
            refreshAccess: { _ in OAuthRenewal(access: "b") },
            signIn: { OAuthSignIn(access: "a", refresh: "r") }
        )
        #expect(try await runner.run { .output($0) } == "a")
        refusals.withLock { $0 = 1 }

        #expect(try await runner.renew() == "b")

        #expect(refusals.withLock { $0 } == 0)
        let other = Self.lease(scratch, oauth.world.clock)
        #expect(try await other.take(as: "bob", for: .seconds(1)).owner == "bob")
    }

    /// Counts the calls of `take`.
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

    @Test func `L01 a lease that grants a shorter term is extended before the end of this term`() async throws {
        let clock = VirtualClock()
        let scratch = Scratch()
        // A file lease limits a term to a day.
        let day = Duration.seconds(86_400)
        let holder = LeaseHolder(Self.lease(scratch, clock), owner: "alice", duration: day * 9, time: TimeSource(clock))
        let gate = Gate<Void>()
        let work = Task { try await holder.run { try await gate.pass() } }
        await gate.waitForCall(1)
        let tenure = holder.tenure

        for third in 1...7 {
            await clock.waitForSleepers(1)
            clock.advance(by: day / 3)
            await clock.waitForSleepers(1)
            #expect(tenure != nil && holder.tenure == tenure, "after \(third) thirds of a day")
        }
        #expect(try await Self.lease(scratch, clock).take(as: "bob", for: day).owner == "alice")

        gate.open()
        try await work.value
    }

    @Test func `OB-07 short uses one after another extend the lease`() async throws {
        let clock = VirtualClock()
        let scratch = Scratch()
        let lease = CountedLease(base: Self.lease(scratch, clock))
        let holder = LeaseHolder(lease, owner: "alice", duration: .seconds(30), time: TimeSource(clock))
        var use = try await holder.acquire(TaskLauncher())
        let tenure = holder.tenure
        for round in 1...8 {
            clock.advance(by: .seconds(8))
            let next = try await holder.acquire(TaskLauncher())
            await holder.release(use)
            use = next
            #expect(tenure != nil && holder.tenure == tenure, "round \(round)")
        }
        #expect(lease.takes.withLock { $0 } <= 8)
        #expect(try await Self.lease(scratch, clock).take(as: "bob", for: .seconds(1)).owner == "alice")
        await holder.release(use)
    }

    /// Each term is of the owner, with the current generation.
    private struct StolenLease: MuxLease {
        let generation = Locked<UInt64>(1)

        func take(as owner: String, for duration: Duration) async throws -> MuxLeaseTerm {
            MuxLeaseTerm(owner: owner, generation: self.generation.withLock { $0 }, remaining: duration)
        }

        func giveBack(_ term: MuxLeaseTerm) async throws {}
        func wait(for term: MuxLeaseTerm) async throws {}
    }

    @Test func `L02 another owner between two terms of a holder begins a new tenure`() async throws {
        let clock = VirtualClock()
        let lease = StolenLease()
        let holder = LeaseHolder(lease, owner: "alice", duration: .seconds(30), time: TimeSource(clock))
        let gate = Gate<Void>()
        let work = Task { try await holder.run { try await gate.pass() } }
        await gate.waitForCall(1)
        let first = holder.tenure
        func extend() async {
            await clock.waitForSleepers(1)
            clock.advance(by: .seconds(10))
            await clock.waitForSleepers(1)
        }

        await extend()
        #expect(first != nil && holder.tenure == first, "extended")

        // A clock was set forward, and another owner has taken and returned the lease.
        lease.generation.withLock { $0 += 2 }
        await extend()
        #expect(holder.tenure != nil && holder.tenure != first)

        gate.open()
        try await work.value
    }

    @Test func `L03 a lock whose file cannot be examined is released`() async throws {
        let isLocked = Locked(false)
        let calls = RecordingFileSystem { _, call in
            if call.operation == .lock { isLocked.withLock { $0 = true } }
            return call.operation == .status && isLocked.withLock { $0 } ? .refuse(EIO) : nil
        }
        let lease = Self.lease(Scratch(), VirtualClock(), calls)
        await #expect(throws: MuxStoreError.self) { try await lease.take(as: "alice", for: .seconds(1)) }
        let locks = calls.calls.filter { $0.operation == .lock }.count
        #expect(locks > 0 && calls.calls.filter { $0.operation == .unlock }.count == locks)
    }

    @Test func `PT-01 a lease is extended long before its end, and no other owner gets the lease`() async throws {
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
            // After a due extension, the extending task sleeps again.
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
