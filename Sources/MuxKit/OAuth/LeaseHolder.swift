/// Keeps a lease during operations, and gives the lease back after the last operation.
package final class LeaseHolder: Sendable {
    private struct State: Sendable {
        /// The number of running uses; see ``runAsUse(_:)``.
        var uses = 0
        /// The last term of this owner; `nil` after the term was given back, or another owner was found.
        var term: MuxLeaseTerm?
        /// The end of the term on the monotonic clock; no other owner should have the lease before this time.
        var end = Moment.distantPast
        /// Increases with the first term after the end of a term, with a new generation, and when another
        /// owner is found.
        var tenure: UInt64 = 0
    }

    private let lease: any MuxLease
    private let owner: String
    private let duration: Duration
    private let time: TimeSource
    private let state = Locked(State())
    /// Serialises calls of `take` and `giveBack`.
    private let mutex = AsyncMutex()

    package init(_ lease: any MuxLease, owner: String, duration: Duration, time: TimeSource) {
        self.lease = lease
        self.owner = owner
        self.duration = max(duration, .milliseconds(1))
        self.time = time
    }

    /// Waits for the lease, runs `work`, and keeps the lease until the end of `work`.
    ///
    /// The lease is extended after each third of the term. The lease can still be lost, for example during a
    /// suspension of the process: `work` must compare values of ``tenure``. Waiting owners get the lease in
    /// no particular order.
    ///
    /// - Throws: ``RunnerError/leaseUnavailable(underlying:)``, `CancellationError` during the wait, or the
    ///   error of `work`.
    package func run<Success: Sendable>(_ work: () async throws -> Success) async throws -> Success {
        try await self.runAsUse {
            try await self.mapLeaseErrors { try await self.waitAndTakeLease() }
            return try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { await self.keepExtending() }
                defer { group.cancelAll() }
                return try await work()
            }
        }
    }

    /// A use of the lease between ``acquire(_:)`` and ``release(_:)``: the task that extends the lease.
    package typealias Use = Task<Void, Never>

    /// Waits for the lease, and keeps the lease until the matching ``release(_:)``.
    ///
    /// Unlike with ``run(_:)``, the caller can give the lease back before a long suspension. If this object
    /// already has the lease for another use, the call only extends the lease, after a third of the term.
    ///
    /// - Parameter spawn: Starts the task that extends the lease.
    /// - Returns: The use.
    /// - Throws: ``RunnerError/leaseUnavailable(underlying:)``, or `CancellationError`.
    package func acquire(_ spawn: TaskLauncher) async throws -> Use {
        self.state.withLock { $0.uses += 1 }
        do {
            // Uses that are shorter than the pause of their extension would not extend the lease.
            if self.isExtensionDue { _ = try? await self.take() }
            if self.tenure == nil { try await self.mapLeaseErrors { try await self.waitAndTakeLease() } }
        } catch {
            await self.endUse()
            throw error
        }
        return spawn(name: "mux.lease") { await self.keepExtending() }
    }

    /// Whether this owner has the lease, and a third of the term has passed.
    private var isExtensionDue: Bool {
        let now = self.time.now
        return self.state.withLock { $0.end > now && $0.end <= now.advanced(by: self.length(of: $0.term) / 3 * 2) }
    }

    /// Ends a use; the lease is given back after the last use.
    package func release(_ use: Use) async {
        use.cancel()
        // An extension that still runs could take the lease again after the lease was given back.
        await use.value
        await self.endUse()
    }

    /// Extends the lease after each third of the term, until a cancellation or a loss to another owner.
    private func keepExtending() async {
        // The minimum prevents a busy loop with a lease that reports no remaining time.
        let shortest = min(self.duration / 3, .milliseconds(100))
        var pause: Duration { max(self.length(of: self.state.withLock { $0.term }) / 3, shortest) }
        while (try? await self.time.sleep(for: pause)) != nil {
            // After a loss to another owner, the lease is not taken again: the other owner may have begun the
            // same work.
            if let term = try? await self.take(), term.owner != self.owner { return }
        }
    }

    /// Runs `work` if no other owner has the lease.
    ///
    /// - Throws: The error of the lease or of `work`.
    package func runIfFree(_ work: () async throws -> Void) async throws {
        try await self.runAsUse {
            if try await self.take().owner == self.owner { try await work() }
        }
    }

    /// The number of the current uninterrupted possession of the lease; `nil` if another owner may have the
    /// lease now.
    ///
    /// If two reads return the same number, no other owner has had the lease between the reads. The exception
    /// is a lease that admits another owner before the end of a term, until the next extension.
    package var tenure: UInt64? {
        let now = self.time.now
        return self.state.withLock { now < $0.end ? $0.tenure : nil }
    }

    /// Takes the lease again after a possible end of the lease; other owners may have had the lease in
    /// between.
    ///
    /// Called inside a use of the lease.
    ///
    /// - Returns: The new ``tenure``; `nil` if another owner has the lease.
    /// - Throws: ``RunnerError/leaseUnavailable(underlying:)``, or `CancellationError`.
    func retakeLease() async throws -> UInt64? {
        let term = try await self.mapLeaseErrors { try await self.take() }
        return self.state.withLock { term.owner == self.owner ? $0.tenure : nil }
    }

    /// Counts `body` as a use of the lease, but does not take the lease.
    ///
    /// If `body` takes the lease, the lease is given back after the last use.
    func runAsUse<Success: Sendable>(_ body: () async throws -> Success) async throws -> Success {
        self.state.withLock { $0.uses += 1 }
        let result = await Result<_, any Error> { try await body() }
        // The lease is given back even after a cancellation, so that other owners do not wait for the end of
        // the term.
        await self.endUse()
        return try result.get()
    }

    /// Ends a use, even after a cancellation.
    private func endUse() async { await finishing { await self.mutex.run { await self.countEndOfUse() } } }

    /// Called inside ``mutex``, so that no extension runs at the same time.
    private func countEndOfUse() async {
        let term = self.state.withLock { state -> MuxLeaseTerm? in
            state.uses -= 1
            guard state.uses == 0 else { return nil }
            defer { state.term = nil }
            state.end = .distantPast
            return state.term
        }
        if let term { try? await self.lease.giveBack(term) }
    }

    /// The duration of a term of this owner, measured from the call of `take`, and at least one millisecond.
    ///
    /// A lease may shorten the requested duration.
    private func length(of term: MuxLeaseTerm?) -> Duration {
        min(self.duration, max(term?.remaining ?? self.duration, .milliseconds(1)))
    }

    /// Takes or extends the lease unless another owner has the lease, and records the result.
    private func take() async throws -> MuxLeaseTerm {
        try await self.mutex.run {
            let start = self.time.now
            let term = try await self.lease.take(as: self.owner, for: self.duration)
            let now = self.time.now
            self.state.withLock { state in
                let isOurs = term.owner == self.owner
                // Another generation: another owner may have had the lease since the last term, for example
                // because a clock was set forward.
                if !isOurs || now >= state.end || term.generation != state.term?.generation { state.tenure &+= 1 }
                state.term = isOurs ? term : nil
                state.end = isOurs ? start.advanced(by: self.length(of: term)) : .distantPast
            }
            return term
        }
    }

    /// Waits until no other owner has the lease, and takes the lease.
    private func waitAndTakeLease() async throws {
        // The last term that must not be watched again: the lease has reported the end of the term, or cannot
        // watch the term. If `take` still returns this term, the loop waits for the time of the term without
        // a watch.
        var misreported: MuxLeaseTerm?
        while true {
            try Task.checkCancellation()
            let term = try await self.take()
            guard term.owner != self.owner else { return }
            let isNew = misreported?.owner != term.owner || misreported?.generation != term.generation
            misreported = try await self.waitForEnd(of: term, isWatched: isNew) ? term : nil
        }
    }

    /// Waits until `term` may have ended.
    ///
    /// The wait ends when the term's time has passed; with a watch, the wait also ends when the lease reports
    /// the end of the term.
    ///
    /// - Returns: Whether the term must not be watched again: the lease has reported the end, or cannot be
    ///   watched.
    private func waitForEnd(of term: MuxLeaseTerm, isWatched: Bool) async throws -> Bool {
        let (lease, time) = (self.lease, self.time)
        // The minimum prevents a busy loop for a term without remaining time.
        let remaining = max(term.remaining, .milliseconds(1))
        return try await withThrowingTaskGroup(of: Bool.self) { group in
            group.addTask {
                try await time.sleep(for: remaining)
                return false
            }
            if isWatched {
                group.addTask {
                    do {
                        try await lease.wait(for: term)
                    } catch  where !(error is CancellationError) {
                        try await time.sleep(for: remaining)  // the lease cannot be watched
                    }
                    return true
                }
            }
            defer { group.cancelAll() }
            return try await group.next() ?? false
        }
    }

    private func mapLeaseErrors<Success: Sendable>(_ body: () async throws -> Success) async throws -> Success {
        do {
            return try await body()
        } catch let error as CancellationError {
            throw error
        } catch {
            throw RunnerError.leaseUnavailable(underlying: error)
        }
    }
}
