/// The simplest cache: an actor with a dictionary of values.
actor PlainCache<Key: Hashable & Sendable, Value: Sendable> {
    private var values: [Key: Value] = [:]

    func set(_ value: Value, for key: Key) { self.values[key] = value }
    func value(_ key: Key) -> Value? { self.values[key] }
}

/// The simplest single-flight cache: an actor with a dictionary of tasks.
actor TaskCache<Key: Hashable & Sendable, Value: Sendable> {
    private var tasks: [Key: Task<Value, any Error>] = [:]
    private let fetch: @Sendable (Key) async throws -> Value

    init(fetch: @escaping @Sendable (Key) async throws -> Value) { self.fetch = fetch }

    func value(_ key: Key) async throws -> Value {
        if let task = self.tasks[key] { return try await task.value }
        let fetch = self.fetch
        let task = Task { try await fetch(key) }
        self.tasks[key] = task
        return try await task.value
    }
}
