/// What is left when the tasks that are about to end have ended: a task ends a moment after it has answered its callers.
package func settledOccupancy(
    of occupancy: () -> (waiters: Int, tasks: Int, keys: Int)
) async -> (waiters: Int, tasks: Int, keys: Int) {
    var turns = 0
    // What does not end is still there after that many turns of all others.
    while occupancy().tasks > 0, turns < 100_000 {
        await Task.yield()
        turns += 1
    }
    return occupancy()
}
