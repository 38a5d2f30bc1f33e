/// The invalidations that a shared store has not confirmed yet: a pure state machine.
///
/// If the number of invalidations exceeds ``limit`` during an outage, or while scopes are refused,
/// invalidations of domains replace the invalidations of entries, beginning with the domain with the most
/// entries. If the number still exceeds the limit, an invalidation of everything replaces all invalidations.
package struct PendingInvalidations: Sendable {
    /// A pending scope, with the number of its last addition or refusal.
    package struct Request: Sendable {
        package let scope: MuxShared.Scope
        fileprivate let number: UInt64
    }

    /// The maximum number of pending invalidations during an outage, or while scopes are refused.
    package static let limit = 100_000

    /// The maximum number of scopes in a call of the store.
    package static let batchSize = 1_000

    private var numbers: [MuxShared.Scope: UInt64] = [:]
    /// The pending scopes that the store has refused.
    ///
    /// A refused scope is sent again in a call without other scopes. If the store accepts such a scope, the
    /// next batches contain all refused scopes again.
    private var refused: Set<MuxShared.Scope> = []
    private var lastNumber: UInt64 = 0

    package init() {}

    package var count: Int { self.numbers.count }

    /// Whether the store has refused a pending scope.
    package var hasRefused: Bool { !self.refused.isEmpty }

    /// Whether any of the scopes is pending.
    package func contains(_ scopes: [MuxShared.Scope]) -> Bool {
        !self.numbers.isEmpty && scopes.contains { self.numbers[$0] != nil }
    }

    /// Whether the store refused any of the scopes.
    package func isRefused(_ scopes: [MuxShared.Scope]) -> Bool {
        !self.refused.isEmpty && scopes.contains { self.refused.contains($0) }
    }

    /// Adds scopes.
    ///
    /// A scope that is being sent gets a new number, so the confirmation of the batch leaves the scope
    /// pending. At the limit, a pending scope that contains a new scope stands for the new
    /// scope.
    package mutating func add(_ scopes: [MuxShared.Scope], isOutage: Bool) {
        self.lastNumber += 1
        // Refused scopes stay pending, as all scopes do during an outage.
        let isLimited = isOutage || self.hasRefused
        for scope in scopes {
            let isFull = isLimited && self.numbers.count >= Self.limit && self.numbers[scope] == nil
            let scope = isFull ? self.pendingScope(around: scope) ?? scope : scope
            self.numbers[scope] = self.lastNumber
            self.refused.remove(scope)
            if isLimited, self.numbers.count > Self.limit { self.fold() }
        }
    }

    /// A pending scope that contains `scope`; `nil` without such a scope.
    private func pendingScope(around scope: MuxShared.Scope) -> MuxShared.Scope? {
        if self.numbers[.everything] != nil { return .everything }
        guard case .entry(let name) = scope, self.numbers[.domain(name.domain)] != nil else { return nil }
        return .domain(name.domain)
    }

    /// Replaces invalidations of entries by invalidations of domains or of everything, down to ``limit``.
    private mutating func fold() {
        var entries: [MuxShared.Scope: [MuxShared.Scope]] = [:]
        for scope in self.numbers.keys {
            if case .entry(let name) = scope { entries[.domain(name.domain), default: []].append(scope) }
        }
        for (domain, scopes) in entries.sorted(by: { $0.value.count > $1.value.count }) {
            guard self.numbers.count > Self.limit else { break }
            guard scopes.count > 1 || self.numbers[domain] != nil else { continue }
            for scope in scopes { self.numbers[scope] = nil }
            self.numbers[domain] = self.lastNumber
            self.refused.subtract(scopes)
        }
        guard self.numbers.count > Self.limit else { return }
        self.numbers = [.everything: self.lastNumber]
        self.refused = []
    }

    /// The pending requests, except refused requests, in batches.
    ///
    /// - Parameter first: The scopes to send now: a single batch begins with these scopes, and has other
    ///   pending scopes up to ``batchSize``; `nil` for all batches.
    /// - Returns: The batches; empty if each scope of `first` is refused or not pending.
    package func batches(first: [MuxShared.Scope]? = nil) -> [ArraySlice<Request>] {
        var requests: [Request] = []
        for scope in first ?? [] {
            if let number = self.numbers[scope], !self.refused.contains(scope) {
                requests.append(Request(scope: scope, number: number))
            }
        }
        guard first == nil || !requests.isEmpty else { return [] }
        let urgent = Set(requests.map(\.scope))
        for (scope, number) in self.numbers where !self.refused.contains(scope) && !urgent.contains(scope) {
            if first != nil, requests.count >= Self.batchSize { break }
            requests.append(Request(scope: scope, number: number))
        }
        return stride(from: 0, to: requests.count, by: Self.batchSize).map { start in
            requests[start..<min(start + Self.batchSize, requests.count)]
        }
    }

    /// The request that the store refused least recently; `nil` without a refused request.
    package func refusedRequest() -> Request? {
        let requests = self.refused.lazy.compactMap { scope in
            self.numbers[scope].map { Request(scope: scope, number: $0) }
        }
        return requests.min { $0.number < $1.number }
    }

    /// Removes the requests of a batch that the store has confirmed.
    package mutating func confirmed(_ requests: ArraySlice<Request>) {
        for request in requests where self.numbers[request.scope] == request.number {
            self.numbers[request.scope] = nil
            // The store accepts a refused scope: the permissions may have changed, so the next batch contains
            // all refused scopes again.
            if self.refused.remove(request.scope) != nil { self.refused = [] }
        }
    }

    /// Marks a scope as refused by the store, unless the scope was added again.
    ///
    /// - Returns: Whether the scope is newly refused; `false` after a repeated refusal.
    package mutating func refused(_ request: Request) -> Bool {
        guard self.numbers[request.scope] == request.number else { return false }
        self.lastNumber += 1
        self.numbers[request.scope] = self.lastNumber
        return self.refused.insert(request.scope).inserted
    }
}
