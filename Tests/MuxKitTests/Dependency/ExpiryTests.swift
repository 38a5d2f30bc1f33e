import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Dependencies with a known expiry, and wrong clocks.
@Suite(.standard)
struct ExpiryTests {
    private struct Pass: ExpiringDependency, Equatable {
        var number: Int
        var expiry: Date?
    }

    @Test func `A18 a dependency that a wrong clock shows as expired is used until its refusal`() async throws {
        let clock = VirtualClock()
        let made = Locked(0)
        // The clock of this machine is a day ahead of the server's clock.
        let pass: @Sendable () -> Pass = { Pass(number: made.next(), expiry: World.start.addingTimeInterval(-86_400)) }
        let wall: @Sendable () -> Date = { World.start }
        let own = DependentRunner<Pass>(clock: clock, wallTime: wall) { _ in .updatedDependency(pass()) }
        let lent = DependentRunner<Pass>(clock: clock, wallTime: wall)
        for _ in 0..<5 {
            #expect(try await own.run { .output($0.number) } == 1)
        }
        for _ in 0..<5 {
            let number = try await lent.run {
                .output($0.number)
            } update: { _ in
                .updatedDependency(pass())
            }
            #expect(number == 2)
        }
        #expect(made.withLock { $0 } == 2)
        #expect(try await own.run { $0.number == 1 ? .badDependency : .output($0.number) } == 3)
    }

    @Test func `A18 a dependency that expires at once does not make its caller loop`() async throws {
        let clock = VirtualClock()
        let made = Locked(0)
        let wall = { @Sendable in World.start.addingTimeInterval(clock.now.offset.secondsValue) }
        let runner = DependentRunner<Pass>(clock: clock, wallTime: wall)
        let number = try await runner.run {
            .output($0.number)
        } update: { _ in
            let pass = Pass(number: made.next(), expiry: wall().addingTimeInterval(0.000_001))
            return .updatedDependency(pass)
        }
        #expect(number == 1)
        #expect(made.withLock { $0 } == 1)
    }

    @Test func `A18 after a failed renewal by an update closure the old value is used until its end`() async throws {
        let clock = VirtualClock()
        let wall = { @Sendable in World.start.addingTimeInterval(clock.now.offset.secondsValue) }
        let runner = DependentRunner(
            Pass(number: 1, expiry: World.start.addingTimeInterval(10)),
            clock: clock,
            wallTime: wall
        )
        let call: @Sendable () async throws -> Int = {
            try await runner.run {
                .output($0.number)
            } update: { _ in
                throw FetchFailed()
            }
        }
        #expect(try await call() == 1)
        clock.advance(by: .seconds(10))
        await #expect(throws: FetchFailed.self) { try await call() }
    }

    @Test func `A18 D09 a stored access token that has expired is not sent`() async throws {
        let tokens = InMemoryTokenStore()
        let world = World()
        let refreshes = Locked(0)
        func runner(_ world: World) -> OAuthDependentRunner<Int, String> {
            OAuthDependentRunner(
                store: tokens,
                repository: world.repository,
                refreshAccess: { _ in OAuthRenewal(access: refreshes.next(), accessLifetime: .seconds(100)) },
                signIn: { OAuthSignIn(refresh: "refresh") }
            )
        }
        #expect(try await runner(world).run { .output($0) } == 1)
        let soon = world.relaunched(after: .seconds(50))
        #expect(try await runner(soon).run { .output($0) } == 1, "good yet")
        let late = world.relaunched(after: .seconds(100))
        #expect(try await runner(late).run { .output($0) } == 2)
        #expect(refreshes.withLock { $0 } == 2)
    }
}
