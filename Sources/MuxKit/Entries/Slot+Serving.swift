/// The occasions on which a request may get an entry.
@usableFromInline
enum ServingOccasion: Sendable {
    /// The arrival of the request, or the load of the entry for the waiting request.
    case arrival
    /// The end of the wait limit of the request.
    case waitLimit
    /// A silenceable failure of the fetch.
    case failure
}

extension Slot {
    /// The entry, fresh or stale, for a request, and whether a fetch is due or continues in the background;
    /// `nil` if the request has to wait, or fails.
    @inlinable
    func served(
        on occasion: ServingOccasion,
        at now: Moment,
        _ limits: Freshness.Limits,
        source: MuxEntry<Value>.Source = .memory
    ) -> (entry: MuxEntry<Value>, renews: Bool)? {
        guard let freshness = self.freshness(at: now, limits), let entry = self.snapshot(at: now, source: source) else {
            return nil
        }
        switch (freshness, occasion) {
        case (.fresh(let renews), .arrival): return (entry, renews)
        case (.fresh, .waitLimit): return (entry, true)
        case (.fresh, .failure): return (entry, false)
        case (.servable(let renews), .arrival):
            return (entry.served(because: renews ? .revalidating : .backingOff), renews)
        case (.servable, .waitLimit), (.fallback, .waitLimit):
            return (entry.served(because: .outOfPatience), true)
        case (.servable, .failure), (.fallback, .failure):
            return (entry.served(because: .fetchFailed), false)
        case (.fallback, .arrival), (.unusable, _): return nil
        }
    }
}
