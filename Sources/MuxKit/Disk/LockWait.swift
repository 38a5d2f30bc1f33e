import Dispatch

/// A wait for the lock of a file, on a thread of its own, that the caller can leave.
///
/// The kernel knows no limit for such a wait. One that was left goes on, and gives the lock back when it gets it.
final class LockWait: Sendable {
    private enum State: Sendable {
        case waiting
        case taken
        case failed(MuxStoreError)
        /// The caller left.
        case left
        case over
    }

    private let state = Locked(State.waiting)
    private let ended = DispatchSemaphore(value: 0)

    /// Begins to wait.
    init(_ file: OpenFile, _ fileSystem: any FileSystem) {
        DispatchQueue(label: "MuxKit.LockWait").async {
            var end = State.taken
            do throws(MuxStoreError) {
                try fileSystem.lock(file)
            } catch {
                end = .failed(error)
            }
            let wasLeft = self.state.withLock { state -> Bool in
                if case .left = state { return true }
                state = end
                return false
            }
            guard wasLeft else {
                self.ended.signal()
                return
            }
            if case .taken = end { try? fileSystem.unlock(file) }
            self.state.withLock { $0 = .over }
        }
    }

    /// Whether the wait that was left has ended.
    var isOver: Bool {
        self.state.withLock { state in if case .over = state { true } else { false } }
    }

    /// Blocks until the lock is taken, or leaves when the time is up.
    ///
    /// - Returns: Whether the lock is taken; if so, the caller has to give it back.
    func finish(within limit: Duration) throws(MuxStoreError) -> Bool {
        _ = self.ended.wait(timeout: .now() + limit.secondsValue)
        return try self.state.withLock { state throws(MuxStoreError) -> Bool in
            switch state {
            case .taken: return true
            case .failed(let error): throw error
            case .waiting, .left, .over:
                state = .left
                return false
            }
        }
    }
}
