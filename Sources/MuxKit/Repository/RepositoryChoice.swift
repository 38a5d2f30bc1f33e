/// Which repository a multiplexer belongs to whose fetch needs a dependency: that of the dependency, unless told otherwise.
package struct RepositoryChoice: Sendable {
    /// Where the multiplexer takes part in saves and sign-outs.
    package let repository: MuxRepository
    /// The dependency's repository, if it is another one: a sign-out of one would leave what the other has.
    private let other: MuxRepository?
    private let isReported = Locked(false)

    /// Chooses `given`, or else the one of the dependency, or else the shared one.
    package init(given: MuxRepository?, ofDependency dependency: MuxRepository?) {
        let repository = given ?? dependency ?? .shared
        self.repository = repository
        self.other = dependency.flatMap { $0 === repository ? nil : $0 }
    }

    /// Whether the dependency belongs to the session of another repository.
    package var isMismatch: Bool { self.other != nil }

    /// Refuses a request if the dependency belongs to the session of another repository; observers hear of it once.
    ///
    /// - Throws: ``MuxError/repositoryMismatch``.
    package func check(_ cacheKey: String?) throws {
        guard let other else { return }
        let isFirst = self.isReported.withLock { isReported in
            defer { isReported = true }
            return !isReported
        }
        if isFirst {
            for repository in [self.repository, other] {
                repository.observer?.tell(MuxEvent(.repositoryMismatch, cacheKey: cacheKey))
            }
        }
        throw MuxError.repositoryMismatch
    }
}
