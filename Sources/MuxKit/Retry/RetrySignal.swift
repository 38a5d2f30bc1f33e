public import Foundation

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
    private let waits = Locked(Subscribers<@Sendable () -> Void>())

    /// A signal that nobody has given.
    public init() {}

    /// Has every attempt that waits for it begin at once, even if a server asked for a pause.
    ///
    /// - Returns: How many waits were ended; 0 if nobody waits.
    @discardableResult
    public func retryNow() -> Int {
        let waits = self.waits.withLock { $0.inOrder }
        for wake in waits { wake() }
        return waits.count
    }

    func listen(_ wake: @escaping @Sendable () -> Void) -> @Sendable () -> Void {
        let id = self.waits.withLock { $0.add(wake) }
        return {
            let removed = self.waits.withLock { $0.remove(id) }
            withExtendedLifetime(removed) {}
        }
    }
}

/// What can end the wait between two attempts.
///
/// ```swift
/// let page = try await retry(.web, wakingOn: .reachable(host), .signal(button)) { _ in try await fetchPage() }
/// ```
///
/// Several race: the first wins, and all are torn down exactly once. What wakes many at once (a network that is back, a host
/// that answers somebody else, a notification, a sequence, a helper) is followed by a short random delay,
/// ``RetryPolicy/wakeJitter``; time and ``signal(_:)`` are not.
public struct RetryWakeUp: Sendable {
    /// What a wake-up needs to do its work.
    package struct Context: Sendable {
        package let time: TimeSource
        package let spawn: TaskLauncher

        package init(time: TimeSource, spawn: TaskLauncher) {
            self.time = time
            self.spawn = spawn
        }
    }

    package typealias SetUp =
        @Sendable (_ context: Context, _ wake: @escaping @Sendable () -> Void) -> @Sendable () -> Void

    /// How it is called in a log.
    package let name: String
    package let wake: RetryStateMachine.Wake
    /// Begins to listen; returns what ends that.
    package let setUp: SetUp

    package init(_ name: String, _ wake: RetryStateMachine.Wake, _ setUp: @escaping SetUp) {
        self.name = name
        self.wake = wake
        self.setUp = setUp
    }

    /// Wakes after this time.
    public static func after(_ delay: Duration) -> RetryWakeUp {
        RetryWakeUp("time", .time) { context, wake in
            let time = context.time
            let timer = context.spawn(name: "mux.retry") {
                guard (try? await time.sleep(for: max(delay, .zero))) != nil else { return }
                wake()
            }
            return { timer.cancel() }
        }
    }

    /// Wakes when the signal is given, and with no delay.
    public static func signal(_ signal: RetrySignal) -> RetryWakeUp {
        RetryWakeUp("signal", .demand) { _, wake in signal.listen(wake) }
    }

    /// Wakes when a notification of that name is posted.
    ///
    /// - Parameters:
    ///   - name: The notification's name.
    ///   - center: Where it is posted.
    /// - Returns: The wake-up.
    public static func notification(
        _ name: Notification.Name,
        in center: NotificationCenter = .default
    ) -> RetryWakeUp {
        RetryWakeUp("notification", .signal) { _, wake in
            let token = Locked(center.addObserver(forName: name, object: nil, queue: nil) { _ in wake() })
            return { token.withLock { center.removeObserver($0) } }
        }
    }

    /// Wakes when the sequence brings an element; its end, or an error, wakes nobody.
    ///
    /// - Parameter makeSequence: Makes the sequence anew for each wait.
    /// - Returns: The wake-up.
    public static func element<Elements: AsyncSequence & Sendable>(
        of makeSequence: @escaping @Sendable () -> Elements
    ) -> RetryWakeUp {
        RetryWakeUp("sequence", .signal) { context, wake in
            let listener = context.spawn(name: "mux.retry") {
                var iterator = makeSequence().makeAsyncIterator()
                guard let element = try? await iterator.next(isolation: nil) else { return }
                _ = element
                wake()
            }
            return { listener.cancel() }
        }
    }

    /// Wakes when the helper says so.
    public static func helper(_ helper: any RetryHelper) -> RetryWakeUp {
        RetryWakeUp("helper", .signal) { _, wake in
            helper.setUp(wake: wake)
            return { helper.tearDown() }
        }
    }
}
