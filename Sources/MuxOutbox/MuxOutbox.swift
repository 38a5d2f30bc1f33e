public import Foundation
public import MuxKit

/// Stores changes on disk, and sends the changes to a server in order, also after a relaunch.
///
/// ```swift
/// static let outbox = MuxOutbox<Change>("Changes", dependency: session, order: { "\($0.post)" }) {
///     change, attempt, token in
///     try await api.apply(change, idempotencyKey: attempt.idempotencyKey, token: token)
/// }
/// .overlay(Backend.top) { change, posts in change.apply(to: &posts) }
///
/// try await Backend.outbox.add(.like(post: 7))
/// ```
///
/// **Lanes.** Changes with the same `order` text form a lane. The changes of a lane are sent one at a time,
/// in the order of their addition. A change is sent before an earlier change of the lane only if the earlier
/// change has failed or is blocked (``blocked(by:)``). Up to ``MuxOutboxPolicy/maximumConcurrentLanes`` lanes
/// send at the same time.
///
/// **Outcomes.** If the closure returns, the change is confirmed, and leaves the outbox. If the closure
/// throws, the error and the policy determine whether the lane waits for another attempt, or the change has
/// failed. A failed change stays in ``pending``, and the lane continues with the next change.
/// <doc:OfflineWrites> lists the outcomes.
///
/// **On disk.** ``add(_:)`` returns when the change is on disk. After a kill of the process, the next process
/// that uses the outbox sends the change. A change whose attempt was interrupted is sent again only with
/// ``MuxOutboxPolicy/serverDetectsRepetitions``, otherwise listed as unknown. Of the processes with the same
/// folder, such as an app and its extension, one process sends at a time. A process that was suspended for
/// longer than 30 seconds during an attempt may send a change that another process also sends, with the same
/// key.
///
/// **Sign-out.** A change is sent only in the session in which the change was added. A sign-out drops the
/// changes, or is refused: see ``MuxOutboxPolicy/signOut-swift.property``.
///
/// **Concurrent calls** access the file one after another; attempts run in the background. **Cancellation**
/// does not interrupt a call.
public final class MuxOutbox<Change: Codable & Sendable>: Sendable {
    /// Sends a change with a token, if any; calls `begin` before each attempt, and `refused` if the server
    /// refused the token.
    package typealias Deliver =
        @Sendable (
            _ change: Change, _ begin: @Sendable () async throws -> Attempt, _ refused: @Sendable () -> Void
        ) async throws -> Void

    let core: OutboxCore<Change>

    /// Makes an outbox without a dependency, such as for a server without tokens.
    ///
    /// Call ``start()`` at the start of the app.
    ///
    /// - Parameters:
    ///   - name: Identifies the outbox on disk: any text.
    ///   - repository: The repository of the session; by default `MuxRepository.shared`.
    ///   - directory: The parent folder; by default the app's folder of data. An app and its extension share
    ///     the changes in a folder of their app group.
    ///   - policy: Limits, retries, and the behaviour at a sign-out.
    ///   - wakeUps: Events that can end a wait between two attempts; by default the return of the network.
    ///   - order: Returns the lane of a change; by default all changes form one lane.
    ///   - send: Sends a change. Throws if the server did not confirm the change.
    public convenience init(
        _ name: String,
        repository: MuxRepository? = nil,
        directory: URL? = nil,
        policy: MuxOutboxPolicy = MuxOutboxPolicy(),
        wakingOn wakeUps: [RetrySignal.WakeUp]? = nil,
        order: @escaping @Sendable (Change) throws -> String = { _ in "" },
        send: @escaping @Sendable @concurrent (_ change: Change, _ attempt: Attempt) async throws -> Void
    ) {
        self.init(
            name,
            RepositoryChoice(given: repository, ofDependency: nil),
            directory: directory,
            policy: policy,
            wakingOn: wakeUps,
            order: order
        ) { change, begin, _ in try await send(change, try await begin()) }
    }

