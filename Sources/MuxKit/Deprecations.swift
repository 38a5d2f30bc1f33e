// Names of the older packages AsyncMux, Junction and RetryingOperation, which this package replaces. A
// declaration with the same name in a client's module takes precedence; for this reason, functions are
// `@_disfavoredOverload`.

/// Junction's name of ``DependentRunner``.
@available(*, deprecated, renamed: "DependentRunner")
public typealias Dependency<Value: Sendable> = DependentRunner<Value>

/// The name of ``MultiplexerMap`` with `onFetchMany:` in the callback-based predecessor of AsyncMux.
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
    /// Junction's name of the default policy of a runner.
    @available(*, deprecated, renamed: "init()")
    public static var `default`: RunnerPolicy { .init() }
}

extension DependentRunner {
    /// Junction's label of `policy`.
    @available(*, deprecated, renamed: "init(policy:)")
    public init(configuration: RunnerPolicy) { self.init(policy: configuration) }
}

extension Task where Success == Never, Failure == Never {
    /// ``inject(dependency:_:refresh:)`` with closures of two arguments, as in Junction, and a refresh
    /// without refusals.
    ///
    /// - Parameters:
    ///   - dependency: The runner of the dependency.
    ///   - operation: Does the work, on the caller's executor.
    ///   - refresh: Makes a dependency if this call starts the update; receives the dependency to replace,
    ///     `nil` if absent.
    /// - Returns: The output of the operation.
    /// - Throws: The error of the operation or the refresh, ``RunnerError``, or `CancellationError`.
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
    ///   - policy: The number of attempts and the delays.
    ///   - operation: The work, on the caller's executor.
    /// - Returns: The output of the operation.
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
