import Dispatch

/// Distinguishes code of the main actor from other code, for work that must not run on the main actor.
///
/// A check for the main thread is not sufficient: on Linux the main thread ends when an asynchronous `main`
/// first suspends, and other threads then serve the main queue (Swift 6.3.1).
package enum MainQueue {
    private static let mark: DispatchSpecificKey<Bool> = {
        let mark = DispatchSpecificKey<Bool>()
        DispatchQueue.main.setSpecific(key: mark, value: true)
        return mark
    }()

    /// Whether the current thread serves the main queue.
    package static var isCurrent: Bool { DispatchQueue.getSpecific(key: Self.mark) ?? false }
}
