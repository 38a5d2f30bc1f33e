/// Ends the waits that listen to it when it is told to, as a button "Try again" does.
///
/// ```swift
/// let button = RetrySignal()
/// let page = try await retry(.web, wakingOn: .signal(button)) { _ in try await fetchPage() }
/// // elsewhere
/// button.retryNow()
/// ```
///
/// A signal is not kept: it ends the waits of this moment, and those that begin later know nothing of it.
public final class RetrySignal: Sendable {
    private let listeners = RetryListeners()

    /// A signal that nobody has given.
    public init() {}

    /// Has every attempt that waits for it begin at once, even if a server asked for a pause.
    ///
    /// - Returns: How many waits were ended; 0 if nobody waits.
    @discardableResult
    public func retryNow() -> Int { self.listeners.wakeAll() }

    func listen(_ wake: @escaping @Sendable () -> Void) -> @Sendable () -> Void { self.listeners.add(wake) }
}

/// Closures that are called when something has happened, until they are taken back.
final class RetryListeners: Sendable {
    private struct State: Sendable {
        var nextID: UInt64 = 0
        var listeners: [UInt64: @Sendable () -> Void] = [:]
    }

    private let state = Locked(State())

    /// Adds a closure.
    ///
    /// - Returns: What takes it back.
    func add(_ listener: @escaping @Sendable () -> Void) -> @Sendable () -> Void {
        let id = self.state.withLock { state -> UInt64 in
            state.nextID += 1
            state.listeners[state.nextID] = listener
            return state.nextID
        }
        return { [state] in state.withLock { _ = $0.listeners.removeValue(forKey: id) } }
    }

    /// Calls the closures, in the order in which they were added.
    ///
    /// - Returns: How many there were.
    @discardableResult
    func wakeAll() -> Int {
        let listeners = self.state.withLock { state in
            state.listeners.sorted { $0.key < $1.key }.map(\.value)
        }
        for listener in listeners { listener() }
        return listeners.count
    }

    var isEmpty: Bool { self.state.withLock { $0.listeners.isEmpty } }
}
