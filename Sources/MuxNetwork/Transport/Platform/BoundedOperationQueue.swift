import Dispatch
package import Foundation

/// Delivers to the delegate of a `URLSession` no more calls than it keeps up with.
///
/// On Linux a session reads from the network as fast as it can and queues a call for each piece, so a delegate that writes
/// to a slow disk has the rest of the body in memory (Swift 6.3.1: half a gigabyte of one, measured). This queue makes the
/// session wait, and through the connection the server. What is no delegate call comes as an `Operation`, and never waits.
///
/// `@unchecked`, because Foundation's queue is, and a subclass has to say so again; it adds nothing that changes.
package final class BoundedOperationQueue: OperationQueue, @unchecked Sendable {
    /// Of 16 kilobytes at most.
    private let places = DispatchSemaphore(value: 32)
    /// With a thread of its own: those of the pool may all wait for the session, which waits for the delegate.
    private let queue = DispatchQueue(label: "mux.http.delegate")

    package override init() {
        super.init()
        self.maxConcurrentOperationCount = 1
        self.underlyingQueue = self.queue
    }

    package override func addOperation(_ block: @escaping @Sendable () -> Void) {
        let places = self.places
        places.wait()
        super.addOperation {
            block()
            places.signal()
        }
    }
}
