extension RetryPolicy: Codable {
    private enum CodingKeys: CodingKey {
        case maxAttempts, backoff, jitter, maximumDelay, maximumDuration, maximumRetryAfter, wakeJitter
        case repeatsUnsafeWork, retriedStatuses, refusedStatuses
    }

    /// Reads a policy; a member that is missing has its default.
    ///
    /// - Throws: `DecodingError`.
    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        func value<Value: Decodable>(_ key: CodingKeys, or usual: Value) throws -> Value {
            try container.decodeIfPresent(Value.self, forKey: key) ?? usual
        }
        let usual = RetryPolicy()
        self.init(
            maxAttempts: try value(.maxAttempts, or: usual.maxAttempts),
            backoff: try value(.backoff, or: usual.backoff),
            jitter: try value(.jitter, or: usual.jitter),
            maximumDelay: try value(.maximumDelay, or: usual.maximumDelay),
            maximumDuration: try container.decodeIfPresent(Duration.self, forKey: .maximumDuration),
            maximumRetryAfter: try value(.maximumRetryAfter, or: usual.maximumRetryAfter),
            wakeJitter: try value(.wakeJitter, or: usual.wakeJitter),
            repeatsUnsafeWork: try value(.repeatsUnsafeWork, or: usual.repeatsUnsafeWork),
            retriedStatuses: try value(.retriedStatuses, or: usual.retriedStatuses),
            refusedStatuses: try value(.refusedStatuses, or: usual.refusedStatuses)
        )
    }

    /// Writes every member, durations as the standard library does.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(self.maxAttempts, forKey: .maxAttempts)
        try container.encode(self.backoff, forKey: .backoff)
        try container.encode(self.jitter, forKey: .jitter)
        try container.encode(self.maximumDelay, forKey: .maximumDelay)
        try container.encodeIfPresent(self.maximumDuration, forKey: .maximumDuration)
        try container.encode(self.maximumRetryAfter, forKey: .maximumRetryAfter)
        try container.encode(self.wakeJitter, forKey: .wakeJitter)
        try container.encode(self.repeatsUnsafeWork, forKey: .repeatsUnsafeWork)
        try container.encode(self.retriedStatuses.sorted(), forKey: .retriedStatuses)
        try container.encode(self.refusedStatuses.sorted(), forKey: .refusedStatuses)
    }
}
