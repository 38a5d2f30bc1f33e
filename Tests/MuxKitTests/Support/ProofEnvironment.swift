import Foundation

/// How long the proofs run: as long as fits into a run of the tests, or as the environment says.
enum ProofEnvironment {
    private static let environment = ProcessInfo.processInfo.environment

    /// A number from the environment, at least 0.
    static func number(_ name: String) -> Int? { self.environment[name].flatMap(Int.init).map { max(0, $0) } }

    /// How long the sequences of an exploration are.
    static func depth(_ usual: Int) -> Int { usual + (self.number("MUX_DEPTH") ?? 0) }

    /// How many of something, multiplied by what the environment says.
    static func count(_ usual: Int, _ name: String) -> Int { usual * max(1, self.number(name) ?? 1) }
}
