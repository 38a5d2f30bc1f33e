/// The invalidations that a shared store has not confirmed: a pure state machine.
///
/// Invalidations keep their names. Only if more than ``limit`` wait during an outage, entries are replaced by their domain, the domain
/// with the most entries first; everything is invalidated only if tags and domains alone exceed the limit.
package struct PendingInvalidations: Sendable {
    /// A scope, with the number of its last request.
    package struct Request: Sendable {
        package let scope: MuxShared.Scope
        fileprivate let number: UInt64
    }

    /// The greatest number of invalidations that wait during an outage, about 20 MB.
    package static let limit = 100_000

    /// The greatest number of scopes in one call of the store.
    package static let batchSize = 1_000

    private var numbers: [MuxShared.Scope: UInt64] = [:]
    /// The pending scopes that the store refused: tried again one by one, apart from the others.
    private var refused: Set<MuxShared.Scope> = []
    private var lastNumber: UInt64 = 0

    package init() {}

    package var count: Int { self.numbers.count }

    /// Whether one of the scopes is pending.
    package func contains(_ scopes: [MuxShared.Scope]) -> Bool {
        !self.numbers.isEmpty && scopes.contains { self.numbers[$0] != nil }
    }

    /// Whether the store refused one of the scopes.
    package func isRefused(_ scopes: [MuxShared.Scope]) -> Bool {
        !self.refused.isEmpty && scopes.contains { self.refused.contains($0) }
    }

    /// Adds scopes; those that are being sent are sent again.
    package mutating func add(_ scopes: [MuxShared.Scope], isOutage: Bool) {
        self.lastNumber += 1
        for scope in scopes {
            let isFull = isOutage && self.numbers.count >= Self.limit && self.numbers[scope] == nil
            let scope = isFull ? self.pendingScope(around: scope) ?? scope : scope
            self.numbers[scope] = self.lastNumber
            self.refused.remove(scope)
            if isOutage, self.numbers.count > Self.limit { self.fold() }
        }
    }

    /// A pending scope that includes another one.
    private func pendingScope(around scope: MuxShared.Scope) -> MuxShared.Scope? {
        if self.numbers[.everything] != nil { return .everything }
        guard case .entry(let name) = scope, self.numbers[.domain(name.domain)] != nil else { return nil }
        return .domain(name.domain)
    }

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

    /// The requests to send, but those that the store has refused.
    ///
    /// - Parameter first: Scopes of the first batch, which is the only one then; `nil` for all.
    /// - Returns: The requests, in batches.
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

    /// The refused request that was tried least recently.
    package func refusedRequest() -> Request? {
        let requests = self.refused.lazy.compactMap { scope in
            self.numbers[scope].map { Request(scope: scope, number: $0) }
        }
        return requests.min { $0.number < $1.number }
    }

    /// The store has invalidated these scopes.
    package mutating func confirmed(_ requests: ArraySlice<Request>) {
        for request in requests where self.numbers[request.scope] == request.number {
            self.numbers[request.scope] = nil
            // The store may have been set up meanwhile: the other refused scopes go with the next batch.
            if self.refused.remove(request.scope) != nil { self.refused = [] }
        }
    }

    /// The store has refused one scope, and not because of its connection.
    ///
    /// - Returns: Whether it is the first refusal since the scope was added.
    package mutating func refused(_ request: Request) -> Bool {
        guard self.numbers[request.scope] == request.number else { return false }
        self.lastNumber += 1
        self.numbers[request.scope] = self.lastNumber
        return self.refused.insert(request.scope).inserted
    }
}
