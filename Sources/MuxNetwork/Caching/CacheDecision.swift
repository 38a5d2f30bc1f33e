/// How a stored answer is used for a request.
struct CacheHit: Sendable {
    var answer: StoredAnswer
    /// How old it is: RFC 9111, section 4.2.3.
    var age: Duration
    /// How long it stays fresh; negative once it is stale.
    var timeToLive: Duration
    /// The bytes of its body that are asked for, counted from the first that is stored; `nil` for all.
    var places: Range<Int>?
    /// Whether it says that the version of the request is still the one.
    var isNotModified = false
    /// Whether it is validated while it is used: RFC 5861, section 3.
    var revalidates = false
}

/// How a request goes on to the server.
struct CacheForward: Sendable {
    var reason: HTTPCacheStatus.Forward
    /// What is validated, if the server says that it has not changed.
    var validated: StoredAnswer?
    /// What may be used if there is no connection: RFC 9111, section 4.2.4.
    var fallback: CacheHit?
    /// Whether what is stored may be used with the server's consent alone: RFC 9111, section 5.2.2.2.
    var demandsServer = false
    /// Whether it may also be used if the server answers that it cannot: RFC 5861, section 4.
    var toleratesFailure = false
    /// What an answer to HEAD is compared with: RFC 9111, section 4.3.5.
    var described: StoredAnswer?
    /// What the answer completes: RFC 9111, section 3.4.
    var completed: StoredAnswer?
    /// Whether requests for the same share the answer.
    var isShared = false

    /// Asks for the whole, without a condition.
    mutating func askPlainly() {
        self.validated = nil
        self.completed = nil
    }
}

/// What a private cache does with a request: RFC 9111, section 4.
enum CacheDecision: Sendable {
    case use(CacheHit)
    case forward(CacheForward)
    /// Status 504: the request wants a stored answer, and there is none (RFC 9111, section 5.2.1.7).
    case refuse
}
