/// A sequential model of an object.
protocol SequentialModel: Hashable {
    associatedtype Action: Sendable

    /// Applies `operation` and returns whether the recorded result is possible.
    mutating func perform(_ operation: Linearizability.Operation<Action>) -> Bool
}

/// Checks whether a sequential order explains the results of concurrent operations.
///
/// Wing and Gong, "Testing and verifying concurrent objects", 1993: the search looks for an order in which
/// every operation takes effect between its call and its return, and in which the sequential model gives the
/// same results. Failed states are not tried twice (Lowe, 2017). A history of many keys is linearizable if the
/// history of each key is linearizable.
enum Linearizability {
    /// An operation and its result.
    enum Action: Hashable, Sendable, CustomStringConvertible {
        /// A value was stored.
        case store(Int)
        /// The value was made stale.
        case refresh
        /// The value was removed.
        case clear
        /// The value was read. `nil` means no value.
        case look(Int?)
        /// The value was fresh, or was fetched by this request or by another request.
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

    /// An operation with the moments of its call and its return.
    struct Operation<Action: Sendable>: Sendable, CustomStringConvertible {
        let action: Action
        let called: Int
        /// The greatest integer if the operation never returned.
        let returned: Int

        var description: String { "[\(self.called)–\(self.returned)] \(self.action)" }
    }

    struct Variable: SequentialModel {
        var value: Int?
        var isStale = false
        /// The return of the operation that set the value.
        var filled = 0
        /// Fetched numbers increase, so a lower number is an older value.
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
                // A request that was called before the value was set may fetch nevertheless.
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

    /// Whether an order exists for a history of at most 128 operations.
    ///
    /// - Parameters:
    ///   - history: The operations, in any order.
    ///   - model: The object before the operations.
    /// - Returns: Whether an order exists.
    static func holds<Model: SequentialModel>(_ history: [Operation<Model.Action>], from model: Model) -> Bool {
        guard history.count <= 128 else { return false }
        // Sorted by call, so that the search stops at the first operation that was called too late.
        let history = history.sorted { $0.called < $1.called }
        var seen: Set<Place<Model>> = []
        var open = [Place(done: 0, model: model)]
        let all = history.count == 128 ? UInt128.max : (1 << UInt128(history.count)) - 1
        while let place = open.popLast() {
            if place.done == all { return true }
            guard seen.insert(place).inserted else { continue }
            // The next operation was called before the first return of all remaining operations.
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
