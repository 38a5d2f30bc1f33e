import Foundation
import MuxKit

extension ResponseCache {
    /// The stored responses of a URL, from memory or disk.
    nonisolated(nonsending) func stored(_ resource: String) async -> [StoredResponse] {
        if let entry = self.responses.cachedEntry(key: resource), entry.timeToLive > .zero {
            return entry.value.responses
        }
        guard self.settings.cacheKey != nil else { return [] }
        await self.cleared.load(ClearedOrigins.origin(of: resource))
        guard let entry = await self.responses.loadCachedEntry(key: resource) else { return [] }
        guard entry.timeToLive <= .zero else { return entry.value.responses }
        // The origin was cleared after the responses were stored.
        await self.responses.clear(key: resource)
        await self.removeFiles(of: entry.value.responses)
        return []
    }

    /// A spool that collects the body of a response; `nil` if the announced body is too long, or the file for
    /// the body cannot be created.
    nonisolated(nonsending) func spool(for reply: HTTPReply, usesFiles: Bool) async -> BodySpool? {
        var folder = usesFiles ? self.folder : nil
        if let opened = folder, (try? await self.open(opened)) == nil { folder = nil }
        var spool = BodySpool(in: folder, memoryLimit: self.settings.memoryBodyLimit, limit: self.settings.bodyLimit)
        let announced = reply.headers[.contentLength].flatMap { HTTPGrammar.number($0) } ?? 0
        guard let count = Int(exactly: announced), spool.fits(count), (try? await spool.prepare(for: count)) != nil
        else {
            return nil
        }
        return spool
    }

    /// Opens the folder for the current session, unless the folder is open.
    nonisolated(nonsending) func open(_ folder: BodyFolder) async throws {
        let epoch = try await self.repository.currentEpoch()
        guard !folder.isOpen(epoch: epoch) else { return }
        try await BlockingWork.run { Result { try folder.open(epoch: epoch) } }.get()
    }

    /// Stores a response, if ``StoredResponses`` accepts the response.
    ///
    /// A response is not stored if its exchange was fenced, if the session of its call has ended, or if a
    /// newer response has arrived.
    ///
    /// - Parameters:
    ///   - response: The response.
    ///   - former: The stored response that a validation has updated to `response`; `nil` for a new response.
    ///   - request: The request.
    ///   - flight: The flight of the exchange.
    ///   - name: The name of the flight.
    /// - Returns: Whether the response is stored.
    nonisolated(nonsending) func store(
        _ response: StoredResponse,
        replacing former: StoredResponse? = nil,
        for request: CacheableRequest,
        _ flight: FlightID,
        of name: FlightName
    ) async -> Bool {
        // Loads the other variants, which may be on disk only, so that the entry in memory contains all
        // variants.
        if self.settings.cacheKey != nil { _ = await self.stored(request.resource) }
        let (partLimit, now) = (self.settings.memoryBodyLimit, self.now.date)
        let change = self.runningExchanges.withLock {
            running -> (gone: [StoredResponse], isStored: Bool, isMarked: Bool)? in
            var isOfSession = false
            let isCurrent = self.engine.report(from: flight, of: name) { _ in
                isOfSession = self.session == name.session
            }
            guard isCurrent, isOfSession,
                !running.isSuperseded(response, to: request.selectingFields, of: request.resource, at: now)
            else { return nil }
            let change = self.change(request.resource) { stored in
                stored.insert(
                    response,
                    replacing: former,
                    for: request.selectingFields,
                    partLimit: partLimit,
                    at: now
                )
            }
            if let change, change.isStored, response.part == nil {
                running.recordResponse(
                    SupersedingResponse(response, to: request, isStored: true),
                    of: request.resource,
                    at: now
                )
            }
            return change
        }
        guard let change else {
            self.tell(.fenceDropped)
            if former == nil { await self.removeFiles(of: [response]) }
            return false
        }
        // If the update of a validated response is not stored, `former` still uses the common file.
        if change.isStored || former == nil {
            await self.removeFiles(of: change.gone, except: change.isStored ? response : nil)
        }
        // The next process must not find the replaced response, or a response without its mark for
        // validation, on disk.
        if change.isMarked || response.body == .none { await self.save(request.resource) }
        return change.isStored
    }

    /// Removes the stored responses that `response` replaces, in memory and on disk, or marks a stored
    /// response for validation (``StoredResponses/remove(supersededBy:at:)``).
    ///
    /// No effect if the session of `name` has ended.
    ///
    /// - Parameters:
    ///   - response: The other response, which is not stored.
    ///   - name: The flight of `response`.
    nonisolated(nonsending) func supersede(by response: SupersedingResponse, of name: FlightName) async {
        let resource = name.resource
        let known = await self.stored(resource)
        let now = self.now.date
        let change = self.runningExchanges.withLock { running -> (gone: [StoredResponse], isEmpty: Bool)? in
            guard self.session == name.session else { return nil }
            running.recordResponse(response, of: resource, at: now)
            return self.change(resource) { stored in
                let change = stored.remove(supersededBy: response, at: now)
                return change.isChanged ? (change.gone, stored.responses.isEmpty) : nil
            }
        }
        if let change {
            await self.removeFiles(of: change.gone)
            if change.isEmpty {
                await self.responses.clear(key: resource)
            } else {
                await self.save(resource)
            }
        } else if self.session == name.session, self.responses.cachedValue(key: resource) == nil {
            // The stored responses are only on disk, because memory has no room: all are removed.
            var stored = StoredResponses(known)
            guard stored.remove(supersededBy: response, at: now).isChanged else { return }
            await self.responses.clear(key: resource)
            await self.removeFiles(of: known)
        }
    }

