public import Foundation
public import MuxKit

/// A ``ScriptedFetch`` was called more often than its script has outcomes.
public struct ScriptEnded: Error, Sendable, Hashable, LocalizedError {
    /// The number of the call that found no outcome, beginning with 1.
    public var call: Int

    /// The script ended before call number `call`.
    public init(call: Int) { self.call = call }

    /// A text for the test's log.
    public var errorDescription: String? { "The script has no outcome for call \(self.call)." }
}

extension ScriptEnded: ConnectivityError {
    /// `false`: a test that asks more often than its script says is to fail, and is not helped by an older value or a retry.
    public var isConnectivityFailure: Bool { false }
}
