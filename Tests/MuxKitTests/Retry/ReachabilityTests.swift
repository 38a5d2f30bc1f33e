import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// A network whose state the test sets.
struct InjectedNetwork: Sendable {
    let monitor: SystemReachability
    private let changed: Locked<(@Sendable (Bool) -> Void)?>
    private let starts: Tally
    private let ends: Locked<Int>

    init() {
        let (changed, starts, ends) = (Locked<(@Sendable (Bool) -> Void)?>(nil), Tally(), Locked(0))
        self.monitor = SystemReachability { tell in
            changed.withLock { $0 = tell }
            starts.add()
            return { _ = ends.next() }
        }
        (self.changed, self.starts, self.ends) = (changed, starts, ends)
    }

    func set(_ isReachable: Bool) { self.changed.withLock { $0 }?(isReachable) }

    func waitForWatch() async { await self.starts.reached(1) }
    var stops: Int { self.ends.withLock { $0 } }
}

@Suite(.standard)
struct ReachabilityTests {
    private let world = RetryWorld()

    private func call(_ network: InjectedNetwork) -> Task<Duration, any Error> {
        let loop = self.world.loop(
            .fixed(.seconds(600), jitter: .none),
            wakingOn: .reachable("example.com", monitor: network.monitor)
        )
        return Task {
            try await loop.run { attempt in
                if attempt.index == 0 { throw Flaky() }
                return .output(attempt.elapsed)
            }
        }
    }

    @Test func `F05 the return of the network ends a wait`() async throws {
        let network = InjectedNetwork()
        let caller = self.call(network)
        await network.waitForWatch()
        network.set(false)
        await self.world.clock.waitForSleepers(1)
        self.world.clock.advance(by: .seconds(100))

        network.set(true)

        #expect(await self.world.passWaits(1) == [.milliseconds(1_500)])
        #expect(try await caller.value == .milliseconds(101_500))
        #expect(network.stops == 1)
    }

    @Test func `F05 a continuously reachable network ends no wait, and a loss and return ends a wait`() async throws {
        let network = InjectedNetwork()
        let caller = self.call(network)
        await network.waitForWatch()
        network.set(true)
        await self.world.clock.waitForSleepers(1)
        #expect(network.stops == 0)
        network.set(false)
        #expect(network.stops == 0)

        network.set(true)

        #expect(await self.world.passWaits(1) == [.milliseconds(1_500)])
        _ = try await caller.value
        #expect(network.stops == 1)
    }

    // MARK: - The system's reachability

    /// A test double for the system below a ``SystemReachability``.
    private struct System: Sendable {
        let changed = Locked<[@Sendable (Bool) -> Void]>([])
        let stops = Locked(0)

        func reachability() -> SystemReachability {
            SystemReachability { changed in
                self.changed.withLock { $0.append(changed) }
                return { _ = self.stops.next() }
            }
        }

        var starts: Int { self.changed.withLock { $0.count } }
        func tell(_ isReachable: Bool, start: Int = 0) { self.changed.withLock { $0[start] }(isReachable) }
    }

    @Test func `F05 all watchers share a single watch of the system, which ends with the last watcher`() {
        let system = System()
        let reachability = system.reachability()
        let (first, second) = (Locked<[Bool]>([]), Locked<[Bool]>([]))
        let stopFirst = reachability.watch { isReachable in first.withLock { $0.append(isReachable) } }
        system.tell(false)
        let stopSecond = reachability.watch { isReachable in second.withLock { $0.append(isReachable) } }
        system.tell(false)
        system.tell(true)
        #expect(system.starts == 1)
        #expect(first.withLock { $0 } == [false, true])
        #expect(second.withLock { $0 } == [false, true], "the present state first")

        stopFirst()
        stopFirst()
        system.tell(false)
        #expect(first.withLock { $0 } == [false, true])
        #expect(system.stops.withLock { $0 } == 0)
        stopSecond()
        #expect(system.stops.withLock { $0 } == 1)
        system.tell(true)
        #expect(second.withLock { $0 } == [false, true, false])
    }

    @Test func `F05 no watcher gets an older state after a newer state`() {
        let system = System()
        let reachability = system.reachability()
        let stop = reachability.watch { _ in }
        system.tell(false)
        let seen = Locked<[Bool]>([])

        // The network returns while a new watcher receives the unreachable state.
        let stopSecond = reachability.watch { isReachable in
            if !isReachable { system.tell(true) }
            seen.withLock { $0.append(isReachable) }
        }
        system.tell(false)

        #expect(seen.withLock { $0 } == [false, true, false, true])
        stop()
        stopSecond()
    }

    @Test func `F05 a late report of an earlier watch of the system is ignored`() {
        let system = System()
        let reachability = system.reachability()
        reachability.watch { _ in }()
        let seen = Locked<[Bool]>([])

        let stop = reachability.watch { isReachable in seen.withLock { $0.append(isReachable) } }
        system.tell(true, start: 0)
        system.tell(false, start: 1)

        #expect(seen.withLock { $0 } == [false])
        stop()
    }

    @Test func `F05 the system reports the current state on supported platforms, and nothing on others`() async {
        #if canImport(Network) || os(Linux)
        let told = Tally()
        let stop = SystemReachability().watch { _ in told.add() }

        await told.reached(1)

        stop()
        #else
        _ = SystemReachability.shared.watch { _ in Issue.record("it cannot tell") }
        #endif
    }

    private static let header =
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
    private static let nowhere = String(repeating: "0", count: 32)

    @Test(arguments: [
        ("", "", false),
        (Self.header, "", false),
        (Self.header + "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0", "", true),
        (Self.header + "eth0\t00000000\t010200C0\t0002\t0\t0\t0\t00000000\t0\t0\t0", "", false),
        (Self.header + "eth0\t00000000\t010200C0\t0203\t0\t0\t0\t00000000\t0\t0\t0", "", false),
        (Self.header + "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0", "", false),
        (Self.header + "eth0\t00000000\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0", "", false),
        (Self.header + "eth0\t00000000", "short line", false),
        ("", "\(nowhere) 00 \(nowhere) 00 fd01 00000400 00000002 00000000 00000003     eth0", true),
        ("", "\(nowhere) 00 \(nowhere) 00 \(nowhere) ffffffff 00000001 00000000 00200200       lo", false),
        ("", "\(nowhere) 00 \(nowhere) 00 fd01 00000400 00000002 00000000 00000001       lo", false),
        ("", "\(nowhere) 40 \(nowhere) 00 \(nowhere) 00000100 00000001 00000000 00000001     eth0", false),
        ("", "\(nowhere) 00 \(nowhere) 00 fd01 00000400 00000002 00000000 nonsense     eth0", false),
    ])
    func `F05 the network is reachable with a default route that is up`(ipv4: String, ipv6: String, expected: Bool) {
        #expect(KernelRoutes.haveDefault(ipv4: ipv4, ipv6: ipv6) == expected)
    }
}
