/// Runs tasks with a dependency that can turn bad, and renews it for all of them at once.
///
/// ``DependentRunner`` and ``OAuthDependentRunner`` are such runners; ``Multiplexer`` and ``MultiplexerMap`` take one for
/// fetches that need a token.
public protocol DependencyRunner<Dependency>: Sendable {
    /// What tasks need.
    associatedtype Dependency: Sendable

    /// The repository whose session the dependency belongs to; `nil` if it belongs to none.
    ///
    /// Multiplexers that fetch with the runner belong to it, unless told otherwise.
    var sessionRepository: MuxRepository? { get }

    /// Runs `task` with the dependency; again, with a new one, if the task reports that it is bad.
    ///
    /// - Parameter task: Does the work. A thrown ``BadDependencyError`` is a report, too.
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

/// Something to do with a dependency, and how to make one, as one object.
///
/// ```swift
/// struct LoadPage: DependentOperation {
///     func run(_ token: Token, _ context: RunContext) async throws -> RunResult<Page> { … }
///     func refresh(_ refused: Token?, _ context: RunContext) async throws -> UpdateResult<Token> { … }
/// }
/// let page = try await runner.run(LoadPage())
/// ```
public protocol DependentOperation<Dependency, Output> {
    /// What is needed.
    associatedtype Dependency: Sendable
    /// What comes of it.
    associatedtype Output: Sendable

    /// How long the call may take; see ``DependentRunner/run(timeout:_:update:)``.
    var timeout: Duration? { get }

    /// Does the work.
    ///
    /// - Returns: The output, or that the dependency is no good.
    /// - Throws: What is passed on to the caller; a ``BadDependencyError`` is a report that the dependency is no good.
    nonisolated(nonsending) func run(_ dependency: Dependency, _ context: RunContext) async throws -> RunResult<Output>

    /// Makes a dependency if it falls to this call.
    ///
    /// - Returns: The dependency, or that it was refused.
    /// - Throws: Anything else that went wrong.
    nonisolated(nonsending) func refresh(
        _ refused: Dependency?,
        _ context: RunContext
    ) async throws -> UpdateResult<Dependency>
}

extension DependentOperation {
    /// As long as it likes.
    public var timeout: Duration? { nil }
}
