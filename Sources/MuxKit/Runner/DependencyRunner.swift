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
