/// An object whose invariants can be checked while it is idle.
package protocol Inspectable: AnyObject, Sendable {
    /// Descriptions of violated invariants; empty if there are none.
    func faults() async -> [String]
}

/// Receives inspectable objects and their faults, for tests.
package protocol Inspector: Sendable {
    /// Called for a new object, which must be held weakly.
    func note(_ object: any Inspectable)

    /// Called when an object is released, with its violated invariants, if any.
    func note(faults: [String])
}

/// The inspector of objects that the current task makes.
package enum Inspection {
    /// The inspector; `nil` outside tests.
    @TaskLocal package static var inspector: (any Inspector)?
}

/// State that can check its invariants.
package protocol SelfChecking {
    /// A violated invariant; `nil` if there is none.
    func violation() -> String?

    /// State that should have been removed before the owner was released; `nil` if there is none.
    func leftover() -> String?
}

extension SelfChecking {
    package func violation() -> String? { nil }
    package func leftover() -> String? { nil }
}
