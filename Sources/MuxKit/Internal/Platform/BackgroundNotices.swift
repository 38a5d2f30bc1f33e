package import Dispatch
package import Foundation

/// Calls back when the app enters the background or ends, for as long as it lives.
///
/// By the names of the notifications, which asks for no view framework. Where there is no background, there are no names.
package final class BackgroundNotices {
    /// Holds the app awake while a block runs: see ``ExpiringActivity``.
    package typealias Activity = @Sendable (_ block: @escaping @Sendable (_ hasExpired: Bool) -> Void) -> Void

    private let observers: [any NSObjectProtocol]

    /// Begins to watch.
    ///
    /// - Parameters:
    ///   - names: The names of the notifications.
    ///   - entered: Called on the thread that posts; told whether the process ends when that thread goes on.
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

    /// What the system posts when an app, an app extension or a watch app enters the background, or an app ends.
    ///
    /// Written from the documentation; not compiled where this package is developed.
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

    /// What the system posts last: the process ends when all observers have returned.
    package static let lastNames = [
        Notification.Name("NSApplicationWillTerminateNotification"),
        Notification.Name("UIApplicationWillTerminateNotification"),
    ]

    /// Runs `work`, which calls what it is given when it has ended, and keeps the app from being suspended or ended before.
    ///
    /// - Parameters:
    ///   - isLast: Whether the process ends when this returns: then it blocks until the work has ended, or for `limit`.
    ///   - limit: How long an app that ends is held up at most.
    ///   - activity: How the app is kept awake otherwise.
    ///   - work: Begins the work; must not wait for the calling thread.
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
        let state = Locked(ExpiringActivity())
        activity { hasExpired in
            switch state.withLock({ $0.called(hasExpired: hasExpired) }) {
            case .workAndWait:
                work { ended.signal() }
                ended.wait()
            case .work: work {}
            case .stopWaiting: ended.signal()
            }
        }
    }

    /// How the system keeps an app awake; where it does not, there is no time, and nothing is waited for.
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

/// Decides what the block of an expiring activity does.
///
/// The system calls the block when the activity begins, on a thread that it may block, and again, on another thread, when its
/// time is over. If there is no time at all, the first call says so already.
package struct ExpiringActivity: Sendable {
    /// What a call of the block does.
    package enum Action: Sendable, Equatable {
        /// Begin the work, and wait for its end: the app is not suspended before the block returns.
        case workAndWait
        /// Begin the work, and return: there is no time to wait, but the work may end before the app is suspended.
        case work
        /// Let the first call return: an app that outstays its time is ended.
        case stopWaiting
    }

    private var hasBegun = false

    package init() {}

    /// The system calls the block.
    ///
    /// - Parameter hasExpired: What the system says: whether the time is over.
    /// - Returns: What this call of the block does.
    package mutating func called(hasExpired: Bool) -> Action {
        guard !self.hasBegun else { return .stopWaiting }
        self.hasBegun = true
        return hasExpired ? .work : .workAndWait
    }
}
