/// An entry, fresh or stale, that a request gets.
@usableFromInline
package struct ServedEntry<Value: Sendable>: Sendable {
    @usableFromInline let entry: MuxEntry<Value>
    /// Whether a fetch starts or continues in the background.
    @usableFromInline let renews: Bool

    @inlinable
    init(_ entry: MuxEntry<Value>, renews: Bool) {
        self.entry = entry
        self.renews = renews
    }

    /// The moments at which a request may get an entry.
    @usableFromInline
    enum Occasion: Sendable {
        /// The arrival of the request, or the load of the entry for the waiting request.
        case arrival
        /// The end of the wait limit of the request.
        case waitLimit
        /// A silenceable failure of the fetch.
        case failure
    }
}

extension Slot {
    /// The entry for a request; `nil` if the request has to wait, or fails.
    ///
    /// Only this function decides about stale entries, with three exceptions: a request with
    /// ``RequestOptions/cacheOnly`` gets an entry of any freshness, a caller from before a fence gets the
    /// result of a fetch from before the fence, and callers that waited for another machine's fetch get the
    /// fetched entry.
    @inlinable
    func served(
        on occasion: ServedEntry<Value>.Occasion,
        at now: Moment,
        _ limits: Freshness.Limits,
        source: MuxEntry<Value>.Source = .memory
    ) -> ServedEntry<Value>? {
        guard let freshness = self.freshness(at: now, limits), let entry = self.snapshot(at: now, source: source) else {
            return nil
        }
        switch (freshness, occasion) {
        case (.fresh(let renews), .arrival): return ServedEntry(entry, renews: renews)
        case (.fresh, .waitLimit): return ServedEntry(entry, renews: true)
        case (.fresh, .failure): return ServedEntry(entry, renews: false)
        case (.servable(let renews), .arrival):
            return ServedEntry(entry.served(because: renews ? .revalidating : .backingOff), renews: renews)
        case (.servable, .waitLimit), (.fallback, .waitLimit):
            return ServedEntry(entry.served(because: .outOfPatience), renews: true)
        case (.servable, .failure), (.fallback, .failure):
            return ServedEntry(entry.served(because: .fetchFailed), renews: false)
        case (.fallback, .arrival), (.unusable, _): return nil
        }
    }
}
