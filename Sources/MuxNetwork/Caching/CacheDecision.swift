/// A stored response for a request, fresh or stale.
struct CacheHit: Sendable {
    var response: StoredResponse
    /// The current age of the response: RFC 9111, section 4.2.3.
    var age: Duration
    /// The remaining lifetime; zero or negative for a stale response.
    var timeToLive: Duration
    /// The requested bytes of the body, counted from the first stored byte; `nil` for all.
    var places: Range<Int>?
    /// Whether the reply is a 304, because the condition of the request matches the stored version.
    var isNotModified = false
    /// Whether the use of the response requests a background revalidation: RFC 5861, section 3.
    var revalidates = false
}

extension CacheHit {
    /// Makes a hit of a stored response, fresh or stale.
    init(_ response: StoredResponse, at now: StoredResponse.Now) {
        let (freshness, resident) = (response.freshness, response.residentTime(at: now) ?? .longest)
        let lifetime = response.isInvalidated ? .zero : freshness.timeToLive ?? .zero
        self.init(
            response: response,
            age: freshness.age + resident,
            timeToLive: lifetime - freshness.overdue - resident
        )
    }
}

/// The parameters of a request to the server.
struct CacheForward: Sendable {
    var reason: HTTPCacheStatus.Forward
    /// The stored response to validate, for a conditional request.
    var storedToValidate: StoredResponse?
    /// The stored response, usually stale, to use if the server cannot be reached: RFC 9111, section 4.2.4.
    var fallback: CacheHit?
    /// Whether the result without a connection is status 504, because the stored response has
    /// `must-revalidate` or `no-cache`: RFC 9111, section 5.2.2.2.
    var demandsServer = false
    /// Whether ``fallback`` may also replace an error response of the server: RFC 5861, section 4.
    var toleratesFailure = false
    /// The stored response to compare with the response to HEAD: RFC 9111, section 4.3.5.
    var storedToCompare: StoredResponse?
    /// The stored part that the response completes: RFC 9111, section 3.4.
    var storedToComplete: StoredResponse?
    /// Whether concurrent requests with equal `Vary` fields can share the response.
    var isShared = false

    /// Removes the condition and the range that the cache adds to the request.
    mutating func askPlainly() {
        self.storedToValidate = nil
        self.storedToComplete = nil
    }
}

/// The handling of a request by a private cache: RFC 9111, section 4.
enum CacheDecision: Sendable {
    case use(CacheHit)
    /// Indirect, because a decision is moved several times, and the parameters are large.
    indirect case forward(CacheForward)
    /// Status 504: the request accepts only a stored response, and no suitable response is stored (RFC 9111,
    /// section 5.2.1.7).
    case refuse
}
