import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Runners that depend on runners.
@Suite(.standard)
struct LayerTests {
    private let events = EventTally()

    @Test func `B03 a call that waits during the parent's replacement gets a value of the new parent`() async throws {
        let gate = Gate<Void>()
        let parent = DependentRunner<Int>(1)
        let child = DependentRunner<Int>(dependingOn: parent, observer: self.events) { parent, _ in
            try await gate.pass()
            return .updatedDependency(parent * 10)
        }
        let before = Task { try await child.run { .output($0) } }
        await gate.waitForCall(1)
        parent.set(2)
        let after = Task { try await child.run { .output($0) } }
        await self.events.wait(for: .dependencyAwaited, count: 2)
        gate.openForGood(returning: ())

        #expect(try await before.value == 20)
        #expect(try await after.value == 20)
        #expect(gate.callCount == 2)
        await child.expectAtRest()
    }

    @Test func `B03 a waiter of another call's update closure also gets a value of the new parent`() async throws {
        let gate = Gate<Void>()
        let parent = DependentRunner<Int>(1)
        let child = DependentRunner<Int>(dependingOn: parent, observer: self.events) { _, _ in .updateFailed }
        let updates = Locked(0)
        @Sendable func call() async throws -> Int {
            try await child.run {
                .output($0)
            } update: { _ in
                let number = updates.next()
                if number == 1 { try await gate.pass() }
                return .updatedDependency(number)
            }
        }
        let leading = Task { try await call() }
        await gate.waitForCall(1)
        let waiting = Task { try await call() }
        await self.events.wait(for: .dependencyAwaited)
        parent.set(2)
        gate.open()

        #expect(try await leading.value == 2)
        #expect(try await waiting.value == 2)
        await child.expectAtRest()
    }

    @Test func `B07 a child accepts an update closure and drops its value with the parent's value`() async throws {
        let parent = DependentRunner<Int> { _ in .updatedDependency(1) }
        _ = try await parent.renew()
        let child = DependentRunner<Int>(dependingOn: parent) { _, _ in .updateFailed }
        let updates = Locked(0)
        for expected in [1, 1, 2] {
            if expected == 2 { parent.set(2) }
            let value = try await child.run {
                .output($0)
            } update: { _ in
                .updatedDependency(updates.next())
            }
            #expect(value == expected)
        }
    }

    /// The outcome of the middle layer's update.
    enum Fault: CaseIterable, Sendable {
        case noNetwork, unavailable, hangs, isRefused
    }

    @Test(arguments: Fault.allCases)
    func `C03 B07 the top of three layers is renewed only after a refusal in the middle`(fault: Fault) async throws {
        let clock = VirtualClock()
        let made = Locked<[String]>([])
        let isFaulty = Locked(false)
        var policy = RunnerPolicy.onePerCall
        policy.updateTimeout = .seconds(5)
        let top = DependentRunner<Int> { _ in
            made.withLock { $0.append("top") }
            isFaulty.withLock { $0 = false }
            return .updatedDependency(1)
        }
        let middle = DependentRunner<Int>(dependingOn: top, policy: policy, clock: clock) { _, _ in
            if isFaulty.withLock({ $0 }) {
                switch fault {
                case .noNetwork: throw offline
                case .unavailable: throw FakeOAuthServer.Failure.unavailable
                case .hangs: try await clock.sleep(for: .seconds(60))
                case .isRefused: return .updateFailed
                }
            }
            made.withLock { $0.append("middle") }
            return .updatedDependency(1)
        }
        let leaf = DependentRunner<Int>(dependingOn: middle) { _, _ in
            made.withLock { $0.append("leaf") }
            return .updatedDependency(1)
        }
        _ = try await leaf.run { .output($0) }
        middle.reset()
        isFaulty.withLock { $0 = true }
        made.withLock { $0 = [] }

        let call = Task { try await leaf.run { .output($0) } }
        if fault == .hangs {
            await clock.waitForSleepers(2)
            clock.advance(by: .seconds(5))
        }
        switch fault {
        case .noNetwork: await #expect(throws: SilenceableError.self) { try await call.value }
        case .unavailable: await #expect(throws: FakeOAuthServer.Failure.unavailable) { try await call.value }
        case .hangs:
            let error = await #expect(throws: RunnerError.self) { try await call.value }
            #expect(error?.code == .updateTimedOut)
        case .isRefused: #expect(try await call.value == 1)
        }
        #expect(made.withLock { $0 } == (fault == .isRefused ? ["top", "middle", "leaf"] : []))
    }
}
