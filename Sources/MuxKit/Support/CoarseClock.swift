/// What a hit reads the time from: the system's cheap clock, where the time source has no other.
@usableFromInline
package struct CoarseClock: Sendable {
    private let origin: Int64?

    /// More than a reading can be behind.
    static let lateness = Duration.milliseconds(50)

    package init(_ time: TimeSource) { self.origin = time.systemOrigin }

    /// The present moment or one a few milliseconds earlier; `nil` if the time source has to be asked.
    @usableFromInline
    package var now: Moment? { self.origin.map { Moment(nanoseconds: SystemClock.recentNanoseconds &- $0) } }
}
