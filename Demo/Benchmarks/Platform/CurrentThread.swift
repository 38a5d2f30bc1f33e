import Foundation

/// The calling thread.
enum CurrentThread {
    /// A number below 16 that few other threads share.
    static var number: Int {
        #if canImport(Darwin)
        let identity = unsafe UInt(bitPattern: pthread_self())
        #else
        let identity = UInt(pthread_self())
        #endif
        return Int((identity >> 12 ^ identity >> 20) & 15)
    }
}
