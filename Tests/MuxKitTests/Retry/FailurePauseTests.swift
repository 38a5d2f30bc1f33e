import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct FailurePauseTests {
    private let start = Moment(nanoseconds: 5_000_000_000)

    /// The pauses after consecutive failures.
    ///
    /// Each failure follows at the end of the previous pause.
    private func pauses(_ count: Int, first: Duration, retryAfter: Duration? = nil) -> [Duration] {
        var pause = FailurePause()
        var now = self.start
        return (0..<count).map { _ in
            pause.failed(at: now, first: first, retryAfter: retryAfter)
            defer { now = pause.end }
            return pause.end.duration(since: now)
        }
    }

    @Test func `WR-07 a pause doubles with each failure up to a minute`() {
        let seconds = [1, 2, 4, 8, 16, 32, 60, 60, 60].map { Duration.seconds($0) }
        #expect(self.pauses(9, first: .seconds(1)) == seconds)
        #expect(self.pauses(100, first: .seconds(1)).last == .seconds(60))
        #expect(self.pauses(100, first: .nanoseconds(1)).last == .seconds(60))
        #expect(self.pauses(3, first: .seconds(90)) == [.seconds(90), .seconds(90), .seconds(90)])
    }

    @Test func `WR-07 a pause is at least the server's Retry-After, limited to an hour`() {
        #expect(self.pauses(2, first: .seconds(1), retryAfter: .seconds(60)) == [.seconds(60), .seconds(60)])
        #expect(self.pauses(2, first: .seconds(8), retryAfter: .seconds(9)) == [.seconds(9), .seconds(16)])
        #expect(self.pauses(1, first: .seconds(1), retryAfter: .seconds(1 << 40)) == [.seconds(3600)])
        #expect(self.pauses(1, first: .zero, retryAfter: .seconds(2)) == [.seconds(2)])
        #expect(self.pauses(1, first: .seconds(1), retryAfter: .seconds(-5)) == [.seconds(1)])
    }

    @Test func `WR-07 a pause of zero stays zero, and an unlimited pause does not trap`() {
        #expect(self.pauses(3, first: .zero) == [.zero, .zero, .zero])
        #expect(self.pauses(3, first: .seconds(-1)) == [.zero, .zero, .zero])
        #expect(self.pauses(1, first: .seconds(Int64.max)) == [.longest])
    }

    @Test func `WR-07 a success ends the pause and its growth`() {
        var pause = FailurePause()
        #expect(pause.isOver(at: .distantPast))
        for _ in 0..<5 { pause.failed(at: self.start, first: .seconds(1)) }
        #expect(pause.failures == 5)
        #expect(!pause.isOver(at: self.start))
        #expect(pause.end == self.start.advanced(by: .seconds(16)))
        #expect(pause.isOver(at: pause.end))

        pause.succeeded()

        #expect(pause == FailurePause())
        pause.failed(at: self.start, first: .seconds(1))
        #expect(pause.end == self.start.advanced(by: .seconds(1)))
    }
}
