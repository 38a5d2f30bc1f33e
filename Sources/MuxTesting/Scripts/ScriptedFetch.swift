import Foundation
import MuxKit

/// A fetch with prepared outcomes and a count of its calls.
///
/// ```swift
/// let fetch = ScriptedFetch<Int>([.failure(Offline()), .value(5)])
/// let number = Multiplexer<Int>(cacheKey: "Number") { try await fetch() }
/// ```
///
/// **Cancellation.** Only a gate or a closure reacts to a cancellation.
public final class ScriptedFetch<Value: Sendable>: Sendable {
    /// The outcome of one call.
    public enum Outcome: Sendable {
        /// The call returns this value.
        case value(Value)

        /// The call throws this error.
        case failure(any Error)

        /// The call is held at this gate.
        case gated(Gate<Value>)

        /// The call returns or throws the result of this closure, which receives the call's number, counted
        /// from 1.
        case computed(@Sendable @concurrent (_ call: Int) async throws -> Value)
    }

    private struct State: Sendable {
        var running = 0
        var maximum = 0
    }

    private let script: [Outcome]
    private let thereafter: Outcome?
    private let state = Locked(State())
    private let started = Tally()
    private let ended = Tally()

    /// Makes a fetch with a script.
    ///
    /// - Parameters:
    ///   - script: The outcomes of the first calls, in order.
    ///   - thereafter: The outcome of every later call; if `nil`, later calls throw an error that names the
    ///     call.
    public init(_ script: [Outcome] = [], thereafter: Outcome? = nil) {
        self.script = script
        self.thereafter = thereafter
    }

    /// The number of started calls.
    public var callCount: Int { self.started.value }

    /// The number of ended calls.
    public var endedCount: Int { self.ended.value }

    /// The number of running calls.
    public var runningCount: Int { self.state.withLock { $0.running } }

    /// The greatest number of calls that ran at the same time.
    public var maximumConcurrency: Int { self.state.withLock { $0.maximum } }

    /// Returns or throws the next outcome.
    ///
    /// - Returns: The outcome's value.
    /// - Throws: The outcome's error, `CancellationError` from a gate, or, after the end of the script, an
    ///   error that names the call.
    public func callAsFunction() async throws -> Value {
        self.state.withLock { state in
            state.running += 1
            state.maximum = max(state.maximum, state.running)
        }
        defer {
            self.state.withLock { $0.running -= 1 }
            self.ended.add()
        }
        let call = self.started.add()
        switch call <= self.script.count ? self.script[call - 1] : self.thereafter {
        case .value(let value)?: return value
        case .failure(let error)?: throw error
        case .gated(let gate)?: return try await gate.pass()
        case .computed(let body)?: return try await body(call)
        case nil: throw ScriptEnded(call: call)
        }
    }

    /// Suspends until call number `call` has started; returns early if the task is cancelled.
    public func waitForCall(_ call: Int = 1) async {
        await self.started.reached(call)
    }

    /// Suspends until `count` calls have ended; returns early if the task is cancelled.
    public func waitForEnd(_ count: Int = 1) async {
        await self.ended.reached(count)
    }
}

/// A ``ScriptedFetch`` or ``ScriptedTransport`` was called more often than its script has outcomes.
package struct ScriptEnded: Error, Sendable, Hashable, LocalizedError, CustomStringConvertible {
    /// The number of the call without an outcome, counted from 1.
    package var call: Int

    package init(call: Int) { self.call = call }

    /// A text for the test's log.
    package var errorDescription: String? { self.description }

    /// A text for the test's log.
    package var description: String { "The script has no outcome for call \(self.call)." }
}

extension ScriptEnded: ConnectivityError {
    /// `false`, so that neither a stale value nor a retry hides the error.
    package var isConnectivityFailure: Bool { false }
}
