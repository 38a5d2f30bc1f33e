/// Runs tasks with a dependency that can become invalid; all tasks share one renewal.
///
/// ``DependentRunner`` and ``OAuthDependentRunner`` conform. ``Multiplexer`` and ``MultiplexerMap`` accept a
/// runner for fetches with a token.
public protocol DependencyRunner<Dependency>: Sendable {
    /// The type of the dependency of the tasks.
    associatedtype Dependency: Sendable

    /// The repository of the dependency's session; `nil` if the dependency belongs to no session.
    ///
    /// This is the default repository of multiplexers with this runner.
    var sessionRepository: MuxRepository? { get }

    /// Runs `task` with the dependency; after a refusal, runs `task` again with a new dependency.
    ///
    /// - Parameter task: Does the work; refuses the dependency with the result ``RunResult/badDependency`` or
    ///   a thrown ``BadDependencyError``.
    /// - Returns: The output of the task.
    /// - Throws: The error of the task, or the reason why the runner has no acceptable dependency.
    nonisolated(nonsending) func run<Output: Sendable>(
        _ task: (Dependency) async throws -> RunResult<Output>
    ) async throws -> Output
}

extension DependencyRunner {
    /// `nil`: the dependency belongs to no session.
    public var sessionRepository: MuxRepository? { nil }

    /// Runs `task` with the dependency; after a thrown refusal, runs `task` again with a new dependency.
    ///
    /// ```swift
    /// let user = try await tokens.run { token in try await api.user(token) }
    /// ```
    ///
    /// - Parameter task: Does the work and returns the output; throws a ``BadDependencyError`` to refuse the
    ///   dependency.
    /// - Returns: The output of the task.
    /// - Throws: The error of the task, or the reason why the runner has no acceptable dependency.
    @inlinable
    @_disfavoredOverload  // A closure with the result type `RunResult` selects the other overload.
    public nonisolated(nonsending) func run<Output: Sendable>(
        _ task: (Dependency) async throws -> Output
    ) async throws -> Output {
        try await self.run { (dependency) async throws -> RunResult<Output> in .output(try await task(dependency)) }
    }
}
