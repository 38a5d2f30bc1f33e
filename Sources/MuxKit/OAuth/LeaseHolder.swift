/// Does things while it has a lease, and gives the lease back when the last of them has ended.
package final class LeaseHolder: Sendable {
    private struct State: Sendable {
        /// How many things are being done, or are about to be.
        var uses = 0
        /// What was taken, and not yet given back.
        var term: MuxLeaseTerm?
        /// Until when nobody else can have the lease.
        var end = Moment.distantPast
        /// Counts the times for which nobody else can have had the lease in between.
        var tenure: UInt64 = 0
    }

    private let lease: any MuxLease
    private let owner: String
    private let duration: Duration
    private let time: TimeSource
    private let state = Locked(State())
    /// Where taking and giving back wait for each other.
    private let lane = AsyncMutex()

    package init(_ lease: any MuxLease, owner: String, duration: Duration, time: TimeSource) {
        self.lease = lease
        self.owner = owner
        self.duration = max(duration, .milliseconds(1))
        self.time = time
    }

    /// Runs `work` as soon as nobody else has the lease, and keeps it for as long as that takes.
    ///
    /// Others wait in no order. While the work lasts the lease is taken again and again, in a third of its time. A process
    /// that is held up for longer loses it all the same, which the work can find out by ``tenure``.
    ///
    /// - Throws: ``RunnerError/leaseUnavailable(underlying:)``, `CancellationError` while waiting, or what `work` threw.
    package func run<Success: Sendable>(_ work: () async throws -> Success) async throws -> Success {
        try await self.using {
            try await self.orUnavailable { try await self.untilTaken() }
            return try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask {
                    while (try? await self.time.sleep(for: self.duration / 3)) != nil {
                        // What is lost is not taken back: somebody else may have begun the same.
                        if let term = try? await self.take(), term.owner != self.owner { return }
                    }
                }
                defer { group.cancelAll() }
                return try await work()
            }
        }
    }

    /// Runs `work` if nobody else has the lease.
    ///
    /// - Throws: What the lease or `work` threw.
    package func runIfFree(_ work: () async throws -> Void) async throws {
        try await self.using {
            if try await self.take().owner == self.owner { try await work() }
        }
    }

    /// Names the time for which nobody else can have had the lease until now; `nil` if somebody else may have it.
    var tenure: UInt64? {
        let now = self.time.now
        return self.state.withLock { now < $0.end ? $0.tenure : nil }
    }

    /// Takes the lease again after its time may have been up; others may have had it in between.
    ///
    /// - Returns: What ``tenure`` is from now on; `nil` if somebody else has the lease.
    /// - Throws: ``RunnerError/leaseUnavailable(underlying:)``, or `CancellationError`.
    func takenAgain() async throws -> UInt64? {
        let term = try await self.orUnavailable { try await self.take() }
        return self.state.withLock { term.owner == self.owner ? $0.tenure : nil }
    }

    /// Counts `body` among those who use the lease; the last one gives it back.
    private func using<Success: Sendable>(_ body: () async throws -> Success) async throws -> Success {
        self.state.withLock { $0.uses += 1 }
        let result: Result<Success, any Error>
        do {
            result = .success(try await body())
        } catch {
            result = .failure(error)
        }
        // Also for one who was cancelled: the others need not wait for the end of the time.
        await finishing { await self.lane.run { await self.useEnded() } }
        return try result.get()
    }

    private func useEnded() async {
        let term = self.state.withLock { state -> MuxLeaseTerm? in
            state.uses -= 1
            guard state.uses == 0 else { return nil }
            defer { state.term = nil }
            state.end = .distantPast
            return state.term
        }
        if let term { try? await self.lease.giveBack(term) }
    }

    private func take() async throws -> MuxLeaseTerm {
        try await self.lane.run {
            let start = self.time.now
            let term = try await self.lease.take(as: self.owner, for: self.duration)
            let now = self.time.now
            self.state.withLock { state in
                let isOurs = term.owner == self.owner
                if !isOurs || now >= state.end { state.tenure &+= 1 }
                state.term = isOurs ? term : nil
                state.end = isOurs ? start.advanced(by: self.duration) : .distantPast
            }
            return term
        }
    }

    /// Waits until nobody else has the lease, and takes it.
    private func untilTaken() async throws {
        // The term whose end was told though it had not come.
        var mistold: MuxLeaseTerm?
        while true {
            try Task.checkCancellation()
            let term = try await self.take()
            guard term.owner != self.owner else { return }
            let isNew = mistold?.owner != term.owner || mistold?.generation != term.generation
            mistold = try await self.end(of: term, isTold: isNew) ? term : nil
        }
    }

    /// Waits until `term` may be over: given back, if that is told, or out of time.
    ///
    /// - Returns: Whether its end was told.
    private func end(of term: MuxLeaseTerm, isTold: Bool) async throws -> Bool {
        let (lease, time) = (self.lease, self.time)
        // A lease that is somebody's, and over at once, would be asked for without a rest.
        let remaining = max(term.remaining, .milliseconds(1))
        return try await withThrowingTaskGroup(of: Bool.self) { group in
            group.addTask {
                try await time.sleep(for: remaining)
                return false
            }
            if isTold {
                group.addTask {
                    do {
                        try await lease.wait(for: term)
                    } catch  where !(error is CancellationError) {
                        try await time.sleep(for: remaining)  // there is no way of knowing
                    }
                    return true
                }
            }
            defer { group.cancelAll() }
            return try await group.next() ?? false
        }
    }

    private func orUnavailable<Success: Sendable>(_ body: () async throws -> Success) async throws -> Success {
        do {
            return try await body()
        } catch let error as CancellationError {
            throw error
        } catch {
            throw RunnerError.leaseUnavailable(underlying: error)
        }
    }
}
