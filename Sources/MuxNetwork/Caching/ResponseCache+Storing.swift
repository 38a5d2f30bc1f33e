import Foundation
import MuxKit

extension ResponseCache {
    /// What is stored for a URL, in memory or on disk.
    nonisolated(nonsending) func stored(_ resource: String) async -> [StoredAnswer] {
        if let entry = self.answers.cachedEntry(key: resource), entry.timeToLive > .zero { return entry.value.answers }
        guard self.options.cacheKey != nil else { return [] }
        await self.cleared.load(ClearedOrigins.origin(of: resource))
        guard let entry = await self.answers.loadCachedEntry(key: resource) else { return [] }
        guard entry.timeToLive <= .zero else { return entry.value.answers }
        // Its origin has been cleared since.
        await self.answers.clear(key: resource)
        await self.removeFiles(of: entry.value.answers)
        return []
    }

    /// A spool for the body of an answer; `nil` if it cannot be kept.
    nonisolated(nonsending) func spool(for reply: HTTPReply) async -> BodySpool? {
        var folder = self.folder
        if let opened = folder, (try? await self.open(opened)) == nil { folder = nil }
        var spool = BodySpool(in: folder, memoryLimit: self.options.memoryBodyLimit, limit: self.options.bodyLimit)
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

    /// Stores an answer, unless a fence has passed its exchange, or a session has ended since its call began.
    ///
    /// - Parameters:
    ///   - answer: The answer.
    ///   - former: What it is a newer state of.
    ///   - request: The request.
    ///   - flight: The exchange.
    ///   - name: Its name.
    ///   - limits: Those of the call.
    /// - Returns: Whether it is stored.
    nonisolated(nonsending) func store(
        _ answer: StoredAnswer,
        replacing former: StoredAnswer? = nil,
        for request: CacheableRequest,
        _ flight: FlightID,
        of name: FlightName,
        _ limits: HTTPExchange.Limits
    ) async -> Bool {
        // The other variants may be on disk alone.
        _ = await self.stored(request.name)
        let (partLimit, now) = (self.options.memoryBodyLimit, self.now.date)
        let change = self.commits.withLock { running -> (gone: [StoredAnswer], isStored: Bool)? in
            var isOfSession = false
            let isCurrent = self.engine.report(from: flight, of: name) { isOfSession = $0.session == limits.session }
            guard isCurrent, isOfSession,
                !running.supersede(answer, to: request.headers, of: request.name, at: now)
            else { return nil }
            let change = self.change(request.name) { stored in
                stored.insert(
                    answer,
                    replacing: former,
                    for: request.headers,
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
        // Nothing of the replaced response may be found by the next process.
        if change.isStored, answer.body == .none { await self.save(request.name) }
        return change.isStored
    }

    /// Removes the stored responses that `response` replaces, in memory and on disk.
    ///
    /// - Parameters:
    ///   - response: The newer response, which is not stored.
    ///   - request: Its request.
    ///   - limits: Those of the call.
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
            // Memory has no room for what is on disk.
            var stored = StoredAnswers(known)
            guard stored.remove(supersededBy: response, at: now).isChanged else { return }
            await self.answers.clear(key: request.name)
            await self.removeFiles(of: known)
        }
    }

    private nonisolated(nonsending) func save(_ resource: String) async {
        if self.options.cacheKey != nil { await self.answers.save(key: resource) }
    }

    /// Changes what is stored for a URL, in one step; ``commits`` is held.
    ///
    /// - Parameters:
    ///   - resource: The URL.
    ///   - body: Changes it, perhaps several times; returns `nil` to leave it as it is.
    /// - Returns: What `body` returned at last.
    private func change<R>(_ resource: String, _ body: (inout StoredAnswers) -> R?) -> R? {
        while true {
            let entry = self.answers.cachedEntry(key: resource)
            var stored = entry?.value ?? StoredAnswers()
            guard let result = body(&stored) else { return nil }
            guard let entry else {
                self.answers.store(stored, key: resource)
                return result
            }
            // What was cleared meanwhile stays cleared.
            if self.answers.store(stored, key: resource, ifUnchangedSince: entry) { return result }
        }
    }

    nonisolated(nonsending) func removeFiles(of answers: [StoredAnswer], except kept: StoredAnswer? = nil) async {
        guard let folder else { return }
        let names = answers.compactMap(\.fileName).filter { $0 != kept?.fileName }
        if !names.isEmpty { await BlockingWork.run { for name in names { folder.remove(name) } } }
    }

    /// Forgets an answer whose body is gone, or that may not be stored any more.
    func forget(_ answer: StoredAnswer, of resource: String) {
        self.commits.withLock { _ in
            _ = self.change(resource) { stored -> Void? in
                guard stored.answers.contains(answer) else { return nil }
                stored.remove(answer)
                return ()
            }
        }
    }

    /// Makes the answers of a URL stale, whatever they say: RFC 9111, section 4.4.
    ///
    /// - Parameters:
    ///   - resource: The URL.
    ///   - own: The flight that has learned of the change, which is not fenced.
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
        // What memory has no room for is on disk, or cannot be read now.
        guard !isMarked, self.options.cacheKey != nil else { return }
        await self.answers.clear(key: resource)
        await self.removeFiles(of: known)
    }

    /// Keeps running exchanges for a URL from storing their answers.
    private func fence(_ resource: String, except own: FlightName? = nil) {
        for name in self.engine.keysInFlight where name.resource == resource && name != own {
            self.engine.fence(name) { _ in }
        }
    }

    func remove(_ resource: String) async {
        let stored = await self.stored(resource)
        self.commits.withLock { _ in self.fence(resource) }
        await self.answers.clear(key: resource)
        // An exchange that began since the first time may have validated what is removed.
        self.commits.withLock { _ in self.fence(resource) }
        await self.removeFiles(of: stored)
    }

    func removeAll() async -> MuxRepository.ClearReport {
        self.commits.withLock { _ in self.engine.fenceAll { _ in } }
        var report = await self.answers.clear()
        // An exchange that began since the first time may have validated what is removed.
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
                state.session &+= 1
                // Those who wait ask for themselves, with what their callers have now.
                return (.success(.alone), ())
            }.answerWaiters
        }
    }

    func signOutCompleted() {
        // A call that began while the session ended may have the credentials of the former one.
        self.commits.withLock { _ in
            self.engine.fenceAll { $0.session &+= 1 }
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
