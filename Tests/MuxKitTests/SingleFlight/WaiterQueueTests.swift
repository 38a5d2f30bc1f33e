import MuxKit
import MuxTestSupport
import Testing

@Suite(.timeLimit(.minutes(5)), .takesTurns, .endsAtRest)
struct ParkingTests {
    @Test func `Q-01 waiters are drained in order of arrival, without those who left`() {
        var parking = WaiterQueue<Int>()
        for ticket in 1...10 { parking.park(ticket, ticket: UInt64(ticket)) }
        #expect(parking.leave(3) == 3)
        #expect(parking.leave(3) == nil)
        #expect(parking.leave(99) == nil)
        #expect(parking.leave(0) == nil)
        #expect(parking.count == 9)
        #expect(parking.violation() == nil)
        #expect(parking.drain() == [1, 2, 4, 5, 6, 7, 8, 9, 10])
        #expect(parking.isEmpty)
    }

    @Test func `Q-01 who was named first waits first, whoever parks first`() {
        for order in [[1, 2, 3, 4], [4, 3, 2, 1], [2, 4, 1, 3], [3, 1, 4, 2]] {
            var parking = WaiterQueue<Int>()
            for ticket in order { parking.park(ticket, ticket: UInt64(ticket)) }
            #expect(parking.violation() == nil)
            #expect(parking.tickets == [1, 2, 3, 4])
            #expect(parking.drain() == [1, 2, 3, 4])
        }
    }

    @Test func `Q-01 who was named before one who left parks in front of who was named after`() {
        var parking = WaiterQueue<Int>()
        for ticket in [1, 3, 5, 6] { parking.park(ticket, ticket: UInt64(ticket)) }
        #expect(parking.leave(3) == 3)
        for ticket in [2, 4] { parking.park(ticket, ticket: UInt64(ticket)) }
        #expect(parking.violation() == nil)
        #expect(parking.leave(4) == 4)
        #expect(parking.drain() == [1, 2, 5, 6])
    }

    @Test func `Q-01 places of those who left are used up`() {
        var parking = WaiterQueue<Int>()
        for ticket in 1...100_000 {
            parking.park(ticket, ticket: UInt64(ticket))
            if ticket > 3 { #expect(parking.leave(UInt64(ticket - 3)) == ticket - 3) }
        }
        #expect(parking.count == 3)
        #expect(parking.placeCount < 10)
        #expect(parking.drain() == [99_998, 99_999, 100_000])
    }
}
