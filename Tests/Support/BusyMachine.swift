extension Duration {
    /// A limit in real time, above the time of a busy machine for an operation that should take no time.
    ///
    /// For tests that a caller does not wait for an operation with a longer limit. The benchmarks measure
    /// speed.
    package static let busyMachine = Duration.seconds(45)
}
