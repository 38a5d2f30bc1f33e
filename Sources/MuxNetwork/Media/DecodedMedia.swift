public import Foundation
import MuxKit

/// Decoded files, kept in memory: images, waveforms, parsed documents.
///
/// ```swift
/// let images = DecodedMedia<Image>(maximumCost: 64 << 20) { file in
///     let image = try Image(contentsOf: file)
///     return (image, cost: image.byteCount)
/// }
/// let image = try await images.request(url: photo)
/// ```
///
/// Generic over what decodes, so it knows no format and no view framework.
///
/// **Concurrent calls.** For one URL at most one decoding runs, whoever asks, on a thread that may be busy.
///
/// **Cancellation.** A cancelled caller leaves at once. A decoding that nobody waits for any more is finished, and kept.
///
/// **After a failure.** A file that cannot be decoded is removed and fetched once more; if that one cannot be decoded either,
/// the caller gets the decoder's error.
///
/// **On disk.** Nothing of its own; the files are those of its ``AsyncMedia``, and a sign-out forgets what is in memory, too.
public final actor DecodedMedia<Value: Sendable> {
    /// Decodes a file and says what the value costs in memory, in a unit of your choice.
    public typealias Decoder = @Sendable (URL) throws -> (Value, cost: Int)

    private nonisolated let core: DecodedCore<Value>

    /// Makes a cache of decoded files.
    ///
    /// - Parameters:
    ///   - media: Fetches the files.
    ///   - maximumCount: How many values there may be; `nil` for any number.
    ///   - maximumCost: What they may cost together; `nil` for any cost.
    ///   - decode: Decodes a file; called on a thread that may be busy.
    public init(
        media: AsyncMedia = .shared,
        maximumCount: Int? = 500,
        maximumCost: Int? = nil,
        decode: @escaping Decoder
    ) {
        self.core = DecodedCore(media, { MemoryCache(maximumCount: maximumCount, maximumCost: maximumCost) }, decode)
    }

    /// The value in memory, if it is there; reads, decodes and fetches nothing.
    ///
    /// - Parameter url: Where the file is.
    /// - Returns: The value.
    /// - Complexity: O(1).
    public nonisolated func cachedValue(url: URL) -> Value? { self.core.cached(url) }

    /// What can be shown of `url` right now: the value if it is in memory, else that it is loading.
    ///
    /// - Parameter url: Where the file is.
    /// - Returns: ``MediaPhase/loaded(_:)`` or ``MediaPhase/loading``.
    /// - Complexity: O(1).
    public nonisolated func phase(of url: URL) -> MediaPhase<Value> {
        self.core.cached(url).map { .loaded($0) } ?? .loading
    }

    /// What can be shown of `url` in the end: the value, or why there is none.
    ///
    /// - Parameter url: Where the file is.
    /// - Returns: ``MediaPhase/loaded(_:)`` or ``MediaPhase/failed(_:)``; ``MediaPhase/loading`` if the task is cancelled.
    public nonisolated(nonsending) func load(_ url: URL) async -> MediaPhase<Value> {
        do {
            return .loaded(try await self.core.request(url))
        } catch is CancellationError {
            return .loading
        } catch {
            return .failed(error)
        }
    }

    /// Returns the value of `url`: from memory, or decoded from its file, which is fetched if need be.
    ///
    /// - Parameter url: Where the file is.
    /// - Returns: The value.
    /// - Throws: What ``AsyncMedia/request(url:sha256:)`` or the decoder threw, or `CancellationError`.
    public nonisolated(nonsending) func request(url: URL) async throws -> Value { try await self.core.request(url) }

    /// Forgets all values; the files stay.
    public nonisolated func clearMemory() { self.core.clearMemory() }
}

/// What can be shown of something that is being loaded.
@nonexhaustive
public enum MediaPhase<Value: Sendable>: Sendable {
    /// It is not there yet.
    case loading
    /// It is there.
    case loaded(Value)
    /// It will not come.
    case failed(any Error)
}

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
