package import Foundation
import MuxKit

/// Reports to followed values that the app has become active, or that the network is available again.
///
/// `MuxPolicy.refetch` determines which values are then fetched. Of these fetches and the fetches of
/// intervals, an object of this class runs at most six at a time.
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
    /// An activation is a return from the background; on macOS, a return from another app. On
    /// Linux, only the network is observed. The network is observed while values are followed.
    public static let shared = AppActivity(observing: .default, network: NetworkPath.watch)

    /// A followed value.
    @MainActor
    protocol Follower: AnyObject {
        /// Decides whether to fetch the value after an event.
        func note(_ event: Event)

        /// Starts a fetch or calls ``AppActivity/enqueue(_:)``, if a fetch is necessary and possible now.
        func refetchIfNeeded()

        /// Starts a fetch, if still necessary.
        ///
        /// - Returns: The fetch; `nil` for no fetch.
        func refetch() -> Task<Void, Never>?

        var repository: MuxRepository { get }
    }

    enum Event {
        case activation
        case reconnection
    }

    /// Watches the network; the argument reports whether the network is available.
    ///
    /// Returns a closure that ends the watch; `nil` if the network cannot be watched.
    package typealias NetworkWatch = @Sendable (@escaping @Sendable (Bool) -> Void) -> (@Sendable () -> Void)?

    private static let maximumFetches = 6

    private let watchNetwork: NetworkWatch?
    private var followers: [ObjectIdentifier: any Follower] = [:]
    /// The followers that wait for the end of a running fetch, in the order of their arrival.
    private var waiting: [any Follower] = []
    private var runningCount = 0
    private var wasInBackground = false
    private var wasConnected: Bool?
    /// Ends the watch of the network; `nil` while no watch runs.
    private var endNetworkWatch: (@Sendable () -> Void)?
    /// Identifies the watch, because a report of an ended watch can arrive late.
    private var networkWatch = 0

    /// Makes an object that reports only the calls of ``activated()`` and ``reconnected()``, such as for a
    /// test.
    public init() { self.watchNetwork = nil }

    package init(observing center: NotificationCenter, network: @escaping NetworkWatch) {
        self.watchNetwork = network
        for (name, isActive) in Self.notifications {
            // The observation is never removed, and has no effect after the release of `self`.
            _ = center.addObserver(forName: Notification.Name(name), object: nil, queue: nil) { [weak self] _ in
                DispatchQueue.main.async { self?.recordActivity(isActive: isActive) }
            }
        }
    }

    /// The notifications at the end and at the beginning of an app's activity.
    ///
    /// The names are strings from Apple's documentation, so that no UI framework is imported.
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

    private func recordActivity(isActive: Bool) {
        // The system also reports the start of the app as an activation.
        if isActive, self.wasInBackground { self.activated() }
        self.wasInBackground = !isActive
    }

    private func recordConnection(isConnected: Bool) {
        if isConnected, self.wasConnected == false { self.reconnected() }
        self.wasConnected = isConnected
    }

    // MARK: - Followers

    func addFollower(_ follower: any Follower) {
        self.followers[ObjectIdentifier(follower)] = follower
        guard self.endNetworkWatch == nil, let watchNetwork else { return }
        self.networkWatch += 1
        self.endNetworkWatch = watchNetwork { [weak self, number = self.networkWatch] isConnected in
            DispatchQueue.main.async {
                guard self?.networkWatch == number else { return }
                self?.recordConnection(isConnected: isConnected)
            }
        }
    }

    func removeFollower(_ follower: any Follower) {
        self.followers[ObjectIdentifier(follower)] = nil
        self.waiting.removeAll { $0 === follower }
        guard self.followers.isEmpty else { return }
        self.endNetworkWatch?()
        (self.endNetworkWatch, self.wasConnected) = (nil, nil)
        self.networkWatch += 1
    }

    private func report(_ event: Event) {
        // All followers decide before any fetch, because a fetch changes the state of all followers of a key.
        let followers = Array(self.followers.values)
        for follower in followers { follower.note(event) }
        for follower in followers { follower.refetchIfNeeded() }
    }

    /// Calls ``Follower/refetch()`` when fewer than six fetches run.
    func enqueue(_ follower: any Follower) {
        guard !self.waiting.contains(where: { $0 === follower }) else { return }
        self.waiting.append(follower)
        self.fetchNext()
    }

    private func fetchNext() {
        while self.runningCount < Self.maximumFetches, !self.waiting.isEmpty {
            let follower = self.waiting.removeFirst()
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
