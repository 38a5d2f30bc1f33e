/// Runs tasks with a dependency that can become invalid, and renews it once for all of them.
///
/// ``DependentRunner`` and ``OAuthDependentRunner`` are such runners; ``Multiplexer`` and ``MultiplexerMap`` take one for
/// fetches that need a token.
public protocol DependencyRunner<Dependency>: Sendable {
    /// What tasks need.
    associatedtype Dependency: Sendable

    /// The repository whose session the dependency belongs to; `nil` if it belongs to none.
    ///
    /// It is the default repository of multiplexers that fetch with the runner.
    var sessionRepository: MuxRepository? { get }

    /// Runs `task` with the dependency, and again with a new one if the task refuses it.
    ///
    /// - Parameter task: Does the work. A thrown ``BadDependencyError`` is a refusal, too.
    /// - Returns: What the task returned.
    /// - Throws: What the task threw, or why there is no dependency that the task accepts.
    nonisolated(nonsending) func run<Output: Sendable>(
        _ task: (Dependency) async throws -> RunResult<Output>
    ) async throws -> Output
}

extension DependencyRunner {
    /// The dependency belongs to no session.
    public var sessionRepository: MuxRepository? { nil }
}

/// A task with a dependency, and the update that makes the dependency, as one value.
///
/// ```swift
/// struct LoadPage: DependentOperation {
///     func run(_ token: Token, _ context: RunContext) async throws -> RunResult<Page> { … }
///     func refresh(_ refused: Token?, _ context: RunContext) async throws -> UpdateResult<Token> { … }
/// }
/// let page = try await runner.run(LoadPage())
/// ```
public protocol DependentOperation<Dependency, Output> {
    /// What the operation needs.
    associatedtype Dependency: Sendable
    /// What the operation returns.
    associatedtype Output: Sendable

    /// How long the call may take; see ``DependentRunner/run(timeout:_:update:)``.
    var timeout: Duration? { get }

    /// Does the work.
    ///
    /// - Returns: The output, or that the dependency is refused.
    /// - Throws: What is passed on to the caller; a ``BadDependencyError`` is a refusal.
    nonisolated(nonsending) func run(_ dependency: Dependency, _ context: RunContext) async throws -> RunResult<Output>

    /// Makes a dependency, if this call is the first to need one.
    ///
    /// - Returns: The dependency, or that the update was refused.
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
