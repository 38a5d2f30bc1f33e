/// When flights have to be over.
///
/// All are given the same time, so they come in the order in which they are due.
@usableFromInline
package struct Deadlines<Key: Sendable>: Sendable {
    @usableFromInline
    struct Deadline: Sendable {
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
    /// What was forgotten, for ``takeForgotten()``: a key may be the last reference to an object of the caller's.
    @usableFromInline var forgotten: [Deadline] = []

    /// Whether somebody sleeps until the first one.
    @usableFromInline var isWatched = false

    @inlinable
    var isEmpty: Bool { self.first == self.deadlines.count }

    /// How many are kept, those of flights that are over included.
    package var count: Int { self.deadlines.count }

    @inlinable
    package init() {}

    /// Adds the deadline of a flight that starts.
    ///
    /// Those of flights that are over are forgotten before they outnumber the others by far.
    @inlinable
    package mutating func add(
        _ flight: FlightID,
        of key: Key,
        at moment: Moment,
        runningCount: Int,
        where isRunning: (FlightID) -> Bool
    ) {
        self.deadlines.append(Deadline(moment: moment, flight: flight, key: key))
        if self.deadlines.count > 1_024 + 4 * runningCount { _ = self.next(where: isRunning) }
    }

    /// The first deadline of a flight that is still running; those of others before it are forgotten.
    @usableFromInline
    package mutating func next(where isRunning: (FlightID) -> Bool) -> Moment? {
        let former = self.deadlines
        self.deadlines = former[self.first...].filter { isRunning($0.flight) }
        if self.deadlines.count < former.count { self.forgotten += former }
        self.first = 0
        return self.deadlines.first?.moment
    }

    /// Takes out what was forgotten, for the caller to let go of outside its lock.
    @inlinable
    package mutating func takeForgotten() -> any Sendable {
        guard !self.forgotten.isEmpty else { return () }
        defer { self.forgotten = [] }
        return self.forgotten
    }

    /// Takes out the flights that are due.
    package mutating func takeDue(at now: Moment) -> [(FlightID, Key)] {
        var due: [(FlightID, Key)] = []
        while self.first < self.deadlines.count, self.deadlines[self.first].moment <= now {
            due.append((self.deadlines[self.first].flight, self.deadlines[self.first].key))
            self.first += 1
        }
        return due
    }
}
