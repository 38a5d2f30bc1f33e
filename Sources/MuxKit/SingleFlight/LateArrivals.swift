/// For each recent change of any tag, the smallest ticket of the callers of a multiplexer that joined a
/// running flight between this change and the next change.
///
/// A value must not answer a caller that joined the flight after a change of the value's tags. The tags may
/// be known only at the end of the fetch, so the smallest ticket after a change of any tag is recorded.
@usableFromInline
struct LateArrivals: Sendable {
    private var firsts: [(number: UInt64, ticket: Ticket)] = []
    /// The last element of ``firsts``; (0, 0) while ``firsts`` is empty: no change has the number 0.
    @usableFromInline var last: (number: UInt64, ticket: Ticket) = (0, 0)

    /// The maximum number of recorded changes.
    ///
    /// Above the maximum, the two oldest records are merged: callers may then wait for an unnecessary fetch.
    private static var maximumCount: Int { 64 }

    init() {}

    /// Records the arrival of a caller at a running flight.
    ///
    /// - Parameters:
    ///   - ticket: The ticket of the caller.
    ///   - number: The number of the last change of any tag, read under the lock of the arrival, so that no
    ///     change between the read and the arrival is missed.
    @inlinable
    mutating func recordJoin(_ ticket: Ticket, at number: UInt64) {
        // Tickets are drawn before arrival, so the ticket may be smaller than the ticket of an earlier
        // arrival.
        if number != self.last.number || ticket < self.last.ticket { self.record(ticket, at: number) }
    }

    @usableFromInline
    mutating func record(_ ticket: Ticket, at number: UInt64) {
        if number == self.last.number { self.firsts.removeLast() }
        self.last = (number, ticket)
        self.firsts.append(self.last)
        guard self.firsts.count > Self.maximumCount else { return }
        self.firsts[1].ticket = min(self.firsts[0].ticket, self.firsts[1].ticket)
        self.firsts.removeFirst()
    }

    /// The smallest recorded ticket for a change of any tag with a number greater than `number`; `nil` if no
    /// ticket is recorded.
    ///
    /// A caller with a smaller ticket joined its flight before these changes.
    @usableFromInline
    func first(after number: UInt64) -> Ticket? { self.firsts.lazy.filter { $0.number > number }.map(\.ticket).min() }
}
