import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

// The article about pitfalls.

@MainActor
final class LeakingModel {
    let id: String
    private(set) lazy var place = Multiplexer<Place> { try await api.place(self.id) }

    init(id: String) { self.id = id }
}

@MainActor
final class PlaceModel {
    let id: String
    private(set) lazy var place = Multiplexer<Place> { [id] in try await api.place(id) }

    init(id: String) { self.id = id }
}

@MainActor
final class SearchModel {
    var text = ""
    private(set) lazy var menu = Multiplexer<Menu> { [weak self] in
        guard let text = await self?.text else { throw CancellationError() }
        return try await api.menu(text)
    }
}

func pulls(_ profile: Multiplexer<Profile>) async throws {
    let joined = try await profile.request(.reload)
    let renewed = try await profile.refresh().request()
    let pulled = try await profile.reload()
    _ = (joined, renewed, pulled)
}

@MainActor
@Suite(.standard(endsAtRest: false))
struct PitfallSamplesTests {
    private struct Unreachable: Error {}

    /// Uses a new model.
    ///
    /// - Returns: A weak reference to the model, and a result of `use`.
    private func release<Model: AnyObject, Result>(
        _ model: @autoclosure () -> Model,
        after use: @MainActor (Model) async throws -> Result
    ) async throws -> (model: () -> Model?, result: Result) {
        let model = model()
        let result = try await use(model)
        return ({ [weak model] in model }, result)
    }

    /// Waits until a reference is `nil`, for a limited number of turns of other tasks.
    private func isReleased<Model: AnyObject>(_ model: () -> Model?) async -> Bool {
        for _ in 0..<100_000 where model() != nil { await Task.yield() }
        return model() == nil
    }

    @Test func `CS-09 a model that its own multiplexer captures is never released`() async throws {
        let (model, _) = try await self.release(LeakingModel(id: "1")) { try await $0.place.request() }
        for _ in 0..<1_000 { await Task.yield() }
        #expect(model() != nil)
    }

    @Test func `CS-09 a model whose multiplexer captures a value of the model is released`() async throws {
        let (model, _) = try await self.release(PlaceModel(id: "1")) { try await $0.place.request() }
        #expect(await self.isReleased(model))
    }

    @Test func `CS-09 a model with a weak reference in its fetch is released, and later fetches end`() async throws {
        let (model, menu) = try await self.release(SearchModel()) { model in
            _ = try await model.menu.request()
            return model.menu
        }
        #expect(await self.isReleased(model))
        await menu.clear()
        await #expect(throws: MuxError.fetchCancelled) { try await menu.request() }
    }

    @Test func `CS-09 reload joins a running fetch and refresh does not`() async throws {
        let gate = Gate<Int>()
        let fetch = ScriptedFetch<Int>([.gated(gate), .value(2)])
        let number = Multiplexer<Int>(repository: MuxRepository(store: MemoryStore())) { try await fetch() }
        let first = Task { try await number.request() }
        await gate.waitForCall(1)

        let reload = Task { try await number.request(.reload) }
        while number.statistics.joins == 0 { await Task.yield() }
        #expect(try await number.refresh().request() == 2)
        gate.open(returning: 1)

        #expect(try await first.value == 1)
        #expect(try await reload.value == 1, "the fetch began before the request")
        #expect(number.cachedValue == 2)
    }

    @Test func `CS-09 after a failed reload the value is fresh and after a failed refresh the next request fetches`()
        async throws
    {
        let offline = SilenceableError(Unreachable())
        let fetch = ScriptedFetch<Int>([.value(1), .failure(offline), .failure(offline), .value(2)])
        let policy = MuxPolicy(errorBackoff: .zero)
        let number = Multiplexer<Int>(policy: policy, repository: MuxRepository(store: MemoryStore())) {
            try await fetch()
        }
        #expect(try await number.request() == 1)
        #expect(try await number.request(.reload) == 1)
        #expect(try await number.request() == 1)
        #expect(fetch.callCount == 2)

        #expect(try await number.refresh().request() == 1)
        #expect(try await number.request() == 2)
        #expect(fetch.callCount == 4)
    }

    @Test func `CS-09 simultaneous requests share an effect such as a payment`() async throws {
        let (gate, payments) = (Gate<Int>(), ScriptedFetch<Int>(thereafter: .computed { $0 }))
        let payment = Multiplexer<Int>(repository: MuxRepository(store: MemoryStore())) {
            _ = try await gate.pass()
            return try await payments()
        }
        let customers = (1...2).map { _ in Task { try await payment.request() } }
        while payment.statistics.joins == 0 { await Task.yield() }
        gate.openForGood(returning: 0)

        for customer in customers { #expect(try await customer.value == 1) }
        #expect(payments.callCount == 1)
    }
}
