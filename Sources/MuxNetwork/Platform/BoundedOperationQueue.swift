import Dispatch
import Foundation

/// Delivers to the delegate of a `URLSession` no more calls than it keeps up with.
///
/// On Linux a session reads from the network as fast as it can and queues a call for each piece, so a delegate that writes
/// to a slow disk has the rest of the body in memory (Swift 6.3.1: half a gigabyte of one, measured). This queue makes the
/// session wait, and through the connection the server.
///
/// `@unchecked`, because Foundation's queue is, and a subclass has to say so again; it adds nothing that changes.
final class BoundedOperationQueue: OperationQueue, @unchecked Sendable {
    /// Of 16 kilobytes at most.
    private let places = DispatchSemaphore(value: 32)

    override init() {
        super.init()
        self.maxConcurrentOperationCount = 1
    }

    override func addOperation(_ block: @escaping @Sendable () -> Void) {
        let places = self.places
        places.wait()
        super.addOperation {
            block()
            places.signal()
        }
    }
}
