/// Runs several asynchronous operations at the same time, and returns the results in the same order.
///
/// ```swift
/// let (me, friends) = try await zip({ try await profile.request() }, { try await friends.request() })
/// let six = try await zip(repeating: a, b, c, d, e, f)        // any number
/// ```
///
/// **Cancellation.** If an operation throws, the other operations are cancelled. If the caller's task is
/// cancelled, all operations are cancelled. The call returns when all operations have ended.
///
/// - Parameter work: Any number of closures with any types of results. A closure literal needs an explicit
///   `@Sendable`: `{ @Sendable in … }`.
/// - Returns: The results, as a tuple.
/// - Throws: The first error of an operation.
public func zip<each Output: Sendable>(
    repeating work: repeat @escaping @Sendable @concurrent () async throws -> each Output
) async throws -> (repeat each Output) {
    let places = (repeat Place<each Output>())
    try await withThrowingTaskGroup(of: Void.self) { group in
        for (work, place) in repeat (each work, each places) {
            group.addTask { place.put(try await work()) }
        }
        // Not `waitForAll()`, which throws an error only after all operations have ended: the error would not
        // cancel the other operations.
        while try await group.next() != nil {}
    }
    return (repeat try (each places).take())
}

// A parameter pack does not infer `@Sendable` for a closure literal (Swift 6.3.1), so the following functions
// have explicit parameters.

/// Runs several asynchronous operations at the same time, and returns the results in the same order.
///
/// - Parameters:
///   - first: The first operation.
///   - second: The second operation.
/// - Returns: The results, as a tuple.
/// - Throws: The first error of an operation; then the other operations are cancelled.
public func zip<A: Sendable, B: Sendable>(
    _ first: @escaping @Sendable @concurrent () async throws -> A,
    _ second: @escaping @Sendable @concurrent () async throws -> B
) async throws -> (A, B) {
    try await zip(repeating: first, second)
}

/// Runs several asynchronous operations at the same time, and returns the results in the same order.
///
/// - Parameters:
///   - first: The first operation.
///   - second: The second operation.
///   - third: The third operation.
/// - Returns: The results, as a tuple.
/// - Throws: The first error of an operation; then the other operations are cancelled.
public func zip<A: Sendable, B: Sendable, C: Sendable>(
    _ first: @escaping @Sendable @concurrent () async throws -> A,
    _ second: @escaping @Sendable @concurrent () async throws -> B,
    _ third: @escaping @Sendable @concurrent () async throws -> C
) async throws -> (A, B, C) {
    try await zip(repeating: first, second, third)
}

/// Runs several asynchronous operations at the same time, and returns the results in the same order.
///
/// - Parameters:
///   - first: The first operation.
///   - second: The second operation.
///   - third: The third operation.
///   - fourth: The fourth operation.
/// - Returns: The results, as a tuple.
/// - Throws: The first error of an operation; then the other operations are cancelled.
public func zip<A: Sendable, B: Sendable, C: Sendable, D: Sendable>(
    _ first: @escaping @Sendable @concurrent () async throws -> A,
    _ second: @escaping @Sendable @concurrent () async throws -> B,
    _ third: @escaping @Sendable @concurrent () async throws -> C,
    _ fourth: @escaping @Sendable @concurrent () async throws -> D
) async throws -> (A, B, C, D) {
    try await zip(repeating: first, second, third, fourth)
}

/// Runs several asynchronous operations at the same time, and returns the results in the same order.
///
/// - Parameters:
///   - first: The first operation.
///   - second: The second operation.
///   - third: The third operation.
///   - fourth: The fourth operation.
///   - fifth: The fifth operation.
/// - Returns: The results, as a tuple.
/// - Throws: The first error of an operation; then the other operations are cancelled.
public func zip<A: Sendable, B: Sendable, C: Sendable, D: Sendable, E: Sendable>(
    _ first: @escaping @Sendable @concurrent () async throws -> A,
    _ second: @escaping @Sendable @concurrent () async throws -> B,
    _ third: @escaping @Sendable @concurrent () async throws -> C,
    _ fourth: @escaping @Sendable @concurrent () async throws -> D,
    _ fifth: @escaping @Sendable @concurrent () async throws -> E
) async throws -> (A, B, C, D, E) {
    try await zip(repeating: first, second, third, fourth, fifth)
}

