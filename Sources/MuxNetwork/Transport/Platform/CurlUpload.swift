#if os(Linux)
import Foundation
import MuxKit

/// The body of a request during its transfer by libcurl.
///
/// Bytes in memory are not copied as a whole. Of a stream, this object holds at most one piece: the task that
/// reads the stream waits until libcurl has taken the piece.
final class CurlUpload: Sendable {
    /// The result of a read by libcurl.
    enum Reading: Sendable {
        /// The next bytes; no bytes at the end of the body.
        case bytes(Data)
        /// The next piece is not available yet.
        case unavailable
        /// The stream has failed, or the task that reads the stream was cancelled.
        case failed
    }

    private struct State: Sendable {
        /// The bytes that libcurl has not taken: the rest of the body in memory, or of the current piece.
        var rest: Data
        /// Whether no piece follows `rest`.
        var isLast: Bool
        var hasFailed = false
        /// The number of bytes that libcurl has taken.
        var sent = 0
        /// Whether libcurl found no bytes, and waits for a notification of the next piece.
        var isAwaited = false
        /// Resumes the task that reads the stream, when libcurl has taken the piece.
        var taken: FirstValue<Void>?
    }

    private let body: HTTPCall.Body
    private let isRepeatable: Bool
    private let state: Locked<State>

    init(_ body: HTTPCall.Body, isRepeatable: Bool) {
        self.body = body
        self.isRepeatable = isRepeatable
        self.state = Locked(State(rest: body.data ?? Data(), isLast: body.data != nil))
    }

    /// The length in bytes; `nil` if unknown.
    var length: Int? { self.body.length }

    /// Whether libcurl has taken all bytes, and no further piece follows.
    var isSent: Bool { self.state.withLock { $0.isLast && $0.rest.isEmpty } }

    /// Takes at most `limit` bytes.
    func read(limit: Int) -> Reading {
        let (reading, taken) = self.state.withLock { state -> (Reading, FirstValue<Void>?) in
            guard !state.hasFailed else { return (.failed, nil) }
            guard !state.rest.isEmpty else {
                state.isAwaited = !state.isLast
                return (state.isLast ? .bytes(Data()) : .unavailable, nil)
            }
            let bytes = state.rest.prefix(limit)
            state.rest = state.rest.dropFirst(limit)
            state.sent += bytes.count
            guard state.rest.isEmpty else { return (.bytes(bytes), nil) }
            defer { state.taken = nil }
            return (.bytes(bytes), state.taken)
        }
        taken?.give(())
        return reading
    }

    /// Returns to the start of the body, because the request is sent again on another connection.
    ///
    /// After bytes were sent, a request that is not repeatable is sent again only if the server refused the
    /// first request. Otherwise the server may have processed the first request. Within one transfer, a
    /// streamed body is not sent twice.
    ///
    /// - Parameter isRefused: Whether the server has certainly not processed the request.
    /// - Returns: Whether the next read begins at the start of the body.
    func rewind(isRefused: Bool) -> Bool {
        self.state.withLock { state in
            guard state.sent > 0 else { return true }
            guard self.isRepeatable || isRefused, let data = self.body.data else { return false }
            state.rest = data
            state.sent = 0
            return true
        }
    }

    /// Starts the task that reads the stream; `nil` if the body is in memory.
    ///
    /// - Parameters:
    ///   - failed: Receives the error of the stream, or the `CancellationError` of the task.
    ///   - more: Called when the next piece or the end is available and libcurl waits, and after `failed`.
    /// - Returns: The task.
    func feed(
        failed: @escaping @Sendable (any Error) -> Void,
        more: @escaping @Sendable () -> Void
    ) -> Task<Void, Never>? {
        guard case .stream(let stream) = self.body else { return nil }
        return TaskLauncher()(name: "mux.http.body") {
            do {
                for try await piece in stream where !piece.isEmpty {
                    await self.offer(piece, more)
                    try Task.checkCancellation()
                }
                // After a cancellation, the stream may end early and without an error.
                try Task.checkCancellation()
                if self.end(hasFailed: false) { more() }
            } catch {
                failed(error)
                _ = self.end(hasFailed: true)
                more()
            }
        }
    }

    /// Offers a piece to libcurl; returns when libcurl has taken the piece, or the task is cancelled.
    private func offer(_ piece: Data, _ more: () -> Void) async {
        guard !Task.isCancelled else { return }
        let taken = FirstValue<Void>()
        let isAwaited = self.state.withLock { state in
            state.rest = piece
            state.taken = taken
            defer { state.isAwaited = false }
            return state.isAwaited
        }
        if isAwaited { more() }
        await withTaskCancellationHandler {
            await taken.wait()
        } onCancel: {
            taken.give(())
        }
    }

    /// Marks the end of the stream.
    ///
    /// - Returns: Whether libcurl waits for the end.
    private func end(hasFailed: Bool) -> Bool {
        self.state.withLock { state in
            state.isLast = true
            state.hasFailed = hasFailed
            defer { state.isAwaited = false }
            return state.isAwaited
        }
    }
}
#endif
