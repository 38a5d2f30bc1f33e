import Foundation

/// The length of the proofs: by default short enough for a run of the tests; the environment can raise it.
package enum ProofEnvironment {
    private static let environment = ProcessInfo.processInfo.environment

    /// A number from the environment, at least 0.
    package static func number(_ name: String) -> Int? { self.environment[name].flatMap(Int.init).map { max(0, $0) } }

    /// The length of the sequences of an exploration, raised by `MUX_DEPTH`.
    package static func depth(_ usual: Int) -> Int { usual + (self.number("MUX_DEPTH") ?? 0) }

    /// A count, multiplied by the environment's number.
    package static func count(_ usual: Int, _ name: String) -> Int { usual * max(1, self.number(name) ?? 1) }
}
