/// What is left when the tasks that are about to end have ended: a task ends a moment after it has answered its callers.
package func settledOccupancy(
    of occupancy: () -> (waiters: Int, tasks: Int, keys: Int)
) async -> (waiters: Int, tasks: Int, keys: Int) {
    // What does not end is still there after that long, also beside other work.
    let end = ContinuousClock.now.advanced(by: .seconds(60))
    while occupancy() != (0, 0, 0), .now < end { await Task.yield() }
    return occupancy()
}
