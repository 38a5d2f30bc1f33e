/// The name of the property wrapper of swift-dependencies.
@propertyWrapper
public struct Dependency<Value> {
    /// The value.
    public var wrappedValue: Value

    /// Makes a wrapper.
    public init(wrappedValue: Value) { self.wrappedValue = wrappedValue }
}

extension Dependency: Sendable where Value: Sendable {}

extension Task where Success == Never, Failure == Never {
    /// A helper as in many apps and packages.
    ///
    /// - Returns: The output of the first successful attempt.
    /// - Throws: The error of the last attempt.
    public static func retry<Output>(
        attempts: Int = 3,
        operation: () async throws -> Output
    ) async throws -> Output {
        for _ in 1..<attempts {
            do { return try await operation() } catch {}
        }
        return try await operation()
    }
}

/// The name of the request of swift-http-types.
public struct HTTPRequest: Sendable {
    /// The path.
    public var path: String

    /// Makes a request.
    public init(path: String) { self.path = path }
}
