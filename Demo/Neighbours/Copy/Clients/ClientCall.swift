// Copy this file beside the file of your client library.

import MuxKit
import Synchronization

/// A response with a status other than 200 to 299, inside an error of a client library.
///
/// The retry policy decides about the status, a stale value does not replace the error, and a runner renews
/// its token after a 401.
nonisolated struct ClientStatusError: RetryableError, ConnectivityError, BadDependencyError {
    let status: Int

    var retryAdvice: RetryAdvice { RetryAdvice(isTransient: false, status: self.status) }
    var isConnectivityFailure: Bool { false }
    var isBadDependency: Bool { self.status == 401 }
}

/// A failure that another attempt does not change, inside an error of a client library, such as an invalid
/// request or a refused certificate.
nonisolated struct ClientFailure: RetryableError, ConnectivityError {
    var retryAdvice: RetryAdvice { .permanent }
    var isConnectivityFailure: Bool { false }
}

/// A call with a completion handler as an asynchronous function.
nonisolated final class ClientCall<Value: Sendable>: Sendable {
    private struct State {
        var continuation: CheckedContinuation<Value, any Error>?
        var cancel: (@Sendable () -> Void)?
        var isCancelled = false
    }

    private let state = Mutex(State())

    /// Starts a call, and waits for its end.
    ///
    /// - Parameter start: Starts the call with a completion handler, and returns the cancellation of the call.
    /// - Returns: The value of the completion handler.
    /// - Throws: The error of the completion handler; `CancellationError` after a cancellation of the task.
    static func run(
        _ start: (@escaping @Sendable (Result<Value, any Error>) -> Void) -> @Sendable () -> Void
    ) async throws -> Value {
        let call = ClientCall()
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                call.state.withLock { $0.continuation = continuation }
                let cancel = start { call.end($0) }
                let isCancelled = call.state.withLock { state in
                    // A call that has ended is not cancelled.
                    if state.continuation != nil { state.cancel = cancel }
                    return state.isCancelled
                }
                if isCancelled { call.stop() }
            }
        } onCancel: {
            call.stop()
        }
    }

    private func stop() {
        let cancel = self.state.withLock { state in
            state.isCancelled = true
            return state.cancel
        }
        cancel?()
        // Not every library calls the completion handler of a cancelled call.
        if cancel != nil { self.end(.failure(CancellationError())) }
    }

    private func end(_ result: Result<Value, any Error>) {
        let continuation = self.state.withLock { state in
            defer { (state.continuation, state.cancel) = (nil, nil) }
            return state.continuation
        }
        continuation?.resume(with: result)
    }
}
