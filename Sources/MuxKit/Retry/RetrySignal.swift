public import Foundation

/// Ends waits between attempts on demand, such as from a button "Try again".
///
/// ```swift
/// let button = RetrySignal()
/// let page = try await retry(.web, wakingOn: .signal(button)) { _ in try await fetchPage() }
/// // elsewhere
/// button.retryNow()
/// ```
///
/// A call of ``retryNow()`` ends the current waits, and has no effect on later waits.
public final class RetrySignal: Sendable {
    private let waits = Broadcast<SoleKey, Void>()

    /// Makes a signal.
    public init() {}

    /// Ends every current wait for the signal, even before the end of a `Retry-After`.
    ///
    /// The next attempt then begins, unless a limit of the retry, such as ``RetryPolicy/maximumDuration``,
    /// ends the retry.
    ///
    /// - Returns: The number of notified waits.
    @discardableResult
    public func retryNow() -> Int {
        let waits = self.waits.receivers(of: .sole)
        for wake in waits { wake(()) }
        return waits.count
    }
}

extension RetrySignal {
    /// An event that can end the wait between two attempts.
    ///
    /// ```swift
    /// let page = try await retry(.web, wakingOn: .reachable(host), .signal(button)) { _ in try await fetchPage() }
    /// ```
    ///
    /// The first wake-up ends the wait. The wake-ups ``after(_:)`` and ``signal(_:)`` start the next attempt
    /// at once. After any other wake-up, which may end many waits at once, the next attempt starts after a
    /// random delay of up to ``RetryPolicy/wakeJitter``. ``RetryPolicy/maximumRetryAfter`` describes waits
    /// during a `Retry-After`.
    public struct WakeUp: Sendable {
        package typealias SetUp =
            @Sendable (_ loop: RetryLoop, _ wake: @escaping @Sendable () -> Void) -> @Sendable () -> Void

        /// The name in a log.
        package let name: String
        package let wake: RetryStateMachine.Wake
        /// Starts to listen, with the clock and the tasks of the loop; the returned closure ends the
        /// listening.
        package let setUp: SetUp

        package init(_ name: String, _ wake: RetryStateMachine.Wake, _ setUp: @escaping SetUp) {
            self.name = name
            self.wake = wake
            self.setUp = setUp
        }

        /// Wakes after this delay.
        public static func after(_ delay: Duration) -> RetrySignal.WakeUp {
            RetrySignal.WakeUp("time", .time) { loop, wake in
                let time = loop.time
                let timer = loop.spawn(name: "mux.retry") {
                    guard (try? await time.sleep(for: max(delay, .zero))) != nil else { return }
                    wake()
                }
                return { timer.cancel() }
            }
        }

        /// Wakes at ``RetrySignal/retryNow()``, without a random delay.
        public static func signal(_ signal: RetrySignal) -> RetrySignal.WakeUp {
            RetrySignal.WakeUp("signal", .demand) { _, wake in signal.waits.add(to: .sole, wake) }
        }

        /// Wakes at a notification with this name.
        public static func notification(
            _ name: Notification.Name,
            in center: NotificationCenter = .default
        ) -> RetrySignal.WakeUp {
            RetrySignal.WakeUp("notification", .signal) { _, wake in
                let token = Locked(center.addObserver(forName: name, object: nil, queue: nil) { _ in wake() })
                return { token.withLock { center.removeObserver($0) } }
            }
        }

        /// Wakes when the sequence produces an element; the end or an error of the sequence does not wake.
        ///
        /// - Parameter makeSequence: Makes the sequence for each wait.
        /// - Returns: The wake-up.
        public static func element<Elements: AsyncSequence & Sendable>(
            of makeSequence: @escaping @Sendable () -> Elements
        ) -> RetrySignal.WakeUp {
            RetrySignal.WakeUp("sequence", .signal) { loop, wake in
                let listener = loop.spawn(name: "mux.retry") {
                    var iterator = makeSequence().makeAsyncIterator()
                    guard let element = try? await iterator.next(isolation: nil) else { return }
                    _ = element
                    wake()
                }
                return { listener.cancel() }
            }
        }

        /// Wakes on an event of the app, such as a screen that appears.
        ///
        /// ```swift
        /// let appears = RetrySignal.WakeUp { wake in
        ///     let observation = screen.onAppear(wake)
        ///     return { observation.cancel() }
        /// }
        /// ```
        ///
        /// **Concurrent calls.** Each wait calls `setUp` at most once, and then, at any end of the wait, the
        /// returned closure exactly once. Neither closure may block the calling thread.
        ///
        /// - Parameters:
        ///   - name: The name in a log.
        ///   - setUp: Starts to listen, and returns a closure that ends the listening. A call of `wake` ends
        ///     the wait, from any thread; further calls have no effect.
        public init(
            name: String = "event",
            setUp: @escaping @Sendable (_ wake: @escaping @Sendable () -> Void) -> @Sendable () -> Void
        ) {
            self.init(name, .signal) { _, wake in setUp(wake) }
        }
    }
}
