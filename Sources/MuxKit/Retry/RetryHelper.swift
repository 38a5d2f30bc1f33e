/// Something that can end a wait between two attempts before its time.
///
/// Make your own for what your app knows: a screen that appears, a device that wakes.
///
/// **Concurrent calls.** For one wait ``setUp(wake:)`` is called once, and after it ``tearDown()`` once, however the wait ends:
/// because this helper woke it, another one did, the time was over, it was replaced, or its task was cancelled. Waits follow
/// one another; an instance that is used by several retries at a time has to tell them apart itself.
public protocol RetryHelper: Sendable {
    /// A wait has begun. Call `wake` to end it, from anywhere; more than once does no harm.
    ///
    /// Keep it short: it runs on the thread that begins the wait.
    func setUp(wake: @escaping @Sendable () -> Void)

    /// The wait has ended. Keep it short: it runs on the thread that ended it.
    func tearDown()
}
