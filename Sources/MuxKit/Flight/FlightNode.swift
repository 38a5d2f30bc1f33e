/// Names what a flight is about, across all engines: one node of the graph of who waits for whom.
@usableFromInline
package struct FlightNode: Sendable, Hashable {
    /// The flight that the present task works for.
    @TaskLocal package static var current: FlightNode?

    /// The flight that the present task works for.
    @usableFromInline static var ofTask: FlightNode? { Self.current }

    @usableFromInline let engine: ObjectIdentifier
    @usableFromInline let key: any Hashable & Sendable

    @inlinable
    package init(_ engine: AnyObject, _ key: some Hashable & Sendable) {
        self.engine = ObjectIdentifier(engine)
        self.key = key
    }

    @usableFromInline
    package static func == (a: FlightNode, b: FlightNode) -> Bool {
        a.engine == b.engine && AnyHashable(a.key) == AnyHashable(b.key)
    }

    @usableFromInline
    package func hash(into hasher: inout Hasher) {
        hasher.combine(self.engine)
        hasher.combine(AnyHashable(self.key))
    }
}

/// Who waits for whom, among flights whose work asks for other flights.
///
/// A circle in it would be a deadlock. Only calls from within a flight's work are noted, so others pay nothing.
@usableFromInline
package enum FlightGraph: Sendable {
    private static let waits = Guarded<[FlightNode: [FlightNode: Int]]>([:])

    /// Notes that the work of one flight waits for another.
    ///
    /// - Returns: `false`, and nothing is noted, if the other one waits for it already.
    @usableFromInline
    static func begin(_ waiting: FlightNode, waitsFor other: FlightNode) -> Bool {
        self.waits.withLock { waits in
            var seen: Set<FlightNode> = []
            var open = [other]
            while let node = open.popLast() {
                if node == waiting { return false }
                guard seen.insert(node).inserted else { continue }
                open += waits[node].map { Array($0.keys) } ?? []
            }
            waits[waiting, default: [:]][other, default: 0] += 1
            return true
        }
    }

    /// Notes that the wait is over.
    static func end(_ waiting: FlightNode, waitsFor other: FlightNode) {
        self.waits.withLock { waits in
            guard let count = waits[waiting]?[other] else { return }
            waits[waiting]?[other] = count > 1 ? count - 1 : nil
            if waits[waiting]?.isEmpty ?? false { waits[waiting] = nil }
        }
    }

    /// How many flights wait for others: none at rest.
    package static var waitingCount: Int { self.waits.withLock { $0.count } }
}
