import Foundation
import MuxKit
import MuxTestSupport
import Testing

// The article about query libraries. The declarations of the other libraries are stand-ins.

nonisolated struct Send<Action: Sendable>: Sendable {
    let send: @Sendable (Action) async -> Void

    func callAsFunction(_ action: Action) async { await self.send(action) }
}

nonisolated struct Effect<Action: Sendable>: Sendable {
    var operation: (@Sendable (Send<Action>) async -> Void)?

    static var none: Effect { Effect() }
    static func run(_ operation: @escaping @Sendable (Send<Action>) async -> Void) -> Effect {
        Effect(operation: operation)
    }
}

nonisolated struct LoadContext<Value: Sendable>: Sendable {}
nonisolated struct LoadContinuation<Value: Sendable>: Sendable {
    let resume: @Sendable (Result<Value, any Error>) -> Void

    func resume(returning value: Value) { self.resume(.success(value)) }
    func resume(throwing error: any Error) { self.resume(.failure(error)) }
}

nonisolated struct SharedSubscriber<Value: Sendable>: Sendable {
    let receive: @Sendable (Value) -> Void

    func yield(_ value: Value) { self.receive(value) }
    func yield(throwing error: any Error) {}
    func yieldLoading(_ isLoading: Bool) {}
    func yieldReturningInitialValue() {}
}

nonisolated struct SharedSubscription: Sendable {
    let cancel: @Sendable () -> Void

    init(_ cancel: @escaping @Sendable () -> Void) { self.cancel = cancel }
}

nonisolated protocol SharedReaderKey<Value>: Sendable {
    associatedtype Value: Sendable
    associatedtype ID: Hashable

    var id: ID { get }
    func load(context: LoadContext<Value>, continuation: LoadContinuation<Value>)
    func subscribe(context: LoadContext<Value>, subscriber: SharedSubscriber<Value>) -> SharedSubscription
}

// MARK: - Samples

nonisolated let notesOfAllViews = Multiplexer<[Int]>(repository: MuxRepository(store: MemoryStore())) { [1, 2] }

nonisolated struct NotesState: Sendable {
    var notes: [Int] = []
    var isStale = false
    var problem: String?
}

nonisolated enum NotesAction: Sendable {
    case appeared
    case pulled
    case changed(MuxState<[Int]>)
    case failed(String)
}

nonisolated struct NotesReducer: Sendable {
    func reduce(_ state: inout NotesState, _ action: NotesAction) -> Effect<NotesAction> {
        switch action {
        case .appeared:
            return .run { send in
                for await state in notesOfAllViews.states { await send(.changed(state)) }
            }
        case .pulled:
            return .run { send in
                do {
                    try await notesOfAllViews.reload()
                } catch {
                    await send(.failed(error.localizedDescription))
                }
            }
        case .changed(let now):
            state.notes = now.entry?.value ?? []
            state.isStale = now.isStale
            return .none
        case .failed(let problem):
            state.problem = problem
            return .none
        }
    }
}

nonisolated struct MultiplexerKey<Value: Sendable>: SharedReaderKey {
    let multiplexer: Multiplexer<Value>
    var id: ObjectIdentifier { ObjectIdentifier(self.multiplexer) }

    func load(context: LoadContext<Value>, continuation: LoadContinuation<Value>) {
        Task {
            do {
                continuation.resume(returning: try await self.multiplexer.request())
            } catch {
                continuation.resume(throwing: error)
            }
        }
    }

    func subscribe(context: LoadContext<Value>, subscriber: SharedSubscriber<Value>) -> SharedSubscription {
        let task = Task {
            for await state in self.multiplexer.states {
                subscriber.yieldLoading(state.isLoading)
                if let failure = state.failure { subscriber.yield(throwing: failure) }
                if let entry = state.entry {
                    subscriber.yield(entry.value)
                } else {
                    subscriber.yieldReturningInitialValue()
                }
            }
        }
        return SharedSubscription { task.cancel() }
    }
}

@Suite(.standard(endsAtRest: false))
struct QuerySamplesTests {
    @Test func `SC-12 an effect of The Composable Architecture follows a multiplexer`() async throws {
        let reducer = NotesReducer()
        var state = NotesState()
        let pull = reducer.reduce(&state, .pulled)
        await pull.operation?(Send { _ in })
        let (changes, continuation) = AsyncStream<NotesAction>.makeStream()
        let effect = reducer.reduce(&state, .appeared)
        let task = Task { await effect.operation?(Send { continuation.yield($0) }) }
        for await change in changes {
            _ = reducer.reduce(&state, change)
            if state.notes == [1, 2] { break }
        }
        task.cancel()
        await task.value
        _ = reducer.reduce(&state, .failed("offline"))
        #expect(!state.isStale && state.problem == "offline")
    }

    @Test func `SC-12 a key of swift-sharing loads and follows a multiplexer`() async throws {
        let number = Multiplexer<Int>(repository: MuxRepository(store: MemoryStore())) { 1 }
        let key = MultiplexerKey(multiplexer: number)
        #expect(key.id == ObjectIdentifier(number))
        let loaded = try await withCheckedThrowingContinuation { continuation in
            key.load(context: LoadContext(), continuation: LoadContinuation { continuation.resume(with: $0) })
        }
        #expect(loaded == 1)
        let (values, continuation) = AsyncStream<Int>.makeStream()
        let subscription = key.subscribe(
            context: LoadContext(),
            subscriber: SharedSubscriber { continuation.yield($0) }
        )
        number.store(2)
        for await value in values where value == 2 { break }
        subscription.cancel()
    }
}
