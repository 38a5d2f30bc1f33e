/// How far a download is.
public struct MediaProgress: Sendable, Hashable {
    /// How many bytes are on disk.
    public var received: Int64

    /// How many there will be; `nil` while the server has not said.
    public var total: Int64?

    /// Whether the file is complete.
    public var isComplete: Bool

    /// Describes a state.
    public init(received: Int64 = 0, total: Int64? = nil, isComplete: Bool = false) {
        self.received = received
        self.total = total
        self.isComplete = isComplete
    }

    /// From 0 to 1; `nil` while nobody knows how much there will be.
    public var fraction: Double? {
        if self.isComplete { return 1 }
        guard let total, total > 0 else { return nil }
        return min(1, Double(self.received) / Double(total))
    }

    /// Whether somebody who saw `former` sees a step forward.
    func isBeyond(_ former: MediaProgress) -> Bool {
        if former.isComplete { return false }
        if self.isComplete { return true }
        guard let before = former.fraction else { return self.fraction != nil || self.received > former.received }
        return self.fraction.map { $0 > before } ?? false
    }
}
