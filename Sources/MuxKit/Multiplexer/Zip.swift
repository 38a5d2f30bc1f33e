/// Runs several pieces of asynchronous work at the same time, and returns their results in the order of the arguments.
///
/// ```swift
/// let (me, friends) = try await zip({ try await profile.request() }, { try await friends.request() })
/// let six = try await zip(repeating: a, b, c, d, e, f)        // any number
/// ```
///
/// **Cancellation.** If one piece of work throws, or the caller's task is cancelled, the others are cancelled; the call
/// returns when all have ended.
///
/// - Parameter work: Any number of closures, each of its own type; write `{ @Sendable in … }`.
/// - Returns: The results, as a tuple.
/// - Throws: The first error that one of them threw.
public func zip<each Output: Sendable>(
    repeating work: repeat @escaping @Sendable @concurrent () async throws -> each Output
) async throws -> (repeat each Output) {
    let places = (repeat Place<each Output>())
    try await withThrowingTaskGroup(of: Void.self) { group in
        for (work, place) in repeat (each work, each places) {
            group.addTask { place.put(try await work()) }
        }
        // Not `waitForAll()`, which waits for the rest before it reports an error.
        while try await group.next() != nil {}
    }
    return (repeat try (each places).take())
}

// A closure that is written out is not taken for `@Sendable` by a parameter pack (Swift 6.3.1): hence these.

/// Runs several pieces of asynchronous work at the same time, and returns their results in the order of the arguments.
///
/// - Parameters:
///   - first: The first piece of work.
///   - second: The second piece of work.
/// - Returns: The results, as a tuple.
/// - Throws: The first error that one of them threw; the others are cancelled then.
public func zip<A: Sendable, B: Sendable>(
    _ first: @escaping @Sendable @concurrent () async throws -> A,
    _ second: @escaping @Sendable @concurrent () async throws -> B
) async throws -> (A, B) {
    try await zip(repeating: first, second)
}

/// Runs several pieces of asynchronous work at the same time, and returns their results in the order of the arguments.
///
/// - Parameters:
///   - first: The first piece of work.
///   - second: The second piece of work.
///   - third: The third piece of work.
/// - Returns: The results, as a tuple.
/// - Throws: The first error that one of them threw; the others are cancelled then.
public func zip<A: Sendable, B: Sendable, C: Sendable>(
    _ first: @escaping @Sendable @concurrent () async throws -> A,
    _ second: @escaping @Sendable @concurrent () async throws -> B,
    _ third: @escaping @Sendable @concurrent () async throws -> C
) async throws -> (A, B, C) {
    try await zip(repeating: first, second, third)
}

/// Runs several pieces of asynchronous work at the same time, and returns their results in the order of the arguments.
///
/// - Parameters:
///   - first: The first piece of work.
///   - second: The second piece of work.
///   - third: The third piece of work.
///   - fourth: The fourth piece of work.
/// - Returns: The results, as a tuple.
/// - Throws: The first error that one of them threw; the others are cancelled then.
public func zip<A: Sendable, B: Sendable, C: Sendable, D: Sendable>(
    _ first: @escaping @Sendable @concurrent () async throws -> A,
    _ second: @escaping @Sendable @concurrent () async throws -> B,
    _ third: @escaping @Sendable @concurrent () async throws -> C,
    _ fourth: @escaping @Sendable @concurrent () async throws -> D
) async throws -> (A, B, C, D) {
    try await zip(repeating: first, second, third, fourth)
}

/// Runs several pieces of asynchronous work at the same time, and returns their results in the order of the arguments.
///
/// - Parameters:
///   - first: The first piece of work.
///   - second: The second piece of work.
///   - third: The third piece of work.
///   - fourth: The fourth piece of work.
///   - fifth: The fifth piece of work.
/// - Returns: The results, as a tuple.
/// - Throws: The first error that one of them threw; the others are cancelled then.
public func zip<A: Sendable, B: Sendable, C: Sendable, D: Sendable, E: Sendable>(
    _ first: @escaping @Sendable @concurrent () async throws -> A,
    _ second: @escaping @Sendable @concurrent () async throws -> B,
    _ third: @escaping @Sendable @concurrent () async throws -> C,
    _ fourth: @escaping @Sendable @concurrent () async throws -> D,
    _ fifth: @escaping @Sendable @concurrent () async throws -> E
) async throws -> (A, B, C, D, E) {
    try await zip(repeating: first, second, third, fourth, fifth)
}

/// Where one of several results is put.
private final class Place<Output: Sendable>: Sendable {
    private let output = Locked<Output?>(nil)

    func put(_ output: Output) { self.output.withLock { $0 = output } }

    /// The result; the group has ended without an error, so there is one.
    func take() throws -> Output {
        guard let output = self.output.withLock({ $0 }) else { throw CancellationError() }
        return output
    }
}

/// Pieces of asynchronous work of one type, to be run at the same time, perhaps no more than so many at once.
///
/// ```swift
/// let users = try await Zip(ids, atOnce: 4) { id in try await api.user(id) }.run()
/// ```
///
/// **Concurrent calls.** Each run is by itself, and does all the work again.
///
/// **Cancellation, and after a failure.** If one piece throws, or the caller's task is cancelled, the others are cancelled,
/// those that have not begun never begin, and the run ends when all that began have ended.
public struct Zip<Output: Sendable>: Sendable {
    private let work: @Sendable @concurrent (Int) async throws -> Output
    private let count: Int
    private let limit: Int

    /// Describes the same work for each of several items; nothing runs yet.
    ///
    /// - Parameters:
    ///   - items: The items; of closures, too, such as `Zip(closures) { try await $0() }`.
    ///   - limit: The greatest number of pieces that run at once, at least 1; `nil` for all of them.
    ///   - work: Does the work for one item.
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

    // The arrays are existentials because the compiler does not convert to these element by element: an array of closures of
    // another type (synchronous, of the main actor) is an error when it compiles. To `[@Sendable () async throws -> Output]`
    // it is converted when the program runs, by a cast that ends the process (Swift 6.3.1). There are two initialisers because
    // `@Sendable () async throws -> Output` is another type with `NonisolatedNonsendingByDefault` than without.

    /// Describes the work; nothing runs yet.
    ///
    /// - Parameters:
    ///   - work: The pieces of work. For closures of another type, see ``init(_:atOnce:work:)``.
    ///   - limit: The greatest number of pieces that run at once, at least 1; `nil` for all of them.
    public init(_ work: any Sequence<@Sendable @concurrent () async throws -> Output>, atOnce limit: Int? = nil) {
        self.init(Array(work), atOnce: limit) { try await $0() }
    }

    /// Describes the work; nothing runs yet.
    ///
    /// - Parameters:
    ///   - work: The pieces of work, as a module with `NonisolatedNonsendingByDefault` writes their type.
    ///   - limit: The greatest number of pieces that run at once, at least 1; `nil` for all of them.
    @_disfavoredOverload
    public init(
        _ work: any Collection<nonisolated(nonsending) @Sendable () async throws -> Output>,
        atOnce limit: Int? = nil
    ) {
        self.init(Array(work), atOnce: limit) { try await $0() }
    }

    /// Runs the work.
    ///
    /// If one piece throws, or the caller's task is cancelled, those that run are cancelled and the others do not begin.
    ///
    /// - Returns: The results, in the order of the work.
    /// - Throws: The first error that one of them threw, or `CancellationError`.
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
