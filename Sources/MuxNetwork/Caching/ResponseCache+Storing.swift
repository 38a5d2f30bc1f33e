import Foundation
import MuxKit

extension ResponseCache {
    /// The stored responses of a URL, from memory or disk.
    nonisolated(nonsending) func stored(_ resource: String) async -> [StoredAnswer] {
        if let entry = self.answers.cachedEntry(key: resource), entry.timeToLive > .zero { return entry.value.answers }
        guard self.settings.cacheKey != nil else { return [] }
        await self.cleared.load(ClearedOrigins.origin(of: resource))
        guard let entry = await self.answers.loadCachedEntry(key: resource) else { return [] }
        guard entry.timeToLive <= .zero else { return entry.value.answers }
        // The origin was cleared after the response was stored.
        await self.answers.clear(key: resource)
        await self.removeFiles(of: entry.value.answers)
        return []
    }

    /// A spool for the body of a response; `nil` if the body cannot be kept.
    nonisolated(nonsending) func spool(for reply: HTTPReply) async -> BodySpool? {
        var folder = self.folder
        if let opened = folder, (try? await self.open(opened)) == nil { folder = nil }
        var spool = BodySpool(in: folder, memoryLimit: self.settings.memoryBodyLimit, limit: self.settings.bodyLimit)
        let announced = reply.headers[.contentLength].flatMap { HTTPGrammar.number($0) } ?? 0
        guard let count = Int(exactly: announced), spool.fits(count), (try? await spool.prepare(for: count)) != nil
        else {
            return nil
        }
        return spool
    }

    nonisolated(nonsending) func open(_ folder: BodyFolder) async throws {
        let epoch = try await self.repository.currentEpoch()
        guard !folder.isOpen(epoch: epoch) else { return }
        try await BlockingWork.run { Result { try folder.open(epoch: epoch) } }.get()
    }

    /// Stores a response, unless a fence has invalidated its exchange, or the session of its call has ended.
    ///
    /// - Parameters:
    ///   - answer: The response.
    ///   - former: The stored response that a validation has updated to `answer`; `nil` for a new response.
    ///   - request: The request.
    ///   - flight: The flight of the exchange.
    ///   - name: The name of the flight.
    ///   - limits: The limits of the call.
    /// - Returns: Whether the response is stored.
    nonisolated(nonsending) func store(
        _ answer: StoredAnswer,
        replacing former: StoredAnswer? = nil,
        for request: CacheableRequest,
        _ flight: FlightID,
        of name: FlightName,
        _ limits: HTTPExchange.Limits
    ) async -> Bool {
        // Loads the other variants, which may be on disk only.
        _ = await self.stored(request.name)
        let (partLimit, now) = (self.settings.memoryBodyLimit, self.now.date)
        let change = self.commits.withLock { running -> (gone: [StoredAnswer], isStored: Bool)? in
            var isOfSession = false
            let isCurrent = self.engine.report(from: flight, of: name) { _ in
                isOfSession = self.session == limits.session
            }
            guard isCurrent, isOfSession,
                !running.supersede(answer, to: request.selecting, of: request.name, at: now)
            else { return nil }
            let change = self.change(request.name) { stored in
                stored.insert(
                    answer,
                    replacing: former,
                    for: request.selecting,
                    partLimit: partLimit,
                    at: now
                )
            }
            if let change, change.isStored, answer.part == nil {
                running.note(SupersedingResponse(answer, to: request, isStored: true), of: request.name, at: now)
            }
            return change
        }
        guard let change else {
            self.tell(.fenceDropped)
            if former == nil { await self.removeFiles(of: [answer]) }
            return false
        }
        await self.removeFiles(of: change.gone, except: change.isStored ? answer : nil)
        // The next process must not find the replaced response on disk.
        if change.isStored, answer.body == .none { await self.save(request.name) }
        return change.isStored
    }

    /// Removes the stored responses that `response` replaces, in memory and on disk.
    ///
    /// - Parameters:
    ///   - response: The newer response, which is not stored.
    ///   - request: The request of `response`.
    ///   - limits: The limits of the call.
    nonisolated(nonsending) func supersede(
        by response: SupersedingResponse,
        _ request: CacheableRequest,
        _ limits: HTTPExchange.Limits
    ) async {
        let known = await self.stored(request.name)
        let now = self.now.date
        let change = self.commits.withLock { running -> (gone: [StoredAnswer], isEmpty: Bool)? in
            guard self.session == limits.session else { return nil }
            running.note(response, of: request.name, at: now)
            return self.change(request.name) { stored in
                let change = stored.remove(supersededBy: response, at: now)
                return change.isChanged ? (change.gone, stored.answers.isEmpty) : nil
            }
        }
        if let change {
            await self.removeFiles(of: change.gone)
            if change.isEmpty {
                await self.answers.clear(key: request.name)
            } else {
                await self.save(request.name)
            }
        } else if self.session == limits.session, self.answers.cachedValue(key: request.name) == nil {
            // The stored responses are on disk, without room in memory.
            var stored = StoredAnswers(known)
            guard stored.remove(supersededBy: response, at: now).isChanged else { return }
            await self.answers.clear(key: request.name)
            await self.removeFiles(of: known)
        }
    }

