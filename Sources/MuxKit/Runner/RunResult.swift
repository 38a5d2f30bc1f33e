/// What a task tells the runner that gave it a dependency.
public enum RunResult<Output: Sendable>: Sendable {
    /// The task succeeded; a success is not taken back, whatever happens to others.
    case output(Output)

    /// The dependency is no good any more: renew it and run the task again.
    case badDependency
}

extension RunResult: Equatable where Output: Equatable {}