/// The storage for the result of one operation.
private final class Place<Output: Sendable>: Sendable {
    private let output = Locked<Output?>(nil)

    func put(_ output: Output) { self.output.withLock { $0 = output } }

    /// The result, which exists after the group has ended without an error.
    func take() throws -> Output {
        guard let output = self.output.withLock({ $0 }) else { throw CancellationError() }
        return output
    }
}

/// Asynchronous operations with results of one type, which run at the same time, optionally with a limit.
///
/// ```swift
/// let users = try await Zip(ids, atOnce: 4) { id in try await api.user(id) }.run()
/// ```
///
/// **Concurrent calls.** Runs are independent; each run performs the operations again.
///
/// **Cancellation, and after a failure.** If an operation throws, or the caller's task is cancelled, running
/// operations are cancelled and no further operation begins. The run ends when all operations that began have
/// ended.
public struct Zip<Output: Sendable>: Sendable {
    private let work: @Sendable @concurrent (Int) async throws -> Output
    private let count: Int
    private let limit: Int

    /// Makes an operation for each item; ``run()`` starts the operations.
    ///
    /// - Parameters:
    ///   - items: The items. Items may be closures: `Zip(closures) { try await $0() }`.
    ///   - limit: The maximum number of operations at the same time, at least 1; `nil` for no limit.
    ///   - work: The operation for one item.
    public init<Item: Sendable>(
        _ items: some Sequence<Item>,
        atOnce limit: Int? = nil,
        work: @escaping @Sendable @concurrent (Item) async throws -> Output
    ) {
        let items = Array(items)
        self.work = { try await work(items[$0]) }
        self.count = items.count
        self.limit = max(limit ?? items.count, 1)
    }

    // The parameters are existentials, because the compiler does not convert an array to an existential
    // element by element: an array of closures of another type (synchronous, or isolated to the main actor)
    // is a compile-time error. For a parameter of type `[@Sendable () async throws -> Output]`, the array
    // would be converted at run time, by a cast that ends the process (Swift 6.3.1). There are two
    // initialisers because `@Sendable () async throws -> Output` is a different type with
    // `NonisolatedNonsendingByDefault` than without.

    /// Stores operations; ``run()`` starts the operations.
    ///
    /// - Parameters:
    ///   - work: The operations. For closures of another type, see ``init(_:atOnce:work:)``.
    ///   - limit: The maximum number of operations at the same time, at least 1; `nil` for no limit.
    public init(_ work: any Sequence<@Sendable @concurrent () async throws -> Output>, atOnce limit: Int? = nil) {
        self.init(Array(work), atOnce: limit) { try await $0() }
    }

    /// Stores operations; ``run()`` starts the operations.
    ///
    /// - Parameters:
    ///   - work: The operations: closures of a module with `NonisolatedNonsendingByDefault`.
    ///   - limit: The maximum number of operations at the same time, at least 1; `nil` for no limit.
    @_disfavoredOverload
    public init(
        _ work: any Collection<nonisolated(nonsending) @Sendable () async throws -> Output>,
        atOnce limit: Int? = nil
    ) {
        self.init(Array(work), atOnce: limit) { try await $0() }
    }

    /// Runs the operations.
    ///
    /// If an operation throws, or the caller's task is cancelled, running operations are cancelled and no
    /// further operation begins.
    ///
    /// - Returns: The results, in the order of the operations.
    /// - Throws: The first error of an operation, or `CancellationError`.
    public func run() async throws -> [Output] {
        let (work, count) = (self.work, self.count)
        return try await withThrowingTaskGroup(of: (Int, Output).self) { group in
            var outputs = [Output?](repeating: nil, count: count)
            var begun = 0
            func begin() {
                guard begun < count else { return }
                let index = begun
                begun += 1
                group.addTask {
                    try Task.checkCancellation()
                    return (index, try await work(index))
                }
            }
            for _ in 0..<min(self.limit, count) { begin() }
            while let (index, output) = try await group.next() {
                outputs[index] = output
                begin()
            }
            return outputs.compactMap(\.self)
        }
    }
}
