// Names of the older systems that this package replaces (AsyncMux, Junction, RetryingOperation). A declaration of the same
// name in a client's own module takes precedence over these; functions are `@_disfavoredOverload` for that.

/// Junction's name of ``DependentRunner``.
@available(*, deprecated, renamed: "DependentRunner")
public typealias Dependency<Value: Sendable> = DependentRunner<Value>

/// The name that ``MultiplexerMap`` with `onFetchMany:` had in the callback-based predecessor of AsyncMux.
@available(*, deprecated, renamed: "MultiplexerMap", message: "Use MultiplexerMap(onFetchMany:)")
public typealias MultiRequester<Key: Hashable & Sendable, Value: Sendable> = MultiplexerMap<Key, Value>

/// AsyncMux's spelling of ``SilenceableError``.
@available(*, deprecated, renamed: "SilenceableError")
public typealias SilencableError = SilenceableError

extension RunResult {
    /// Junction's name of ``output(_:)``.
    @available(*, deprecated, renamed: "output(_:)")
    public static func success(_ output: Output) -> RunResult { .output(output) }

    /// Junction's name of ``badDependency``.
    @available(*, deprecated, renamed: "badDependency")
    public static var dependencyRequiresRefresh: RunResult { .badDependency }
}

extension RunnerPolicy {
    /// Junction's name of the policy that a runner has unless it is given one.
    @available(*, deprecated, renamed: "init()")
    public static var `default`: RunnerPolicy { .init() }
}

extension DependentRunner {
    /// Junction's label of `policy`.
    @available(*, deprecated, renamed: "init(policy:)")
    public init(configuration: RunnerPolicy) { self.init(policy: configuration) }
}

extension Task where Success == Never, Failure == Never {
    /// ``inject(dependency:_:refresh:)`` with the second arguments that Junction's closures have, and a refresh that cannot refuse.
    ///
    /// - Parameters:
    ///   - dependency: The runner that holds the dependency.
    ///   - operation: Does the work, on the caller's executor.
    ///   - refresh: Makes a dependency if it falls to this call; receives the one that was refused, `nil` if there is none.
    /// - Returns: What the operation returned.
    /// - Throws: What the operation or the refresh threw, ``RunnerError``, or `CancellationError`.
    @_disfavoredOverload
    @available(*, deprecated, message: "Use inject(dependency:_:refresh:) with closures of one argument")
    public static nonisolated(nonsending) func inject<Value: Sendable, Output: Sendable>(
        dependency: DependentRunner<Value>,
        _ operation: (Value, RunContext) async throws -> RunResult<Output>,
        refresh: (Value?, RunContext) async throws -> Value
    ) async throws -> Output {
        try await dependency.run(operation) { refused, context in
            .updatedDependency(try await refresh(refused, context))
        }
    }

    /// ``retry(_:on:wakingOn:providers:while:log:clock:operation:)`` as a function of `Task`.
    ///
    /// - Parameters:
    ///   - policy: How often, and how long in between.
    ///   - operation: The work, on the caller's executor.
    /// - Returns: What the operation returned.
    /// - Throws: ``RetryError``, or `CancellationError`.
    @_disfavoredOverload
    @available(*, deprecated, message: "Use the function retry(_:operation:)")
    public static nonisolated(nonsending) func retry<Output>(
        _ policy: RetryPolicy = .web,
        operation: () async throws -> Output
    ) async throws -> Output {
        try await MuxKit.retry(policy) { _ in try await operation() }
    }
}
