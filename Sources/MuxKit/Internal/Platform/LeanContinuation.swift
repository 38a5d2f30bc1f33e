/// Wraps `UnsafeContinuation`; the single owner must resume the continuation exactly once.
///
/// A checked continuation costs an allocation and a slab of the task's allocator per waiter. The two costs
/// double the time to resume many waiters.
///
/// The build for ThreadSanitizer uses a checked continuation for two reasons: a checked continuation detects
/// a missing or repeated resumption, and ThreadSanitizer reports a false race if an unsafe continuation is
/// resumed before the task suspends (Swift 6.3.1).
@safe @usableFromInline
struct LeanContinuation<Value: Sendable>: Sendable {
    #if MUX_TSAN
    private let continuation: CheckedContinuation<Value, Never>

    /// Resumes the task with `value`.
    func resume(returning value: Value) { self.continuation.resume(returning: value) }

    /// Suspends the task until the continuation given to `body` is resumed, possibly in `body`.
    @usableFromInline
    static func wait(
        isolation: isolated (any Actor)? = #isolation,
        _ body: (LeanContinuation) -> Void
    ) async -> Value {
        await withCheckedContinuation { body(LeanContinuation(continuation: $0)) }
    }
    #else
    @usableFromInline let continuation: UnsafeContinuation<Value, Never>

    @inlinable
    init(_ continuation: UnsafeContinuation<Value, Never>) { unsafe self.continuation = continuation }

    /// Resumes the task with `value`.
    @inlinable
    func resume(returning value: Value) { unsafe self.continuation.resume(returning: value) }

    /// Suspends the task until the continuation given to `body` is resumed, possibly in `body`.
    @inlinable
    @inline(__always)
    static func wait(
        isolation: isolated (any Actor)? = #isolation,
        _ body: (LeanContinuation) -> Void
    ) async -> Value {
        await unsafe withUnsafeContinuation { body(unsafe LeanContinuation($0)) }
    }
    #endif
}