    /// Makes an outbox whose changes are sent with a dependency, such as a token.
    ///
    /// Call ``start()`` at the start of the app.
    ///
    /// - Parameters:
    ///   - name: Identifies the outbox on disk: any text.
    ///   - dependency: Provides the dependency of each attempt.
    ///   - repository: The repository of the session; by default the repository of `dependency`.
    ///   - directory: The parent folder; by default the app's folder of data. An app and its extension share
    ///     the changes in a folder of their app group.
    ///   - policy: Limits, retries, and the behaviour at a sign-out.
    ///   - wakeUps: Events that can end a wait between two attempts; by default the return of the network.
    ///   - order: Returns the lane of a change; by default all changes form one lane.
    ///   - send: Sends a change. Throws if the server did not confirm the change. If the error reports a bad
    ///     dependency (`BadDependencyError`), the runner can renew the dependency and repeat the attempt.
    public convenience init<Runner: DependencyRunner>(
        _ name: String,
        dependency: Runner,
        repository: MuxRepository? = nil,
        directory: URL? = nil,
        policy: MuxOutboxPolicy = MuxOutboxPolicy(),
        wakingOn wakeUps: [RetrySignal.WakeUp]? = nil,
        order: @escaping @Sendable (Change) throws -> String = { _ in "" },
        send:
            @escaping @Sendable @concurrent (
                _ change: Change, _ attempt: Attempt, _ dependency: Runner.Dependency
            ) async throws -> Void
    ) {
        self.init(
            name,
            RepositoryChoice(given: repository, ofDependency: dependency.sessionRepository),
            directory: directory,
            policy: policy,
            wakingOn: wakeUps,
            order: order
        ) { change, begin, refused in
            // The attempt begins when the token is known.
            try await dependency.run { token -> Void in
                let attempt = try await begin()
                do {
                    try await send(change, attempt, token)
                } catch {
                    if error.saysBadDependency { refused() }
                    throw error
                }
            }
        }
    }

    package init(
        _ name: String,
        _ repository: RepositoryChoice,
        directory: URL?,
        policy: MuxOutboxPolicy,
        wakingOn wakeUps: [RetrySignal.WakeUp]?,
        fileSystem: any FileSystem = POSIXFileSystem(),
        lease: (any MuxLease)? = nil,
        leaseDuration: Duration = .seconds(30),
        order: @escaping @Sendable (Change) throws -> String,
        deliver: @escaping Deliver
    ) {
        let owner = OwnedName(.outbox, [name])
        let folder =
            directory.map { StoreFolder($0).appending(owner.fileName, owner: owner) }
            ?? repository.repository.folder(.outbox, for: name, in: .data)
        self.core = OutboxCore(
            name,
            repository: repository,
            folder: folder,
            policy: policy,
            wakeUps: wakeUps ?? [.reachable(RetryPolicy.Host(name))],
            fileSystem: fileSystem,
            lease: lease,
            leaseDuration: leaseDuration,
            order: order,
            deliver: deliver
        )
    }

    deinit { self.core.stop() }

    // MARK: - Configuration

    /// Shows pending changes in the value of a multiplexer, also after a relaunch.
    ///
    /// A change is visible until the change fails or is removed. A confirmed change stays visible until the
    /// value is fetched again or removed. When no change is being sent any more, the values of the sent
    /// changes become stale. See `MuxRepository.Change`.
    ///
    /// - Parameters:
    ///   - multiplexer: The multiplexer.
    ///   - apply: Applies a change to the value; may run several times, and must not have other effects. If
    ///     the closure throws, the change is not shown.
    /// - Returns: This outbox.
    @discardableResult
    public func overlay<Value>(
        _ multiplexer: Multiplexer<Value>,
        apply: @escaping @Sendable (_ change: Change, _ value: inout Value) throws -> Void
    ) -> MuxOutbox {
        self.core.overlay { _ in
            OutboxOverlays<Change>.Target(
                id: ObjectIdentifier(multiplexer),
                show: { change, isUnsent in
                    try? multiplexer.overlay(isUnsent: isUnsent) { try apply(change, &$0) }
                },
                hold: { multiplexer.change { _ in } }
            )
        }
        return self
    }

    /// Shows pending changes in the values of a map, as ``overlay(_:apply:)``.
    ///
    /// - Parameters:
    ///   - map: The map.
    ///   - key: Returns the key of the value that a change concerns; `nil` if the change concerns no value.
    ///   - apply: Applies a change to the value.
    /// - Returns: This outbox.
    @discardableResult
    public func overlay<Key, Value>(
        _ map: MultiplexerMap<Key, Value>,
        key: @escaping @Sendable (Change) -> Key?,
        apply: @escaping @Sendable (_ change: Change, _ value: inout Value) throws -> Void
    ) -> MuxOutbox {
        self.core.overlay { change in
            guard let key = key(change) else { return nil }
            return OutboxOverlays<Change>.Target(
                id: OverlaidKey(map: ObjectIdentifier(map), key: key),
                show: { change, isUnsent in
                    try? map.overlay(key: key, isUnsent: isUnsent) { try apply(change, &$0) }
                },
                hold: { map.change(key: key) { _ in } }
            )
        }
        return self
    }

