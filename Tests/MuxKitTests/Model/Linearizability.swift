/// An object on which operations happen one at a time.
protocol SequentialModel: Hashable {
    associatedtype Action: Sendable

    /// Does it; returns whether the answer would have been what it was.
    mutating func perform(_ operation: Linearizability.Operation<Action>) -> Bool
}

/// Checks whether what callers saw can be explained by operations that happen one at a time.
///
/// Wing and Gong, "Testing and verifying concurrent objects", 1993: an order is searched for in which every operation takes
/// effect between its call and its return, and in which a plain variable would have given the same answers. States that were
/// found to lead nowhere are not tried twice (Lowe, 2017). A history of many keys is right if that of each key is.
enum Linearizability {
    /// What an operation did, and what it answered.
    enum Action: Hashable, Sendable, CustomStringConvertible {
        /// A value was put in by hand.
        case store(Int)
        /// What was there was made stale.
        case refresh
        /// What was there is gone.
        case clear
        /// This was there; `nil` for nothing.
        case look(Int?)
        /// This was there and fresh, or was fetched, or somebody else had it fetched.
        case request(Int)

        var description: String {
            switch self {
            case .store(let value): "store \(value)"
            case .refresh: "refresh"
            case .clear: "clear"
            case .look(let value): "look: \(value.map(String.init) ?? "nothing")"
            case .request(let value): "request: \(value)"
            }
        }
    }

    /// An operation with the moments between which it took effect.
    struct Operation<Action: Sendable>: Sendable, CustomStringConvertible {
        let action: Action
        let called: Int
        /// The greatest number for one that never returned.
        let returned: Int

        var description: String { "[\(self.called)–\(self.returned)] \(self.action)" }
    }

    /// The plain variable.
    struct Variable: SequentialModel {
        var value: Int?
        var isStale = false
        /// When whatever put the value in had returned.
        var filled = 0
        /// Numbers of fetches grow: a lower one is a value from before.
        var highest = 0

        mutating func perform(_ operation: Operation<Action>) -> Bool {
            switch operation.action {
            case .store(let value):
                self.value = value
                self.isStale = false
                self.filled = operation.returned
                self.highest = max(self.highest, value)
            case .refresh: self.isStale = true
            case .clear:
                self.value = nil
                self.isStale = false
            case .look(let value): return value == self.value
            case .request(let value):
                if self.value == value, !self.isStale { return true }
                // Who was under way when a value was put in fetches nevertheless, if its fetch had not begun by then.
                let isNeeded = self.value == nil || self.isStale || operation.called < self.filled
                guard isNeeded, value > self.highest else { return false }
                self.value = value
                self.isStale = false
                self.filled = operation.returned
                self.highest = value
            }
            return true
        }
    }

    private struct Place<Model: SequentialModel>: Hashable {
        /// A bit for each operation.
        var done: UInt128
        var model: Model

        func isDone(_ index: Int) -> Bool { self.done & (1 << UInt128(index)) != 0 }
    }

    /// Whether there is such an order; histories are at most 128 operations long.
    ///
    /// - Parameters:
    ///   - history: The operations, in any order.
    ///   - model: The object as it was before all of them.
    /// - Returns: Whether there is one.
    static func holds<Model: SequentialModel>(_ history: [Operation<Model.Action>], from model: Model) -> Bool {
        guard history.count <= 128 else { return false }
        // By their calls, so that the search stops at the first that was called too late.
        let history = history.sorted { $0.called < $1.called }
        var seen: Set<Place<Model>> = []
        var open = [Place(done: 0, model: model)]
        let all = history.count == 128 ? UInt128.max : (1 << UInt128(history.count)) - 1
        while let place = open.popLast() {
            if place.done == all { return true }
            guard seen.insert(place).inserted else { continue }
            // Only what was called before anything that is left has returned can be next.
            var firstReturn = Int.max
            for index in (~place.done).trailingZeroBitCount..<history.count where !place.isDone(index) {
                guard history[index].called < firstReturn else { break }
                firstReturn = min(firstReturn, history[index].returned)
                var next = place
                guard next.model.perform(history[index]) else { continue }
                next.done |= 1 << UInt128(index)
                open.append(next)
            }
        }
        return false
    }
}
