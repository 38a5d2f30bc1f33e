/// Runs tasks with a dependency that can become invalid, with one renewal for all tasks.
///
/// ``DependentRunner`` and ``OAuthDependentRunner`` conform. ``Multiplexer`` and ``MultiplexerMap`` accept a
/// runner for fetches with a token.
public protocol DependencyRunner<Dependency>: Sendable {
    /// The type of the dependency of the tasks.
    associatedtype Dependency: Sendable

    /// The repository of the dependency's session; `nil` without a session.
    ///
    /// This is the default repository of multiplexers with this runner.
    var sessionRepository: MuxRepository? { get }

    /// Runs `task` with the dependency; after a refusal, runs `task` again with a new dependency.
    ///
    /// - Parameter task: Does the work. A thrown ``BadDependencyError`` is a refusal, too.
    /// - Returns: The output of the task.
    /// - Throws: The error of the task, or the reason for the lack of an acceptable dependency.
    nonisolated(nonsending) func run<Output: Sendable>(
        _ task: (Dependency) async throws -> RunResult<Output>
    ) async throws -> Output
}

extension DependencyRunner {
    /// `nil`: the dependency belongs to no session.
    public var sessionRepository: MuxRepository? { nil }
}

/// A task with a dependency, and the update of the dependency, as a single value.
///
/// ```swift
/// struct LoadPage: DependentOperation {
///     func run(_ token: Token, _ context: RunContext) async throws -> RunResult<Page> { … }
///     func refresh(_ refused: Token?, _ context: RunContext) async throws -> UpdateResult<Token> { … }
/// }
/// let page = try await runner.run(LoadPage())
/// ```
public protocol DependentOperation<Dependency, Output> {
    /// The type of the dependency.
    associatedtype Dependency: Sendable
    /// The type of the output.
    associatedtype Output: Sendable

    /// The time-out of the call; see ``DependentRunner/run(timeout:_:update:)``.
    var timeout: Duration? { get }

    /// Does the work.
    ///
    /// - Returns: The output, or a refusal of the dependency.
    /// - Throws: An error for the caller; a ``BadDependencyError`` is a refusal.
    nonisolated(nonsending) func run(_ dependency: Dependency, _ context: RunContext) async throws -> RunResult<Output>

    /// Makes a dependency if this call starts the update.
    ///
    /// - Returns: The dependency, or the refusal of the update.
    /// - Throws: Any other error.
    nonisolated(nonsending) func refresh(
        _ refused: Dependency?,
        _ context: RunContext
    ) async throws -> UpdateResult<Dependency>
}

extension DependentOperation {
    /// No limit.
    public var timeout: Duration? { nil }
}
