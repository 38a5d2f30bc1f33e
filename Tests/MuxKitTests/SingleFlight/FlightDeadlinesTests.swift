import MuxKit
import MuxTestSupport
import Testing

@Suite(.standard)
struct FlightDeadlinesTests {
    private func deadlines(of flights: ClosedRange<FlightID>) -> FlightDeadlines<Int> {
        flights.reduce(into: FlightDeadlines()) { deadlines, flight in
            _ = deadlines.add(flight, of: 0, at: Moment(nanoseconds: Int64(flight)), runningCount: 0) { _ in true }
        }
    }

    @Test func `MX-18 flights are due in the order of their start`() {
        var deadlines = self.deadlines(of: 1...5)
        #expect(deadlines.takeDue(at: Moment(nanoseconds: 0)).isEmpty)
        #expect(deadlines.takeDue(at: Moment(nanoseconds: 3)).map(\.flight) == [1, 2, 3])
        #expect(deadlines.takeDue(at: Moment(nanoseconds: 3)).isEmpty)
        #expect(deadlines.takeDue(at: .distantFuture).map(\.flight) == [4, 5])
    }

    @Test func `MX-18 the next deadline belongs to a running flight`() {
        var deadlines = self.deadlines(of: 1...5)
        _ = deadlines.removeEnded { $0 > 2 }
        #expect(deadlines.next == Moment(nanoseconds: 3))
        #expect(deadlines.count == 3)
        _ = deadlines.removeEnded { _ in false }
        #expect(deadlines.next == nil)
        #expect(deadlines.count == 0)
    }

    @Test func `MX-18 the deadlines of ended flights do not accumulate`() {
        var deadlines = FlightDeadlines<Int>()
        for flight in FlightID(1)...20_000 {
            let moment = Moment(nanoseconds: Int64(flight))
            _ = deadlines.add(flight, of: 0, at: moment, runningCount: 1) { $0 == flight }
        }
        #expect(deadlines.count < 2_000)
        _ = deadlines.removeEnded { $0 == 20_000 }
        #expect(deadlines.next == Moment(nanoseconds: 20_000))
    }
}
