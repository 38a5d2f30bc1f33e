/// Something that can be checked when nothing is under way.
package protocol Inspectable: AnyObject, Sendable {
    /// What should not be so, in words; nothing if all is well.
    func faults() async -> [String]
}

/// Hears of what is made, to check it in the end: for tests.
package protocol Inspector: Sendable {
    /// Such a thing was made; it is not kept alive.
    func note(_ object: any Inspectable)

    /// Such a thing went, with this wrong about it.
    func note(faults: [String])
}

/// Who wants to hear of what the present task makes.
package enum Inspection {
    /// The inspector; `nil` outside tests.
    @TaskLocal package static var inspector: (any Inspector)?
}

/// State that knows what contradicts its own rules.
package protocol SelfChecking {
    /// What is wrong; `nil` if nothing is.
    func violation() -> String?

    /// What is left in the state when it is unreachable, and should not be; `nil` if nothing is.
    func leftover() -> String?
}

extension SelfChecking {
    package func leftover() -> String? { nil }
}
