import Dispatch

/// Tells code of the main actor from other code, for work that must not run there.
///
/// The main thread is no sign of it: on Linux it ends when an asynchronous `main` begins to wait, and others serve the main queue
/// from then on (Swift 6.3.1).
enum MainQueue {
    private static let mark: DispatchSpecificKey<Bool> = {
        let mark = DispatchSpecificKey<Bool>()
        DispatchQueue.main.setSpecific(key: mark, value: true)
        return mark
    }()

    /// Whether the current thread serves the main queue.
    static var isCurrent: Bool { DispatchQueue.getSpecific(key: Self.mark) ?? false }
}
