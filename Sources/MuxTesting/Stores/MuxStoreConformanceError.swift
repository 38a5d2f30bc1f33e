public import Foundation

/// A store broke one of the rules of `MuxStore`.
public struct MuxStoreConformanceError: Error, LocalizedError, Sendable, Hashable {
    /// The rule, as a sentence.
    public var rule: String

    /// What the store did instead.
    public var detail: String

    /// Says which rule was broken, and how.
    public init(rule: String, detail: String) {
        self.rule = rule
        self.detail = detail
    }

    /// The rule and what happened instead.
    public var errorDescription: String? { "\(self.rule): \(self.detail)" }
}
