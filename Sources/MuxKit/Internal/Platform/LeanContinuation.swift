/// Wraps `UnsafeContinuation`; its single owner must resume it exactly once.
///
/// A checked one costs an allocation and a stack slab per waiter, which doubles the time to resume many.
///
/// The sanitizer build uses a checked one, which verifies the rule. ThreadSanitizer also reports a false race if an
/// unsafe one is resumed before its task suspends (Swift 6.3.1).
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
