package import Dispatch
package import Foundation

/// Calls back when the app enters the background (on macOS: becomes inactive) or ends, until deallocation.
///
/// Observes notifications by name, which needs no UI framework. On platforms without a background state,
/// there are no such notifications.
package final class BackgroundNotices {
    /// Keeps the app awake while a block runs.
    ///
    /// Calls the block at the beginning of the activity, on a thread that may block. If the block runs until
    /// the time limit, calls the block again on another thread. If no time remains at the start, `hasExpired`
    /// is `true` in the first call, on any thread.
    package typealias Activity = @Sendable (_ block: @escaping @Sendable (_ hasExpired: Bool) -> Void) -> Void

    private let observers: [any NSObjectProtocol]

    /// Starts to observe.
    ///
    /// - Parameters:
    ///   - names: The names of the notifications.
    ///   - entered: Called on the posting thread; `isLast` is `true` if the process may end after the call.
    package init(_ names: [Notification.Name], _ entered: @escaping @Sendable (_ isLast: Bool) -> Void) {
        self.observers = names.map { name in
            let isLast = Self.lastNames.contains(name)
            return NotificationCenter.default.addObserver(forName: name, object: nil, queue: nil) { _ in
                entered(isLast)
            }
        }
    }

    deinit {
        for observer in self.observers { NotificationCenter.default.removeObserver(observer) }
    }

    /// The names of the notifications of apps and extensions that enter the background, of macOS apps that
    /// become inactive, and of apps that end; empty on systems other than Apple's.
    ///
    /// Written from Apple's documentation. `.ci/apple-lines` compiles these lines on Linux against stubs of
    /// Apple's modules; no Apple SDK has compiled these lines.
    package static var standardNames: [Notification.Name] {
        #if canImport(Darwin)
        return [
            "UIApplicationDidEnterBackgroundNotification",
            "NSExtensionHostDidEnterBackgroundNotification",
            "WKApplicationDidEnterBackgroundNotification",
            "NSApplicationWillResignActiveNotification",
        ].map { Notification.Name($0) } + self.lastNames
        #else
        return []
        #endif
    }

    /// The last notifications: the process may end when all observers have returned.
    package static let lastNames = [
        Notification.Name("NSApplicationWillTerminateNotification"),
        Notification.Name("UIApplicationWillTerminateNotification"),
    ]

    /// Runs `work`, and delays the suspension or end of the app until the end of the work or a time limit, if
    /// the system permits.
    ///
    /// - Parameters:
    ///   - isLast: Whether the process may end after this call: the call then blocks until the end of the
    ///     work, at most for `limit`.
    ///   - limit: The longest wait if `isLast` is `true`.
    ///   - activity: Keeps the app awake if `isLast` is `false`.
    ///   - work: Begins the work, and calls `ended` after the work; must not wait for the calling thread.
    package static func finishing(
        isLast: Bool,
        limit: DispatchTimeInterval = .seconds(4),
        activity: Activity = BackgroundNotices.systemActivity,
        _ work: @escaping @Sendable (_ ended: @escaping @Sendable () -> Void) -> Void
    ) {
        let ended = DispatchSemaphore(value: 0)
        if isLast {
            work { ended.signal() }
            _ = ended.wait(timeout: .now() + limit)
            return
        }
        let hasBegun = Locked(false)
        activity { hasExpired in
            let isFirst = hasBegun.withLock { hasBegun in
                defer { hasBegun = true }
                return !hasBegun
            }
            // A later call lets the first call return: the system ends an app that exceeds the time limit.
            guard isFirst else {
                ended.signal()
                return
            }
            // No time remains for a wait, but the work may end before the app is suspended.
            guard !hasExpired else { return work {} }
            work { ended.signal() }
            ended.wait()
        }
    }

    /// Calls `block` in an expiring activity of the system.
    ///
    /// On systems without expiring activities, calls `block` at once with `true`, so that no thread waits.
    ///
    /// https://developer.apple.com/documentation/foundation/processinfo/performexpiringactivity(withreason:using:)
    @Sendable package static func systemActivity(_ block: @escaping @Sendable (_ hasExpired: Bool) -> Void) {
        #if os(iOS) || os(tvOS) || os(watchOS) || os(visionOS)
        ProcessInfo.processInfo.performExpiringActivity(withReason: "mux.save", using: block)
        #else
        block(true)
        #endif
    }
}

@available(*, unavailable)
extension BackgroundNotices: Sendable {}
