import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// A monitor whose state the test sets.
final class InjectedMonitor: ReachabilityMonitor {
    private struct State: Sendable {
        var isReachable: Bool
        var watchers: [UInt64: @Sendable (Bool) -> Void] = [:]
        var nextID: UInt64 = 0
        var stops = 0
    }

    private let state: Locked<State>
    private let ready = Tally()

    init(isReachable: Bool) { self.state = Locked(State(isReachable: isReachable)) }

    func watch(_ changed: @escaping @Sendable (_ isReachable: Bool) -> Void) -> @Sendable () -> Void {
        let (id, isReachable) = self.state.withLock { state -> (UInt64, Bool) in
            state.nextID += 1
            state.watchers[state.nextID] = changed
            return (state.nextID, state.isReachable)
        }
        changed(isReachable)
        self.ready.add()
        return { [state] in
            state.withLock { state in
                state.watchers[id] = nil
                state.stops += 1
            }
        }
    }

    func set(_ isReachable: Bool) {
        let watchers = self.state.withLock { state in
            state.isReachable = isReachable
            return Array(state.watchers.values)
        }
        for watcher in watchers { watcher(isReachable) }
    }

    func waitForWatch() async { await self.ready.reached(1) }
    var stops: Int { self.state.withLock { $0.stops } }
    var watcherCount: Int { self.state.withLock { $0.watchers.count } }
}

@Suite(.standard)
struct ReachabilityTests {
    private let world = RetryWorld()

    private func call(_ monitor: InjectedMonitor) -> Task<Duration, any Error> {
        let loop = self.world.loop(
            .fixed(.seconds(600), jitter: .none),
            wakingOn: .reachable("example.com", monitor: monitor)
        )
        return Task {
            try await loop.run { attempt in
                if attempt.index == 0 { throw Flaky() }
                return .output(attempt.elapsed)
            }
        }
    }

    @Test func `F05 the return of the network ends a wait`() async throws {
        let monitor = InjectedMonitor(isReachable: false)
        let caller = self.call(monitor)
        await monitor.waitForWatch()
        await self.world.clock.waitForSleepers(1)
        self.world.clock.advance(by: .seconds(100))

        monitor.set(true)

        #expect(await self.world.passWaits(1) == [.milliseconds(1_500)])
        #expect(try await caller.value == .milliseconds(101_500))
        #expect(monitor.stops == 1)
        #expect(monitor.watcherCount == 0)
    }

    @Test func `F05 a continuously reachable network ends no wait, and a loss and return ends a wait`() async throws {
        let monitor = InjectedMonitor(isReachable: true)
        let caller = self.call(monitor)
        await monitor.waitForWatch()
        await self.world.clock.waitForSleepers(1)
        monitor.set(true)
        #expect(monitor.stops == 0)
        monitor.set(false)
        #expect(monitor.stops == 0)

        monitor.set(true)

        #expect(await self.world.passWaits(1) == [.milliseconds(1_500)])
        _ = try await caller.value
        #expect(monitor.stops == 1)
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
        guard SystemReachability.isSupported else {
            _ = SystemReachability.shared.watch { _ in Issue.record("it cannot tell") }
            return
        }
        let told = Tally()
        let stop = SystemReachability().watch { _ in told.add() }

        await told.reached(1)

        stop()
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
