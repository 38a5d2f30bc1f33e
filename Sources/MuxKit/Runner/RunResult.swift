/// What a task tells the runner that gave it a dependency.
public enum RunResult<Output: Sendable>: Sendable {
    /// The task succeeded; a success is not taken back, whatever happens to others.
    case output(Output)

    /// The dependency is no good any more: renew it and run the task again.
    case badDependency
}

extension RunResult {
    /// The same result with another output.
    ///
    /// - Parameter transform: Makes the other output.
    /// - Returns: The transformed output, or ``badDependency`` as it was.
    /// - Throws: What `transform` threw.
    public func map<Other: Sendable, Failure: Error>(
        _ transform: (Output) throws(Failure) -> Other
    ) throws(Failure) -> RunResult<Other> {
        switch self {
        case .output(let output): .output(try transform(output))
        case .badDependency: .badDependency
        }
    }

    /// The result of what comes next, if there is an output.
    ///
    /// - Parameter transform: Does what comes next, which may find the dependency bad.
    /// - Returns: What `transform` returned, or ``badDependency`` as it was.
    /// - Throws: What `transform` threw.
    public func flatMap<Other: Sendable, Failure: Error>(
        _ transform: (Output) throws(Failure) -> RunResult<Other>
    ) throws(Failure) -> RunResult<Other> {
        switch self {
        case .output(let output): try transform(output)
        case .badDependency: .badDependency
        }
    }
}

extension RunResult: Equatable where Output: Equatable {}
