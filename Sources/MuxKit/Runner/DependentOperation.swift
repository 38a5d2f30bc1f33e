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
