/// A queue of the deadlines of flights.
///
/// All flights have the same time limit, so deadlines are added in order, apart from concurrent beginnings.
@usableFromInline
package struct FlightDeadlines<Key: Sendable>: Sendable {
    @usableFromInline
    package struct Deadline: Sendable {
        @usableFromInline let moment: Moment
        @usableFromInline let flight: FlightID
        @usableFromInline let key: Key

        @inlinable
        init(moment: Moment, flight: FlightID, key: Key) {
            self.moment = moment
            self.flight = flight
            self.key = key
        }
    }

    @usableFromInline var deadlines: [Deadline] = []
    @usableFromInline var first = 0
    /// Former contents of ``deadlines``, including deadlines of running flights, for ``takeForgotten()``: a
    /// key may hold the last reference to a caller's object.
    @usableFromInline var forgotten: [Deadline] = []

    /// Whether a task sleeps until the first deadline.
    @usableFromInline var isWatched = false

    /// The number of deadlines, including deadlines of ended flights and taken deadlines.
    package var count: Int { self.deadlines.count }

    @inlinable
    package init() {}

    /// Adds the deadline of a new flight.
    ///
    /// Removes the deadlines of ended flights if there are more than 1,024 deadlines plus 4 for each running
    /// flight.
    @inlinable
    package mutating func add(
        _ flight: FlightID,
        of key: Key,
        at moment: Moment,
        runningCount: Int,
        keeping isRunning: (FlightID) -> Bool
    ) {
        self.deadlines.append(Deadline(moment: moment, flight: flight, key: key))
        if self.deadlines.count > 1_024 + 4 * runningCount { _ = self.removeEnded(keeping: isRunning) }
    }

    /// Removes the deadlines of ended flights and the deadlines that ``takeDue(at:)`` has returned.
    ///
    /// - Returns: The first of the other deadlines, all of running flights; `nil` without a deadline.
    @inlinable
    package mutating func removeEnded(keeping isRunning: (FlightID) -> Bool) -> Moment? {
        let former = self.deadlines
        self.deadlines = []
        for index in self.first..<former.count where isRunning(former[index].flight) {
            self.deadlines.append(former[index])
        }
        if self.deadlines.count < former.count { self.forgotten += former }
        self.first = 0
        return self.deadlines.first?.moment
    }

    /// Takes the former contents, which the caller releases outside its lock.
    @inlinable
    package mutating func takeForgotten() -> [Deadline] {
        guard !self.forgotten.isEmpty else { return [] }
        defer { self.forgotten = [] }
        return self.forgotten
    }

    /// Returns the flights with a passed deadline, including ended flights, each once;
    /// ``removeEnded(keeping:)`` removes the returned deadlines.
    package mutating func takeDue(at now: Moment) -> [(FlightID, Key)] {
        var due: [(FlightID, Key)] = []
        while self.first < self.deadlines.count, self.deadlines[self.first].moment <= now {
            due.append((self.deadlines[self.first].flight, self.deadlines[self.first].key))
            self.first += 1
        }
        return due
    }
}
