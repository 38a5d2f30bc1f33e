import Foundation

/// The thread that calls.
enum CurrentThread {
    /// A number that few other threads have, below 16.
    static var number: Int {
        #if canImport(Darwin)
        let identity = unsafe UInt(bitPattern: pthread_self())
        #else
        let identity = UInt(pthread_self())
        #endif
        return Int((identity >> 12 ^ identity >> 20) & 15)
    }
}
