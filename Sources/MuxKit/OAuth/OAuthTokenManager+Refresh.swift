import Foundation

/// The update of the lower layer: makes access tokens with the refresh token of the upper layer.
extension OAuthTokenManager {
    /// Returns the access token of the grant of `upper` if usable, otherwise the access token of a refresh.
    ///
    /// - Parameters:
    ///   - held: The grant that the caller received.
    ///   - upper: The layer that holds the grant.
    ///   - refused: The access token to replace; `nil` if the lower layer holds no access token of the
    ///     current grant.
    /// - Returns: The token; ``RunResult/badDependency`` for a refused or replaced grant.
    /// - Throws: ``RunnerError``, the error of the refresh, or `CancellationError`.
    func obtainAccess(
        with held: Upper.VersionedDependency,
        of upper: Upper,
        insteadOf refused: Lower.VersionedDependency?
    ) async throws -> RunResult<Lower.UpdateOutcome> {
        guard let limit = self.refreshLimit else {
            return try await self.obtainAccessInTurn(with: held, of: upper, insteadOf: refused)
        }
        // At the limit, callers stop waiting, even if the refresh continues. A late access token is kept in
        // the grant, and the next call uses the late token.
        let result = try await waiting(for: limit, by: self.repository.time, self.repository.spawn) {
            try await self.obtainAccessInTurn(with: held, of: upper, insteadOf: refused)
        } late: { result in
            guard case .success(.output) = result else { return }
            let revision = upper.held?.revision
            self.sessionState.withLock { $0.lateTokenRevision = revision }
        }
        guard let result else { throw RunnerError.updateTimedOut(after: limit) }
        return result
    }

    private func obtainAccessInTurn(
        with held: Upper.VersionedDependency,
        of upper: Upper,
        insteadOf refused: Lower.VersionedDependency?
    ) async throws -> RunResult<Lower.UpdateOutcome> {
        while true {
            guard let mutex = upper.held?.value.mutex, upper.session == held.session else {
                throw RunnerError.signedOut
            }
            let result = try await mutex.run { () -> RunResult<Lower.UpdateOutcome>? in
                // The previous holder of the mutex may have exchanged the refresh token for an access token.
                guard let present = upper.held, present.session == held.session else { throw RunnerError.signedOut }
                // The grant of other tokens has another mutex: the loop continues with the other mutex.
                guard present.value.mutex === mutex else { return nil }
                return try await self.obtainAccessUnderMutex(of: present, of: upper, insteadOf: refused)
            }
            if let result { return result }
        }
    }

    /// Returns an access token of the current grant; called inside the grant's mutex.
    ///
    /// - Returns: The token; ``RunResult/badDependency`` for a refused or replaced grant; `nil` if the call
    ///   must be repeated with the current grant.
    private func obtainAccessUnderMutex(
        of present: Upper.VersionedDependency,
        of upper: Upper,
        insteadOf refused: Lower.VersionedDependency?
    ) async throws -> RunResult<Lower.UpdateOutcome>? {
        let hasLateToken = self.sessionState.withLock { sessionState in
            defer { sessionState.lateTokenRevision = nil }
            return sessionState.lateTokenRevision == present.revision
        }
        // The refused token may be the late token: a call can use the late token before `lateTokenRevision`
        // is set.
        let isLate = hasLateToken && !self.storage.tokens.areSame(present.value.access, refused?.value)
        let isUntried = isLate || (refused?.parentEpoch ?? 0) < present.epoch
        if isUntried, let access = self.usableAccess(of: present) {
            try await self.store(present, of: upper)
            return .output(self.makeOutcome(access, of: present, isFound: !present.value.isFromSignIn))
        }
        guard self.sessionState.withLock({ $0.refusedEpoch }) != present.epoch else { return .badDependency }
        do {
            return try await self.coordination.runUnderLease(risking: present.value) {
                try await self.exchangeRefreshToken(with: present, of: upper, insteadOf: refused?.value)
            }
        } catch {
            // The refresh failed. The stored access token seems to have ended, but the wall clock may be
            // wrong: the server decides about the token.
            guard isUntried, let access = present.value.access, upper.held?.epoch == present.epoch,
                upper.session == present.session, !Task.isCancelled, error.criticalCause == nil
            else { throw error }
            return .output(self.makeOutcome(access, of: present, isFound: true, failure: error))
        }
    }

    /// The access token of a grant; `nil` without an access token, and after its end.
    private func usableAccess(of held: Upper.VersionedDependency) -> AccessToken? {
        if let end = held.value.accessEnd, end.moment <= self.repository.time.now { return nil }
        return held.value.access
    }

    private func makeOutcome(
        _ access: AccessToken,
        of held: Upper.VersionedDependency,
        continuing former: Upper.VersionedDependency? = nil,
        isFound: Bool,
        failure: (any Error)? = nil
    ) -> Lower.UpdateOutcome {
        Lower.UpdateOutcome(
            .updatedDependency(access),
            parentEpoch: held.epoch,
            continuing: former?.epoch,
            lifetime: held.value.accessEnd.map { $0.moment.duration(since: self.repository.time.now) },
            isFound: isFound,
            failure: failure
        )
    }

