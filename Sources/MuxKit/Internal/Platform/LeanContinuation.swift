/// Wraps `UnsafeContinuation`; its single owner must resume it exactly once.
///
/// A checked one makes an object for each who waits, and what it adds to the stack gives each a second block of that: waking
/// many takes twice as long. This one is unchecked, so it has one owner, which gives it up to resume it.
///
/// In the sanitizer build it is a checked one, which finds out whether that is so. (ThreadSanitizer does not see that what
/// resumes an unsafe one happens before what goes on if that did not have to wait, and reports a race; Swift 6.3.1.)
@safe @usableFromInline
struct LeanContinuation<Value: Sendable>: Sendable {
    #if MUX_TSAN
    private let continuation: CheckedContinuation<Value, Never>

    /// Resumes the task, which goes on with `value`.
    func resume(returning value: Value) { self.continuation.resume(returning: value) }

    /// Suspends the task until it is resumed by what `body` is given, which may happen in `body`.
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

    /// Resumes the task, which goes on with `value`.
    @inlinable
    func resume(returning value: Value) { unsafe self.continuation.resume(returning: value) }

    /// Suspends the task until it is resumed by what `body` is given, which may happen in `body`.
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
