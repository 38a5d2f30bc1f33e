import Foundation
import MuxTesting

/// The time of a test.
enum CacheSuiteTime: Sendable {
    case virtual(VirtualClock)
    /// The time of this machine, for a cache in another process.
    case real

    private static let start = Date(timeIntervalSince1970: 1_782_864_000)

    var now: Date {
        switch self {
        case .virtual(let clock):
            Self.start.addingTimeInterval(TimeInterval(clock.now.offset.components.seconds))
        case .real: Date()
        }
    }

    /// Lets the server's pause pass.
    func pass(_ seconds: Int) {
        switch self {
        case .virtual(let clock): clock.advance(by: .seconds(seconds))
        case .real: Thread.sleep(forTimeInterval: TimeInterval(seconds))
        }
    }

    /// Lets the client's pause pass.
    func wait(_ seconds: Int) async throws {
        switch self {
        case .virtual(let clock): clock.advance(by: .seconds(seconds))
        case .real: try await Task.sleep(for: .seconds(seconds))
        }
    }
}
