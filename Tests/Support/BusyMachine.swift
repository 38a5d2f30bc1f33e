extension Duration {
    /// More real time than a busy machine takes for what should take none.
    ///
    /// For tests of what a caller must not wait for, whose other limits are longer. That something is quick is shown by the benchmarks.
    package static let busyMachine = Duration.seconds(45)
}
