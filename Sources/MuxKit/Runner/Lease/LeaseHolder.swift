/// Does things while it has a lease, and gives the lease back afterwards.
package struct LeaseHolder: Sendable {
    private let lease: any MuxLease
    private let owner: String
    private let duration: Duration
    private let time: TimeSource

    package init(_ lease: any MuxLease, owner: String, duration: Duration, time: TimeSource) {
        self.lease = lease
        self.owner = owner
        self.duration = max(duration, .milliseconds(1))
        self.time = time
    }

    /// Runs `work` as soon as nobody else has the lease, and keeps it for as long as that takes.
    ///
    /// Others wait in no order. While the work lasts the lease is taken again and again, in a third of its time.
    ///
    /// - Throws: ``RunnerError/leaseUnavailable(underlying:)``, `CancellationError` while waiting, or what `work` threw.
    package func run<Success: Sendable>(_ work: () async throws -> Success) async throws -> Success {
        let term = try await self.taken()
        let result = await withTaskGroup(of: Void.self) { group -> Result<Success, any Error> in
            group.addTask {
                while (try? await self.time.sleep(for: self.duration / 3)) != nil {
                    _ = try? await self.lease.take(as: self.owner, for: self.duration)
                }
            }
            defer { group.cancelAll() }
            do {
                return .success(try await work())
            } catch {
                return .failure(error)
            }
        }
        // Also for one who was cancelled: the others need not wait for the end of the time.
        await finishing { try? await self.lease.giveBack(term) }
        return try result.get()
    }

    /// Runs `work` if nobody else has the lease.
    ///
    /// - Throws: What the lease or `work` threw.
    func runIfFree(_ work: () async throws -> Void) async throws {
        let term = try await self.lease.take(as: self.owner, for: self.duration)
        guard term.owner == self.owner else { return }
        do {
            try await work()
        } catch {
            try? await self.lease.giveBack(term)
            throw error
        }
        try? await self.lease.giveBack(term)
    }

    private func taken() async throws -> MuxLeaseTerm {
        while true {
            try Task.checkCancellation()
            do {
                let term = try await self.lease.take(as: self.owner, for: self.duration)
                if term.owner == self.owner { return term }
                try await self.end(of: term)
            } catch let error as CancellationError {
                throw error
            } catch {
                throw RunnerError.leaseUnavailable(underlying: error)
            }
        }
    }

    /// Waits until `term` may be over: given back, or out of time.
    private func end(of term: MuxLeaseTerm) async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await self.lease.wait(for: term) }
            group.addTask { try await self.time.sleep(for: term.remaining) }
            defer { group.cancelAll() }
            try await group.next()
        }
    }
}
