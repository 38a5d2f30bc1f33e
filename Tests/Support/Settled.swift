/// Reads a value until a condition holds, for at most a minute.
///
/// For ends that no event reports. The first 100 reads have no pauses; the pauses between later reads grow
/// from 1 to 20 ms. Returns early if the task is cancelled.
///
/// - Parameters:
///   - value: Reads the value.
///   - isSettled: The condition.
/// - Returns: The value of the last read.
@discardableResult
package func settled<Value>(
    _ value: () async -> Value,
    when isSettled: (Value) -> Bool
) async -> Value {
    // A leaked resource still exists after this time, also beside other work.
    let end = ContinuousClock.now.advanced(by: .seconds(60))
    var looks = 0
    while true {
        await Task.yield()
        let found = await value()
        if isSettled(found) || Task.isCancelled || .now >= end { return found }
        looks += 1
        if looks > 100 { try? await ContinuousClock().sleep(for: .milliseconds(min(looks / 100, 20))) }
    }
}

/// The occupancy once no work is left, or after a minute: a task ends a moment after the callers have the
/// results.
package func settledOccupancy(
    of occupancy: () -> (waiters: Int, tasks: Int, keys: Int)
) async -> (waiters: Int, tasks: Int, keys: Int) {
    await settled(occupancy) { $0 == (0, 0, 0) }
}
