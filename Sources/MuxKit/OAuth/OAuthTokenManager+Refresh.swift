import Foundation

/// The lower layer's update: access tokens, made with the grant of the upper layer.
extension OAuthTokenManager {
    /// Returns an access token made with, or given beside, the grant of `upper`.
    ///
    /// - Parameters:
    ///   - held: The grant that the caller was handed.
    ///   - upper: The layer that holds it.
    ///   - refused: The access token that was refused; `nil` if none was made with this grant yet.
    /// - Returns: The token, or that the grant is no good.
    /// - Throws: ``RunnerError``, or what the refresh threw.
    func access(
        with held: Upper.VersionedDependency,
        of upper: Upper,
        insteadOf refused: Lower.VersionedDependency?
    ) async throws -> RunResult<Lower.Updated> {
        guard let limit = self.refreshLimit else {
            return try await self.accessInTurn(with: held, of: upper, insteadOf: refused)
        }
        // A refresh that does not heed its cancellation may take as long as it likes; who waits for it may not have to.
        let result = try await waiting(for: limit, by: self.repository.time, self.repository.spawn) {
            try await self.accessInTurn(with: held, of: upper, insteadOf: refused)
        } late: { result in
            guard case .success(.output) = result else { return }
            let revision = upper.held?.revision
            self.sessionState.withLock { $0.unclaimed = revision }
        }
        guard let result else { throw RunnerError.updateTimedOut(after: limit) }
        return result
    }

    private func accessInTurn(
        with held: Upper.VersionedDependency,
        of upper: Upper,
        insteadOf refused: Lower.VersionedDependency?
    ) async throws -> RunResult<Lower.Updated> {
        while true {
            guard let lane = upper.held?.value.lane, upper.session == held.session else { throw RunnerError.signedOut }
            let result = try await lane.run { () -> RunResult<Lower.Updated>? in
                // While waiting for the lane, another use may have exchanged the refresh token, and left an access token.
                guard let present = upper.held, present.session == held.session else { throw RunnerError.signedOut }
                // Or other tokens were set, which have a lane of their own.
                guard present.value.lane === lane else { return nil }
                return try await self.access(of: present, of: upper, insteadOf: refused)
            }
            if let result { return result }
        }
    }

    /// Returns an access token of the present grant; in its lane.
    ///
    /// - Returns: The token, or that the grant is no good; `nil` if there may be another grant by now.
    private func access(
        of present: Upper.VersionedDependency,
        of upper: Upper,
        insteadOf refused: Lower.VersionedDependency?
    ) async throws -> RunResult<Lower.Updated>? {
        let isUnclaimed = self.sessionState.withLock { sessionState in
            defer { sessionState.unclaimed = nil }
            return sessionState.unclaimed == present.revision
        }
        // The mark of a late token may come when the next caller has claimed it already, and was refused with it.
        let isLate = isUnclaimed && !self.isSame(present.value.access, as: refused?.value)
        let isUntried = isLate || (refused?.parentEpoch ?? 0) < present.epoch
        if isUntried, let access = self.usableAccess(of: present) {
            try await self.store(present, of: upper)
            return .output(self.updated(access, of: present, isFound: !present.value.isFromSignIn))
        }
        guard self.sessionState.withLock({ $0.refusedEpoch }) != present.epoch else { return .badDependency }
        do {
            return try await self.alone(risking: present.value) {
                try await self.renewedAccess(with: present, of: upper, insteadOf: refused?.value)
            }
        } catch {
            // It looks over by the time of day, which may be wrong: the server knows better.
            guard isUntried, let access = present.value.access, upper.held?.epoch == present.epoch,
                upper.session == present.session, !Task.isCancelled, error.criticalCause == nil
            else { throw error }
            return .output(self.updated(access, of: present, isFound: true))
        }
    }

    /// Whether both are there and the same token.
    private func isSame(_ access: AccessToken?, as other: AccessToken?) -> Bool {
        guard let access, let other else { return false }
        return self.tokens.areSame(access, other)
    }

    /// The access token of a grant, unless it has ended.
    private func usableAccess(of held: Upper.VersionedDependency) -> AccessToken? {
        if let end = held.value.accessEnd, end.moment <= self.repository.time.now { return nil }
        return held.value.access
    }

    private func updated(
        _ access: AccessToken,
        of held: Upper.VersionedDependency,
        continuing former: Upper.VersionedDependency? = nil,
        isFound: Bool
    ) -> Lower.Updated {
        Lower.Updated(
            .updatedDependency(access),
            parentEpoch: held.epoch,
            continuing: former?.epoch,
            lifetime: held.value.accessEnd.map { $0.moment.duration(since: self.repository.time.now) },
            isFound: isFound
        )
    }

