import MuxKit
import MuxTestSupport
import Testing

@Suite(.standard)
struct WaiterQueueTests {
    @Test func `Q-01 waiters are drained in order, without the waiters that left`() {
        var queue = WaiterQueue()
        for ticket in Ticket(1)...10 { queue.add(FlightWaiter(ticket)) }
        #expect(queue.remove(3) == 3)
        #expect(queue.remove(3) == nil)
        #expect(queue.remove(99) == nil)
        #expect(queue.remove(0) == nil)
        #expect(queue.count == 9)
        #expect(queue.violation() == nil)
        #expect(queue.drain() == [1, 2, 4, 5, 6, 7, 8, 9, 10])
        #expect(queue.isEmpty)
    }

    @Test func `Q-01 waiters are ordered by ticket, in every order of arrival`() {
        for order: [Ticket] in [[1, 2, 3, 4], [4, 3, 2, 1], [2, 4, 1, 3], [3, 1, 4, 2]] {
            var queue = WaiterQueue()
            for ticket in order { queue.add(FlightWaiter(ticket)) }
            #expect(queue.violation() == nil)
            #expect(queue.tickets == [1, 2, 3, 4])
            #expect(queue.drain() == [1, 2, 3, 4])
        }
    }

    @Test func `Q-01 a waiter is ordered by ticket, also after a waiter in front has left`() {
        var queue = WaiterQueue()
        for ticket: Ticket in [1, 3, 5, 6] { queue.add(FlightWaiter(ticket)) }
        #expect(queue.remove(3) == 3)
        for ticket: Ticket in [2, 4] { queue.add(FlightWaiter(ticket)) }
        #expect(queue.violation() == nil)
        #expect(queue.remove(4) == 4)
        #expect(queue.drain() == [1, 2, 5, 6])
    }

    @Test func `Q-01 the places of waiters that left are reclaimed`() {
        var queue = WaiterQueue()
        for ticket in Ticket(1)...100_000 {
            queue.add(FlightWaiter(ticket))
            if ticket > 3 { #expect(queue.remove(ticket - 3) == FlightWaiter(ticket - 3)) }
        }
        #expect(queue.count == 3)
        #expect(queue.placeCount < 10)
        #expect(queue.drain() == [99_998, 99_999, 100_000])
    }
}
