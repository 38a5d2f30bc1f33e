/// Does `work` for all items at once and, where that fails, for parts of them, until those that fail are alone.
///
/// - Parameters:
///   - items: The items, which may be done in any order.
///   - concernsAll: Whether an error says that trying parts would be no use.
///   - work: Does something for all items that it is given, or throws.
/// - Returns: The items for which it failed, and why.
/// - Complexity: O(log *n*) calls for each item that fails. When ``mostFailuresInARow`` calls have failed one after another,
///   the rest counts as failed: nothing works any more.
package nonisolated(nonsending) func isolatingFailures<Item>(
    of items: [Item],
    concernsAll: (any Error) -> Bool,
    _ work: ([Item]) async throws -> Void
) async -> [(item: Item, error: any Error)] {
    var failures: [(item: Item, error: any Error)] = []
    var parts = items.isEmpty ? [] : [items]
    var failuresInARow = 0
    while let part = parts.popLast() {
        do {
            try await work(part)
            failuresInARow = 0
        } catch {
            failuresInARow += 1
            if failuresInARow >= mostFailuresInARow {
                failures += (parts.flatMap(\.self) + part).map { ($0, error) }
                return failures
            }
            guard part.count > 1, !concernsAll(error) else {
                failures += part.map { ($0, error) }
                continue
            }
            // Every second one, so that neighbours, which are often of one kind, come apart.
            for remainder in 0...1 {
                parts.append(part.indices.filter { $0 % 2 == remainder }.map { part[$0] })
            }
        }
    }
    return failures
}

/// Enough to find its way to single ones of millions of items, few enough for a store that is down.
private let mostFailuresInARow = 64
