/// A lane for what touches a token store, which knows whether the present task is in it already.
///
/// A store may call back, such as to sign out because it is broken; waiting for itself would take for ever, and is an error.
final class StoreLane: Sendable {
    private enum Use {
        /// The use of a lane that the present task is part of.
        @TaskLocal static var current: UInt64?
        static let last = Guarded<UInt64>(0)
    }

    private let lane = SerialLane()
    private let present = Guarded<UInt64?>(nil)

    /// Whether the present task is part of an operation that has the lane.
    var isHeldByCaller: Bool {
        guard let use = Use.current else { return false }
        return self.present.withLock { $0 == use }
    }

    /// Runs `operation` when all that came before have ended.
    ///
    /// - Throws: ``RunnerError/wouldDeadlock`` if the present task is part of one of them; or what `operation` threw.
    nonisolated(nonsending) func run<Success: Sendable>(
        _ operation: () async throws -> Success
    ) async throws -> Success {
        guard !self.isHeldByCaller else { throw RunnerError.wouldDeadlock }
        return try await self.lane.run {
            let use = Use.last.withLock { last in
                last &+= 1
                return last
            }
            self.present.withLock { $0 = use }
            defer { self.present.withLock { $0 = nil } }
            return try await Use.$current.withValue(use) { try await operation() }
        }
    }
}
