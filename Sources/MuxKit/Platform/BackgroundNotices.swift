import Dispatch
package import Foundation

/// Calls back when the app enters the background, for as long as it lives.
///
/// By the names of the notifications, which asks for no view framework. Where there is no background, there are no names.
package final class BackgroundNotices {
    private let observers: [any NSObjectProtocol]

    package init(_ names: [Notification.Name], _ entered: @escaping @Sendable () -> Void) {
        self.observers = names.map { name in
            NotificationCenter.default.addObserver(forName: name, object: nil, queue: nil) { _ in entered() }
        }
    }

    deinit {
        for observer in self.observers { NotificationCenter.default.removeObserver(observer) }
    }

    /// What the system posts when an app, an app extension or a watch app enters the background, or a Mac app ends.
    ///
    /// Written from the documentation; not compiled where this package is developed.
    package static var standardNames: [Notification.Name] {
        #if canImport(Darwin)
        return [
            "UIApplicationDidEnterBackgroundNotification",
            "NSExtensionHostDidEnterBackgroundNotification",
            "WKApplicationDidEnterBackgroundNotification",
            "NSApplicationWillResignActiveNotification",
            "NSApplicationWillTerminateNotification",
        ].map { Notification.Name($0) }
        #else
        return []
        #endif
    }

    /// Runs `work`, which calls what it is given when it has ended, and asks the system not to suspend the app before.
    static func finishing(_ work: @escaping @Sendable (_ ended: @escaping @Sendable () -> Void) -> Void) {
        #if os(iOS) || os(tvOS) || os(watchOS) || os(visionOS)
        // https://developer.apple.com/documentation/foundation/processinfo/performexpiringactivity(withreason:using:)
        // The app is held awake until the block returns, which runs on a thread that may be blocked.
        ProcessInfo.processInfo.performExpiringActivity(withReason: "mux.save") { hasExpired in
            guard !hasExpired else { return }
            let ended = DispatchSemaphore(value: 0)
            work { ended.signal() }
            ended.wait()
        }
        #else
        work {}
        #endif
    }
}

@available(*, unavailable)
extension BackgroundNotices: Sendable {}
