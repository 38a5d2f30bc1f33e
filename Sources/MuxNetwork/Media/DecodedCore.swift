import Foundation
import MuxKit

/// What ``DecodedMedia`` consists of: flights that decode, and the values in memory.
final class DecodedCore<Value: Sendable>: Sendable {
    private typealias Cache = MemoryCache<URL, Value>
    /// The cache of the present session is the state: a decoding puts its value into the one that it began with, which
    /// nobody looks into any more once the session has ended.
    private typealias Engine = FlightEngine<URL, Value, Cache>

    private let media: AsyncMedia
    private let engine: Engine
    private let makeCache: @Sendable () -> MemoryCache<URL, Value>
    private let decode: DecodedMedia<Value>.Decoder

    init(
        _ media: AsyncMedia,
        _ makeCache: @escaping @Sendable () -> MemoryCache<URL, Value>,
        _ decode: @escaping DecodedMedia<Value>.Decoder
    ) {
        let repository = media.core.repository
        self.media = media
        self.makeCache = makeCache
        self.decode = decode
        let options = Engine.Options(name: "mux.decode", linger: .zero, wouldDeadlock: MuxError.wouldDeadlock)
        self.engine = Engine(makeCache(), options, time: repository.time, spawn: repository.spawn)
        self.engine.flies { [weak self] url, flight in await self?.fly(url, flight) }
        repository.attach(self)
    }

    private var cache: Cache { self.engine.withState { $0 } }

    func cached(_ url: URL) -> Value? { self.cache.value(for: url) }

    nonisolated(nonsending) func request(_ url: URL) async throws -> Value {
        if let value = self.cached(url) { return value }
        let landing = try await self.engine.enter(
            url,
            decide: { _ in .fly },
            joined: { _, _ in }
        )
        guard case .output(let value) = landing else { throw CancellationError() }
        return value
    }

    private func fly(_ url: URL, _ flight: FlightID) async {
        let cache = self.cache
        do {
            let (value, cost) = try await self.decoded(url)
            cache.insert(value, for: url, cost: cost)
            self.engine.land(flight, of: url, failed: false) { _, isKept in
                isKept ? .success(value) : .failure(MuxError.sessionEnded)
            }
        } catch {
            self.engine.land(flight, of: url, failed: true) { _, _ in .failure(error) }
        }
    }

    /// The decoded file; one that is damaged is fetched once more.
    private func decoded(_ url: URL) async throws -> (Value, cost: Int) {
        do {
            return try await self.decodedFile(url)
        } catch let damage as Undecodable {
            guard !url.isFileURL else { throw damage.cause }
            try await self.media.remove(url: url)
            do {
                return try await self.decodedFile(url)
            } catch let damage as Undecodable {
                throw damage.cause
            }
        }
    }

    private struct Undecodable: Error {
        let cause: any Error
    }

    private func decodedFile(_ url: URL) async throws -> (Value, cost: Int) {
        try await self.media.withFile(url: url) { file in
            let decode = self.decode
            return try await BlockingWork.run {
                Result { () throws -> (Value, cost: Int) in
                    do { return try decode(file) } catch { throw Undecodable(cause: error) }
                }
            }.get()
        }
    }
}

extension DecodedCore: SessionParticipant {
    func sessionEnded(isTold: Bool) -> @Sendable () -> Void {
        let next = self.makeCache()
        let (former, answerWaiters) = self.engine.dismissed(cancelling: true) { state in
            let former = state
            state = next
            return (.failure(MuxError.sessionEnded), former)
        }
        withExtendedLifetime(former) {}
        return answerWaiters
    }

    func clearMemory() { self.cache.removeAll() }
}
