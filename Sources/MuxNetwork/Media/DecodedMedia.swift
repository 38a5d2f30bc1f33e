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
/// A `MultiplexerMap` whose fetch decodes. Generic over what decodes, so it knows no format and no view framework.
///
/// **Concurrent calls.** For one URL at most one decoding runs, on a thread that may block.
///
/// **Cancellation.** A cancelled caller leaves at once. A decoding without callers is finished, and its value kept.
///
/// **After a failure.** A file that cannot be decoded is removed and fetched once more; if that one cannot be decoded either,
/// the caller gets the decoder's error.
///
/// **On disk.** Nothing of its own; the files are those of its ``AsyncMedia``. A sign-out clears the memory, too.
public final actor DecodedMedia<Value: Sendable> {
    /// Decodes a file and returns the value with its cost in memory, in a unit of your choice.
    public typealias Decoder = @Sendable (URL) throws -> (Value, cost: Int)

    private struct Decoded: Sendable {
        let value: Value
        let cost: Int
    }

    private nonisolated let map: MultiplexerMap<DecodedMediaKey, Decoded>
    private nonisolated let media: AsyncMedia

    /// Makes a cache of decoded files.
    ///
    /// - Parameters:
    ///   - media: Fetches the files.
    ///   - maximumCount: The largest number of values; `nil` for any number.
    ///   - maximumCost: The largest sum of their costs; `nil` for any cost.
    ///   - decode: Decodes a file; called on a thread that may block.
    public init(
        media: AsyncMedia = .shared,
        maximumCount: Int? = 500,
        maximumCost: Int? = nil,
        decode: @escaping Decoder
    ) {
        let policy = MuxPolicy(
            timeToLive: .longest,
            whenAbandoned: .cancel(linger: .zero),
            fetchTimeout: .longest,
            maximumCount: maximumCount,
            maximumCost: maximumCost.map { MuxPolicy.CostLimit($0) { (decoded: Decoded) in decoded.cost } }
        )
        self.media = media
        self.map = MultiplexerMap(
            policy: policy,
            repository: media.core.repository,
            persistence: nil,
            fetch: .value { key in
                let (value, cost) = try await Self.decoded(key.key.url, of: media, decode)
                return Decoded(value: value, cost: cost)
            }
        )
    }

    /// The value in memory, if it is there; reads, decodes and fetches nothing.
    ///
    /// - Parameter url: Where the file is.
    /// - Returns: The value.
    /// - Complexity: O(1).
    public nonisolated func cachedValue(url: URL) -> Value? { self.map.hit(key: self.key(of: url))?.value }

    private nonisolated func key(of url: URL) -> DecodedMediaKey {
        DecodedMediaKey(url: url, text: self.media.core.cacheKey?(url))
    }

    /// The present state of `url`: the value if it is in memory, else that it is loading.
    ///
    /// - Parameter url: Where the file is.
    /// - Returns: ``MediaPhase/loaded(_:)`` or ``MediaPhase/loading``.
    /// - Complexity: O(1).
    public nonisolated func phase(of url: URL) -> MediaPhase<Value> {
        self.cachedValue(url: url).map { .loaded($0) } ?? .loading
    }

    /// The final state of `url`: the value, or why there is none.
    ///
    /// - Parameter url: Where the file is.
    /// - Returns: ``MediaPhase/loaded(_:)`` or ``MediaPhase/failed(_:)``; ``MediaPhase/loading`` if the task is cancelled.
    public nonisolated(nonsending) func load(_ url: URL) async -> MediaPhase<Value> {
        do {
            return .loaded(try await self.request(url: url))
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
    public nonisolated(nonsending) func request(url: URL) async throws -> Value {
        try await self.map.request(key: self.key(of: url)).value
    }

    /// Fetches and decodes files ahead of their use, after all requests for files.
    ///
    /// Returns when all values are in memory or have failed. Cancel the task to stop, or call ``AsyncMedia/cancelPrefetch(_:)`` of the media.
    ///
    /// - Parameter urls: Where the files are.
    public nonisolated func prefetch(_ urls: some Sequence<URL>) async {
        await withDiscardingTaskGroup { group in
            for url in urls where self.map.cachedValue(key: self.key(of: url)) == nil {
                group.addTask(priority: .low) {
                    await self.media.prefetch([url])
                    // Without a file, a request would fetch it before others.
                    guard self.media.cachedValue(url: url) != nil, !Task.isCancelled else { return }
                    _ = try? await self.request(url: url)
                }
            }
        }
    }

    /// Removes all values from memory; the files stay.
    public nonisolated func clearMemory() { self.map.clearMemory() }

    // MARK: - Decoding

    private struct Undecodable: Error {
        let cause: any Error
    }

    /// The decoded file; a damaged one is fetched once more.
    private static func decoded(_ url: URL, of media: AsyncMedia, _ decode: @escaping Decoder) async throws -> (
        Value, cost: Int
    ) {
        do {
            do {
                return try await self.decodedFile(url, of: media, decode)
            } catch is Undecodable where !url.isFileURL {
                try await media.remove(url: url)
                return try await self.decodedFile(url, of: media, decode)
            }
        } catch let damage as Undecodable {
            throw damage.cause
        }
    }

    private static func decodedFile(_ url: URL, of media: AsyncMedia, _ decode: @escaping Decoder) async throws -> (
        Value, cost: Int
    ) {
        try await media.withFile(url: url) { file in
            try await BlockingWork.run {
                Result { () throws -> (Value, cost: Int) in
                    do { return try decode(file) } catch { throw Undecodable(cause: error) }
                }
            }.get()
        }
    }
}

/// The URL of a file, of which events name host and path: a query may hold credentials.
private struct DecodedMediaKey: Hashable, Sendable, CustomStringConvertible {
    let url: URL
    /// The key that the app chose; `nil` for the URL.
    let text: String?

    // By bytes, as the names of files: equal strings may differ in Unicode form.
    static func == (a: Self, b: Self) -> Bool {
        guard let text = a.text, let other = b.text else { return a.text == b.text && a.url == b.url }
        return text.utf8.elementsEqual(other.utf8)
    }

    func hash(into hasher: inout Hasher) {
        if let text { hasher.combine(text) } else { hasher.combine(self.url) }
    }

    var description: String { "\(self.url.host() ?? "")\(self.url.path())" }
}

/// The state of a value that is being loaded.
@nonexhaustive
public enum MediaPhase<Value: Sendable>: Sendable {
    /// It is not there yet.
    case loading
    /// It is in memory.
    case loaded(Value)
    /// It cannot be loaded.
    case failed(any Error)
}
