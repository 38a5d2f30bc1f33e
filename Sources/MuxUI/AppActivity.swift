package import Foundation
import MuxKit

/// Reports to followed values that the app has become active, or that the network is available again.
///
/// `MuxPolicy.refetch` determines which values are then fetched. At most six values are fetched at a time.
///
/// ```swift
/// let activity = AppActivity()  // in a test
/// let profile = Backend.profile.observed(activity: activity)
/// activity.activated()
/// ```
@MainActor
public final class AppActivity {
    /// Reports the notifications and the network state of the system.
    ///
    /// On Apple platforms, the app is active again after the background, on macOS after another app. On
    /// Linux, only the network is observed. The network is observed while values are followed.
    public static let shared = AppActivity(observing: .default, network: NetworkPath.watch)

    /// A followed value.
    @MainActor
    protocol Follower: AnyObject {
        /// Decides whether to fetch the value.
        ///
        /// - Returns: Whether to call ``refetch()``.
        func mustRefetch(after event: Event) -> Bool

        /// Starts the fetch, if still necessary.
        ///
        /// - Returns: The running fetch; `nil` for no fetch.
        func refetch() -> Task<Void, Never>?

        var repository: MuxRepository { get }
    }

    enum Event {
        case activation
        case reconnection
    }

    typealias NetworkWatch = @Sendable (@escaping @Sendable (Bool) -> Void) -> (@Sendable () -> Void)?

    private static let fetchesAtOnce = 6

    private let watchNetwork: NetworkWatch?
    private var followers: [ObjectIdentifier: any Follower] = [:]
    /// The followers that wait for their fetch.
    private var waiting: [any Follower] = []
    private var runningCount = 0
    private var wasInBackground = false
    private var wasConnected: Bool?
    private var endNetworkWatch: (@Sendable () -> Void)?

    /// Makes an object that reports only the calls of ``activated()`` and ``reconnected()``, such as for a
    /// test.
    public init() { self.watchNetwork = nil }

    package init(
        observing center: NotificationCenter,
        network: @escaping @Sendable (@escaping @Sendable (Bool) -> Void) -> (@Sendable () -> Void)?
    ) {
        self.watchNetwork = network
        for (name, isActive) in Self.notifications {
            // The observation lasts as long as the process.
            _ = center.addObserver(forName: Notification.Name(name), object: nil, queue: nil) { [weak self] _ in
                DispatchQueue.main.async { self?.changed(isActive: isActive) }
            }
        }
    }

    /// The notifications at the end and at the beginning of an app's activity.
    ///
    /// Named by text, which needs no UI framework. Written from the documentation.
    private static var notifications: [(name: String, isActive: Bool)] {
        [
            ("UIApplicationDidEnterBackgroundNotification", false),
            ("UIApplicationDidBecomeActiveNotification", true),
            ("WKApplicationDidEnterBackgroundNotification", false),
            ("WKApplicationDidBecomeActiveNotification", true),
            ("NSApplicationDidResignActiveNotification", false),
            ("NSApplicationDidBecomeActiveNotification", true),
        ]
    }

    /// Reports that the app has become active: fetches followed values, as `MuxPolicy.refetch` determines.
    public func activated() { self.report(.activation) }

    /// Reports that the network is available again: fetches followed values, as `MuxPolicy.refetch`
    /// determines.
    public func reconnected() { self.report(.reconnection) }

    // MARK: - Events of the system

    private func changed(isActive: Bool) {
        // The system also reports the start of the app as an activation.
        if isActive, self.wasInBackground { self.activated() }
        self.wasInBackground = !isActive
    }

    private func changed(isConnected: Bool) {
        if isConnected, self.wasConnected == false { self.reconnected() }
        self.wasConnected = isConnected
    }

    // MARK: - Followers

    func began(_ follower: any Follower) {
        self.followers[ObjectIdentifier(follower)] = follower
        guard self.endNetworkWatch == nil, let watchNetwork else { return }
        self.endNetworkWatch = watchNetwork { isConnected in
            DispatchQueue.main.async { [weak self] in self?.changed(isConnected: isConnected) }
        }
    }

    func ended(_ follower: any Follower) {
        self.followers[ObjectIdentifier(follower)] = nil
        guard self.followers.isEmpty else { return }
        self.endNetworkWatch?()
        (self.endNetworkWatch, self.wasConnected) = (nil, nil)
    }

    private func report(_ event: Event) {
        // First all decisions: a fetch for one view may concern the other views of the same key.
        self.waiting += self.followers.values.filter { $0.mustRefetch(after: event) }
        self.fetchNext()
    }

    private func fetchNext() {
        while self.runningCount < Self.fetchesAtOnce, let follower = self.waiting.popLast() {
            guard let fetch = follower.refetch() else { continue }
            self.runningCount += 1
            follower.repository.spawn(name: "mux.refetch") { @MainActor in
                await fetch.value
                self.runningCount -= 1
                self.fetchNext()
            }
        }
    }
}