    /// Determines which changes of a lane wait for a failed change of the lane; by default no change waits.
    ///
    /// A blocked change waits until the server confirms the failed change after a call of ``retry(_:)``, or
    /// the app discards the failed change. A blocked change blocks later changes in the same way. Call this
    /// method before ``start()``; a second call replaces the closure.
    ///
    /// - Parameter isBlocked: Whether `later` must not be sent before `failed`.
    /// - Returns: This outbox.
    @discardableResult
    public func blocked(by isBlocked: @escaping @Sendable (_ later: Change, _ failed: Change) -> Bool) -> MuxOutbox {
        self.core.state.withLock { $0.isBlocked = isBlocked }
        return self
    }

    /// Reads the changes of earlier launches, shows the changes in the overlays, and begins to send.
    ///
    /// Call this method in the initialiser of the app, so that values in memory and from disk are shown with
    /// the changes. Without this call, the first call of ``add(_:)``, ``pending``, ``states``, ``retry(_:)``
    /// or ``discard(_:)`` reads the changes and begins to send. Further calls are harmless. After a failed
    /// read, a later call of the outbox reads the changes.
    ///
    /// - Complexity: O(*n*) in the number of changes; blocks the caller during the read of the file, and
    ///   while another operation of this or another process uses the file.
    public func start() { self.core.restore() }

    // MARK: - Changes

    /// Adds a change; returns when the change is durable.
    ///
    /// The change is sent in the background. The overlays show the change when this call returns.
    ///
    /// - Parameter change: The change.
    /// - Returns: The identity of the change, for ``retry(_:)`` and ``discard(_:)``.
    /// - Throws: ``MuxOutboxError``, or `MuxError.repositoryMismatch`; the change is then not kept.
    /// - Complexity: One append to a file, with a synchronization.
    @discardableResult
    public func add(_ change: Change) async throws -> PendingChange.ID { try await self.core.add(change) }

    /// The changes that are not confirmed: waiting, being sent, failed and unreadable, in the order of their
    /// addition.
    ///
    /// Includes the changes of other processes with the same folder. After a failed read, the list has only
    /// the changes that this process has read or added before.
    public var pending: [PendingChange] { get async { await self.core.list() } }

    /// The list ``pending``, now and after each update that this process makes or reads.
    ///
    /// A slow consumer skips to the newest list. The sequence ends when the outbox is deallocated.
    public var states: AsyncStream<[PendingChange]> {
        let signals = self.core.listSignals.stream(of: 0)
        let (stream, continuation) = AsyncStream.makeStream(
            of: [PendingChange].self,
            bufferingPolicy: .bufferingNewest(1)
        )
        let task = self.core.repository.spawn(name: "mux.outbox.states") { [weak core = self.core] in
            guard let first = await core?.list() else { return continuation.finish() }
            continuation.yield(first)
            for await _ in signals {
                guard let list = await core?.list() else { break }
                continuation.yield(list)
            }
            continuation.finish()
        }
        continuation.onTermination = { _ in task.cancel() }
        return stream
    }

    /// Requests further attempts of a failed change; no effect on any other change, or on an unreadable
    /// change.
    ///
    /// The change keeps its place in the order of its lane, and its age begins again.
    ///
    /// - Parameter id: The change.
    /// - Throws: ``MuxOutboxError/notStored(underlying:)`` if the new state of the change is not on disk. If
    ///   this process has read the change before, a later call of the outbox writes the new state.
    public func retry(_ id: PendingChange.ID) async throws {
        do { try await self.core.retry(id) } catch { throw MuxOutboxError.notStored(underlying: error) }
    }

    /// Removes a change; no effect without such a change.
    ///
    /// A running attempt continues, and the server may still apply the change.
    ///
    /// - Parameter id: The change.
    /// - Throws: ``MuxOutboxError/notStored(underlying:)`` if the removal is not on disk. If this process has
    ///   read the change before, a later call of the outbox writes the removal.
    public func discard(_ id: PendingChange.ID) async throws {
        do { try await self.core.discard(id) } catch { throw MuxOutboxError.notStored(underlying: error) }
    }

    /// The number of lanes that wait for the next attempt; `nil` if the sender of another lane runs, or if
    /// an operation on the log runs or waits.
    package var waitCount: Int? { self.core.waitCount }

    /// The number of lanes whose last step failed without a connection, until the next step.
    package var offlineCount: Int { self.core.state.withLock { $0.offlineCount } }

    /// Ends the wait of each lane for its next attempt, even before the end of a `Retry-After`.
    ///
    /// For a button "Try again".
    public func retryNow() { self.core.retryNow() }
}

/// A key of a map with overlays.
private struct OverlaidKey<Key: Hashable & Sendable>: Hashable, Sendable {
    let map: ObjectIdentifier
    let key: Key
}
