/// A queue of the deadlines of flights.
///
/// All flights have the same time limit, so deadlines are usually added in order. A deadline that a
/// concurrent arrival adds after a later deadline may be noticed slightly late.
@usableFromInline
package struct FlightDeadlines<Key: Sendable>: Sendable {
    @usableFromInline
    package struct Deadline: Sendable {
        @usableFromInline let moment: Moment
        @usableFromInline package let flight: FlightID
        @usableFromInline let key: Key

        @inlinable
        init(moment: Moment, flight: FlightID, key: Key) {
            self.moment = moment
            self.flight = flight
            self.key = key
        }
    }

    @usableFromInline var deadlines: [Deadline] = []

    /// Whether a task watches the deadlines, or is about to start.
    @usableFromInline var isWatched = false

    /// The number of deadlines, including deadlines of ended flights.
    package var count: Int { self.deadlines.count }

    @inlinable
    package init() {}

    /// Adds the deadline of a new flight.
    ///
    /// If the queue then has more than 1,024 + 4 × `runningCount` deadlines, calls ``removeEnded(keeping:)``.
    ///
    /// - Returns: The result of ``removeEnded(keeping:)``; empty without this call.
    @inlinable
    package mutating func add(
        _ flight: FlightID,
        of key: Key,
        at moment: Moment,
        runningCount: Int,
        keeping isRunning: (FlightID) -> Bool
    ) -> [Deadline] {
        self.deadlines.append(Deadline(moment: moment, flight: flight, key: key))
        return self.deadlines.count > 1_024 + 4 * runningCount ? self.removeEnded(keeping: isRunning) : []
    }

    /// Removes the deadlines of ended flights.
    ///
    /// - Returns: All deadlines from before the call, also the kept deadlines. The caller releases the array
    ///   outside its lock: a key may hold the last reference to a caller's object.
    @inlinable
    package mutating func removeEnded(keeping isRunning: (FlightID) -> Bool) -> [Deadline] {
        let former = self.deadlines
        self.deadlines = former.filter { isRunning($0.flight) }
        return former
    }

    /// The first deadline; `nil` without a deadline.
    package var next: Moment? { self.deadlines.first?.moment }

    /// Removes and returns the deadlines at the front that have passed, including deadlines of ended flights.
    ///
    /// The removal stops at the first deadline after `now`. The caller releases the deadlines outside its
    /// lock.
    package mutating func takeDue(at now: Moment) -> [Deadline] {
        let due = Array(self.deadlines.prefix { $0.moment <= now })
        self.deadlines.removeFirst(due.count)
        return due
    }
}