    private nonisolated(nonsending) func save(_ resource: String) async {
        if self.settings.cacheKey != nil { await self.responses.save(key: resource) }
    }

    /// Changes the stored responses of a URL atomically; the caller holds ``runningExchanges``.
    ///
    /// - Parameters:
    ///   - resource: The URL.
    ///   - body: Changes the stored responses; called again if the entry has changed since the read. Returns
    ///     `nil` for no change.
    /// - Returns: The result of the last call of `body`.
    private func change<R>(_ resource: String, _ body: (inout StoredResponses) -> R?) -> R? {
        while true {
            let entry = self.responses.cachedEntry(key: resource)
            var stored = entry?.value ?? StoredResponses()
            guard let result = body(&stored) else { return nil }
            guard let entry else {
                self.responses.store(stored, key: resource)
                return result
            }
            // The store fails if the entry has changed or was cleared since the read: cleared responses must
            // not return. The loop tries again.
            if self.responses.store(stored, key: resource, ifUnchangedSince: entry) { return result }
        }
    }

    /// Removes the files of `responses`, except the file of `kept`.
    nonisolated(nonsending) func removeFiles(of responses: [StoredResponse], except kept: StoredResponse? = nil) async {
        guard let folder else { return }
        let names = responses.compactMap(\.fileName).filter { $0 != kept?.fileName }
        if !names.isEmpty { await BlockingWork.run { for name in names { folder.remove(name) } } }
    }

    /// Removes a stored response without a usable body from memory.
    func forget(_ response: StoredResponse, of resource: String) {
        self.runningExchanges.withLock { _ in
            _ = self.change(resource) { stored -> Void? in
                guard stored.responses.contains(response) else { return nil }
                stored.remove(response)
                return ()
            }
        }
    }

    /// Marks the stored responses of a URL for validation, even within the lifetime: RFC 9111, section 4.4.
    ///
    /// Stored responses that are not in memory are removed. Running exchanges of the URL cannot store their
    /// responses.
    ///
    /// - Parameters:
    ///   - resource: The URL.
    ///   - own: The flight of the request that changed the resource; this flight is not fenced.
    nonisolated(nonsending) func invalidate(_ resource: String, by own: FlightName? = nil) async {
        self.runningExchanges.withLock { _ in self.fence(except: own) { $0 == resource } }
        let known = await self.stored(resource)
        // Fenced again: an exchange may have begun during the read.
        var isInMemory = false
        let isMarked = self.runningExchanges.withLock { _ in
            self.fence(except: own) { $0 == resource }
            return self.change(resource) { stored -> Void? in
                isInMemory = !stored.responses.isEmpty
                guard stored.responses.contains(where: { !$0.isInvalidated }) else { return nil }
                stored.update { $0.isInvalidated = true }
                return ()
            } != nil
        }
        // The next process must not find the responses without the mark on disk.
        if isMarked { await self.save(resource) }
        guard !isInMemory else { return }
        // The stored responses are not in memory: they are only on disk, or cannot be read now.
        guard self.settings.cacheKey != nil else { return }
        await self.responses.clear(key: resource)
        await self.removeFiles(of: known)
    }

    /// Prevents running exchanges for some URLs from storing their responses; the caller holds
    /// ``runningExchanges``.
    func fence(except own: FlightName? = nil, _ isFenced: (_ resource: String) -> Bool) {
        for name in self.engine.keysInFlight where isFenced(name.resource) && name != own {
            self.engine.fence(name) { _ in }
        }
    }

    func remove(_ resource: String) async {
        // Twice: an exchange that began after the first fence may have validated a removed response, and may
        // have stored the response again between the passes. An exchange that finds this response after the
        // second fence can still store the response again.
        for _ in 0..<2 {
            self.runningExchanges.withLock { _ in self.fence { $0 == resource } }
            let stored = await self.stored(resource)
            await self.responses.clear(key: resource)
            await self.removeFiles(of: stored)
        }
    }

    func removeAll() async -> MuxRepository.ClearReport {
        var report = MuxRepository.ClearReport()
        // Twice: see ``remove(_:)``.
        for _ in 0..<2 {
            self.runningExchanges.withLock { _ in self.engine.fenceAll { _ in } }
            report = await self.responses.clear()
        }
        guard let folder else { return report }
        if case .failure(let error) = await BlockingWork.run({ Result { try folder.removeAllFiles() } }) {
            report.failures.append(error)
        }
        return report
    }
}

extension ResponseCache: SessionParticipant {
    func sessionEnded(sendsEvent: Bool) -> @Sendable () -> Void {
        self.runningExchanges.withLock { _ in
            self.engine.dismissCallers(cancelling: false) { state in
                (state.renewals, state.pauses) = ([:], [:])
                self.countSession()
                // The waiters get no response to a call of the ended session.
                return (.success(.notShared), ())
            }.resumeWaiters
        }
    }

    func signOutCompleted() {
        // A call that began during the end of the session may have credentials of the ended session.
        self.runningExchanges.withLock { _ in
            self.engine.fenceAll { (_: inout State) in self.countSession() }
            self.cleared.sessionEnded()
            self.responses.core.signOutCompleted()
            self.folder?.abandon()
        }
    }

    func removeTraces() async throws {
        guard let folder else { return }
        try await BlockingWork.run { Result { try folder.removeAllFiles() } }.get()
    }
}