    /// Exchanges the refresh token for an access token, unless somebody else has.
    ///
    /// - Returns: The token, or that the grant is no good; `nil` if there may be another grant by now.
    private func renewedAccess(
        with given: Upper.VersionedDependency,
        of upper: Upper,
        insteadOf refused: AccessToken?
    ) async throws -> RunResult<Lower.Updated>? {
        var leaseTenure = self.leaseHolder?.leaseTenure
        let present = try await self.withSiblings(given, of: upper, since: leaseTenure)
        if let access = self.usableAccess(of: present), present.revision != given.revision,
            !self.isSame(access, as: refused)
        {
            return .output(self.updated(access, of: present, continuing: given, isFound: true))
        }
        guard var held = try await self.journaled(present, of: upper) else { return nil }
        if let leaseHolder, held.value.wasStored, !self.isAlone(since: leaseTenure) {
            do {
                // The process was held up for longer than the lease lasts, and others may have acted since.
                leaseTenure = try await leaseHolder.takenAgain()
                let isPresent =
                    try await self.withSiblings(held, of: upper, since: leaseTenure).revision == held.revision
                guard leaseTenure != nil, isPresent else { return nil }
            } catch RunnerError.leaseUnavailable(let cause) where !held.value.isAtStake && cause.saysUnwritable {
                // There is no lease at all: see `alone(risking:_:)`.
            }
        }
        let renewal: OAuthRenewal<AccessToken, RefreshToken>
        do {
            renewal = try await self.exchanged(held.value.refresh)
        } catch  where error.saysBadDependency {
            // If somebody has left a newer one, the upper layer takes it up.
            self.sessionState.withLock { $0.refusedEpoch = held.epoch }
            return .badDependency
        } catch {
            guard upper.held?.epoch != held.epoch, upper.session == held.session else { throw error }
            return .badDependency  // other tokens were set meanwhile: their turn
        }
        // What the exchange brought must not be lost because the store cannot be read now.
        if !self.isAlone(since: leaseTenure),
            let newer = try? await self.withSiblings(held, of: upper, since: leaseTenure)
        {
            guard self.tokens.areSame(newer.value.refresh, held.value.refresh) else { return nil }
            held = newer
        }
        let isRotated = renewal.refresh.map { !self.tokens.areSame($0, held.value.refresh) } ?? false
        let grant = Grant(
            refresh: renewal.refresh ?? held.value.refresh,
            access: renewal.access,
            accessEnd: self.end(of: renewal.access, after: renewal.accessLifetime),
            isRotated: isRotated,
            rotates: isRotated || held.value.rotates,
            lane: held.value.lane,
            serial: held.value.serial,
            wasStored: held.value.wasStored
        )
        guard let next = upper.continued(held, with: grant, raisesEpoch: isRotated) else {
            guard upper.session == held.session else { throw RunnerError.signedOut }
            return .badDependency  // other tokens were set meanwhile: their turn
        }
        try await self.store(next, of: upper)
        return .output(self.updated(renewal.access, of: next, continuing: given, isFound: false))
    }

    /// Whether nobody else can have had the lease since `leaseTenure` began.
    func isAlone(since leaseTenure: UInt64?) -> Bool {
        guard let leaseHolder else { return true }
        return leaseTenure != nil && leaseHolder.leaseTenure == leaseTenure
    }

    /// Has the refresh token exchanged, in the time that there is for it.
    private func exchanged(_ token: RefreshToken) async throws -> OAuthRenewal<AccessToken, RefreshToken> {
        guard let limit = self.refreshLimit else { return try await self.refreshAccess(token) }
        return try await withThrowingTaskGroup(of: OAuthRenewal<AccessToken, RefreshToken>?.self) { group in
            group.addTask { try await self.refreshAccess(token) }
            group.addTask {
                try await self.repository.time.sleep(for: limit)
                return nil
            }
            defer { group.cancelAll() }
            if let renewal = try await group.next() ?? nil { return renewal }
            // What it brings nevertheless must not be lost.
            group.cancelAll()
            do {
                if let renewal = try await group.next() ?? nil { return renewal }
            } catch  where error.saysBadDependency {
                throw error
            } catch {}
            throw RunnerError.updateTimedOut(after: limit)
        }
    }

    /// When a token that came now ends: after its life time, or else when it says so itself.
    func end(of access: AccessToken?, after lifetime: Duration?) -> AccessEnd? {
        let wallTime = self.repository.wallTime()
        let date = access.flatMap { Date(expiryOf: $0) }
        let lifetime = lifetime ?? date.map { Duration.saturating(seconds: $0.timeIntervalSince(wallTime)) }
        return AccessEnd(lifetime, now: self.repository.time.now, wallTime: wallTime)
    }

    /// The grant of a record.
    func grant(_ record: Tokens.Record) -> Grant? {
        Grant(record, now: self.repository.time.now, wallTime: self.repository.wallTime())
    }
}
