/// An object with invariants that can be checked while the object is idle.
package protocol Inspectable: AnyObject, Sendable {
    /// Descriptions of violated invariants; empty without violations.
    func faults() async -> [String]
}

/// Receives inspectable objects and their faults, for tests.
package protocol Inspector: Sendable {
    /// Called for a new object; the inspector must hold the object weakly.
    func note(_ object: any Inspectable)

    /// Called at the release of some objects, with the violated invariants, if any.
    func note(faults: [String])
}

/// The inspector of objects that the current task makes.
package enum Inspection {
    /// The inspector; `nil` outside tests.
    @TaskLocal package static var inspector: (any Inspector)?
}

/// State that can check its invariants.
package protocol SelfChecking {
    /// A violated invariant; `nil` without a violation.
    func violation() -> String?

    /// State that should have been removed before the owner's release; `nil` without such state.
    func leftover() -> String?
}

extension SelfChecking {
    package func violation() -> String? { nil }
    package func leftover() -> String? { nil }
}