    /// Exchanges the refresh token for an access token, unless another process has stored a usable access
    /// token.
    ///
    /// - Returns: The token; ``RunResult/badDependency`` for a refused or replaced grant; `nil` if the call
    ///   must be repeated with the current grant.
    private func exchangeRefreshToken(
        with original: Upper.VersionedDependency,
        of upper: Upper,
        insteadOf refused: AccessToken?
    ) async throws -> RunResult<Lower.UpdateOutcome>? {
        var tenure = self.coordination.tenure
        let sent: Upper.VersionedDependency
        do {
            let present = try await self.coordination.adoptNewestGrant(original, of: upper, since: tenure)
            if let access = self.usableAccess(of: present), present.revision != original.revision,
                !self.storage.tokens.areSame(access, refused)
            {
                return .output(self.makeOutcome(access, of: present, continuing: original, isFound: true))
            }
            guard let journaled = try await self.recordAttempt(present, of: upper),
                try await self.coordination.maySend(journaled, of: upper, since: &tenure)
            else { return nil }
            sent = journaled
        } catch is BadDependency {
            // Another process has recorded that the server refused the grant.
            self.sessionState.withLock { $0.refusedEpoch = original.epoch }
            return .badDependency
        }
        let renewal: OAuthRenewal<AccessToken, RefreshToken>
        do {
            renewal = try await self.sendRefreshToken(sent.value.refresh)
        } catch  where error.saysBadDependency {
            // After a refusal, the upper layer reads a newer grant from the store, or signs in.
            self.sessionState.withLock { $0.refusedEpoch = sent.epoch }
            await self.noteRefusal(of: sent, of: upper, since: tenure)
            return .badDependency
        } catch {
            guard upper.held?.epoch != sent.epoch, upper.session == sent.session else { throw error }
            return .badDependency  // other tokens were set in the meantime
        }
        guard let held = await self.coordination.newestGrantAfterExchange(of: sent, of: upper, since: tenure) else {
            return nil
        }
        // Some servers send an empty string instead of no refresh token.
        let rotated = renewal.refresh.flatMap { ($0 as? String)?.isEmpty == true ? nil : $0 }
        let isRotated = rotated.map { !self.storage.tokens.areSame($0, held.value.refresh) } ?? false
        let grant = Grant(
            refresh: rotated ?? held.value.refresh,
            access: renewal.access,
            accessEnd: self.end(of: renewal.access, after: renewal.accessLifetime),
            isRotated: isRotated,
            rotates: isRotated || held.value.rotates,
            mutex: held.value.mutex,
            serial: held.value.serial,
            wasStored: held.value.wasStored
        )
        guard let next = upper.setSuccessor(of: held, to: grant, raisesEpoch: isRotated) else {
            guard upper.session == held.session else { throw RunnerError.signedOut }
            return .badDependency  // other tokens were set in the meantime
        }
        try await self.store(next, of: upper)
        return .output(self.makeOutcome(renewal.access, of: next, continuing: original, isFound: false))
    }

    /// Exchanges the refresh token; at the time limit of a refresh, cancels the exchange and waits for its
    /// end.
    ///
    /// - Throws: The error of the exchange; ``RunnerError/updateTimedOut(after:)`` if the exchange fails
    ///   after the limit, except for a refusal of the refresh token; `CancellationError`.
    private func sendRefreshToken(_ token: RefreshToken) async throws -> OAuthRenewal<AccessToken, RefreshToken> {
        guard let limit = self.refreshLimit else { return try await self.refreshAccess(token) }
        return try await withThrowingTaskGroup(of: OAuthRenewal<AccessToken, RefreshToken>?.self) { group in
            group.addTask { try await self.refreshAccess(token) }
            group.addTask {
                try await self.repository.time.sleep(for: limit)
                return nil
            }
            defer { group.cancelAll() }
            if let renewal = try await group.next() ?? nil { return renewal }
            group.cancelAll()
            // The exchange may succeed in spite of the cancellation: a new refresh token must not be lost.
            do {
                if let renewal = try await group.next() ?? nil { return renewal }
            } catch  where error.saysBadDependency {
                throw error
            } catch {}
            throw RunnerError.updateTimedOut(after: limit)
        }
    }

    /// The end of an access token: after `lifetime`, or at the token's expiry if `lifetime` is `nil`.
    ///
    /// - Parameters:
    ///   - access: The token; `nil` without a token.
    ///   - lifetime: The remaining lifetime; `nil` if unknown.
    ///   - isNew: Whether the token server has just made the token. A new token cannot have ended: without a
    ///     positive lifetime, the end is not known.
    /// - Returns: The end; `nil` if the end is not known.
    func end(of access: AccessToken?, after lifetime: Duration?, isNew: Bool = true) -> AccessEnd? {
        let wallTime = self.repository.wallTime()
        let lifetime = lifetime ?? access.flatMap { Duration(lifetimeOf: $0, at: wallTime) }
        guard let lifetime, lifetime > .zero || !isNew else { return nil }
        return AccessEnd(lifetime, now: self.repository.time.now, wallTime: wallTime)
    }
}
