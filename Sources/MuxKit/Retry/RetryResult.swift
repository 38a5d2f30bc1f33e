/// What an attempt leads to, where not only an error asks for another one.
package enum RetryResult<Output> {
    /// The work is done.
    case output(Output)

    /// Nothing failed, but another attempt is wanted.
    case retry
}

extension RetryResult: Sendable where Output: Sendable {}
