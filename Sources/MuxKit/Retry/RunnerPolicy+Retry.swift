extension RunnerPolicy {
    /// Does an update as often as ``retry`` says; throws what the last attempt threw.
    nonisolated(nonsending) func retrying<Output>(
        _ time: TimeSource,
        _ update: () async throws -> Output
    ) async throws -> Output {
        guard let retry = self.retry else { return try await update() }
        return try await RetryLoop(retry, time: time).runPlainly { _ in try await update() }
    }
}