    private nonisolated(nonsending) func save(_ resource: String) async {
        if self.settings.cacheKey != nil { await self.answers.save(key: resource) }
    }

    /// Changes the stored responses of a URL atomically; the caller holds ``commits``.
    ///
    /// - Parameters:
    ///   - resource: The URL.
    ///   - body: Changes the stored responses; may be called several times. Returns `nil` for no change.
    /// - Returns: The result of the last call of `body`.
    private func change<R>(_ resource: String, _ body: (inout StoredAnswers) -> R?) -> R? {
        while true {
            let entry = self.answers.cachedEntry(key: resource)
            var stored = entry?.value ?? StoredAnswers()
            guard let result = body(&stored) else { return nil }
            guard let entry else {
                self.answers.store(stored, key: resource)
                return result
            }
            // The store fails if the entry was cleared in the meantime: the cleared responses must not
            // return. The loop tries again.
            if self.answers.store(stored, key: resource, ifUnchangedSince: entry) { return result }
        }
    }

    nonisolated(nonsending) func removeFiles(of answers: [StoredAnswer], except kept: StoredAnswer? = nil) async {
        guard let folder else { return }
        let names = answers.compactMap(\.fileName).filter { $0 != kept?.fileName }
        if !names.isEmpty { await BlockingWork.run { for name in names { folder.remove(name) } } }
    }

    /// Removes a stored response whose body is gone, or whose storage is no longer permitted.
    func forget(_ answer: StoredAnswer, of resource: String) {
        self.commits.withLock { _ in
            _ = self.change(resource) { stored -> Void? in
                guard stored.answers.contains(answer) else { return nil }
                stored.remove(answer)
                return ()
            }
        }
    }

    /// Makes the stored responses of a URL stale, even within their lifetime: RFC 9111, section 4.4.
    ///
    /// - Parameters:
    ///   - resource: The URL.
    ///   - own: The flight of the request that changed the resource; no fence for this flight.
    nonisolated(nonsending) func invalidate(_ resource: String, by own: FlightName? = nil) async {
        self.commits.withLock { _ in self.fence(resource, except: own) }
        let known = await self.stored(resource)
        let isMarked = self.commits.withLock { _ -> Bool in
            self.fence(resource, except: own)
            let change: Void? = self.change(resource) { stored -> Void? in
                guard !stored.answers.isEmpty else { return nil }
                stored.update { $0.isInvalidated = true }
                return ()
            }
            return change != nil
        }
        // Without room in memory, the stored responses are on disk, or cannot be read now.
        guard !isMarked, self.settings.cacheKey != nil else { return }
        await self.answers.clear(key: resource)
        await self.removeFiles(of: known)
    }

    /// Prevents running exchanges for a URL from storing their responses.
    private func fence(_ resource: String, except own: FlightName? = nil) {
        for name in self.engine.keysInFlight where name.resource == resource && name != own {
            self.engine.fence(name) { _ in }
        }
    }

    func remove(_ resource: String) async {
        let stored = await self.stored(resource)
        self.commits.withLock { _ in self.fence(resource) }
        await self.answers.clear(key: resource)
        // Again: an exchange that began after the first fence may have validated a removed response.
        self.commits.withLock { _ in self.fence(resource) }
        await self.removeFiles(of: stored)
    }

    func removeAll() async -> MuxRepository.ClearReport {
        self.commits.withLock { _ in self.engine.fenceAll { _ in } }
        var report = await self.answers.clear()
        // Again: an exchange that began after the first fence may have validated a removed response.
        self.commits.withLock { _ in self.engine.fenceAll { _ in } }
        guard let folder else { return report }
        if case .failure(let error) = await BlockingWork.run({ Result { try folder.end() } }) {
            report.failures.append(error)
        }
        return report
    }
}

extension ResponseCache: SessionParticipant {
    func sessionEnded(isTold: Bool) -> @Sendable () -> Void {
        self.commits.withLock { _ in
            self.engine.dismissed(cancelling: false) { state in
                (state.renewals, state.pauses) = ([:], [:])
                self.sessionCounted()
                // Waiters send separate requests, with the credentials that their callers have now.
                return (.success(.alone), ())
            }.answerWaiters
        }
    }

    func signOutCompleted() {
        // A call that began during the end of the session may have credentials of the ended session.
        self.commits.withLock { _ in
            self.engine.fenceAll { (_: inout State) in self.sessionCounted() }
            self.cleared.sessionEnded()
            self.answers.core.signOutCompleted()
            self.folder?.abandon()
        }
    }

    func removeTraces() async throws {
        guard let folder else { return }
        try await BlockingWork.run { Result { try folder.end() } }.get()
    }
}
