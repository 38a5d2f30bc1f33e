public import Foundation
import MuxKit

/// A memory cache of decoded files: images, waveforms, parsed documents.
///
/// ```swift
/// let images = DecodedMedia<Image>(maximumCost: 64 << 20) { file in
///     let image = try Image(contentsOf: file)
///     return (image, cost: image.byteCount)
/// }
/// let image = try await images.request(url: photo)
/// ```
///
/// The cache is a `MultiplexerMap` that fetches a value by decoding a file. A closure decodes, so the cache
/// depends on no format and no view framework.
///
/// **Concurrent calls.** Concurrent requests for one URL, or for one key of the app, share a decoding, which
/// runs on a thread that may block.
///
/// **Cancellation.** A cancelled caller resumes at once. A running decoding completes even without callers,
/// and its value is kept.
///
/// **After a failure.** If a file cannot be decoded, the file is removed, fetched once more and decoded; the
/// caller gets the error of the second attempt. A local file (scheme `file`) is neither removed nor decoded
/// again.
///
/// **On disk.** The cache stores no files; its ``AsyncMedia`` stores the files. A sign-out also removes the
/// values from memory.
public final actor DecodedMedia<Value: Sendable> {
    /// Decodes a file and returns the value with its cost in memory, in any unit.
    public typealias Decoder = @Sendable (URL) throws -> (Value, cost: Int)

    private struct Decoded: Sendable {
        let value: Value
        let cost: Int
    }

    private nonisolated let map: MultiplexerMap<DecodedMediaKey, Decoded>
    private nonisolated let media: AsyncMedia

    /// Makes an empty cache.
    ///
    /// - Parameters:
    ///   - media: Fetches the files.
    ///   - maximumCount: The maximum number of values; `nil` for no limit.
    ///   - maximumCost: The maximum sum of the costs; `nil` for no limit.
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
                try await Self.fetchAndDecode(key.key.url, of: media) { file in
                    let (value, cost) = try decode(file)
                    return Decoded(value: value, cost: cost)
                }
            }
        )
    }

    /// The value in memory, if present; never reads, decodes or fetches.
    ///
    /// - Parameter url: The URL of the file.
    /// - Returns: The value; `nil` if absent.
    /// - Complexity: O(1).
    public nonisolated func cachedValue(url: URL) -> Value? { self.map.hit(key: self.key(of: url))?.value }

    private nonisolated func key(of url: URL) -> DecodedMediaKey {
        DecodedMediaKey(url: url, text: self.media.core.key?(url))
    }

    /// The current phase of `url`: loaded if the value is in memory, otherwise loading.
    ///
    /// - Parameter url: The URL of the file.
    /// - Returns: ``MediaPhase/loaded(_:)`` or ``MediaPhase/loading``.
    /// - Complexity: O(1).
    public nonisolated func phase(of url: URL) -> MediaPhase<Value> {
        self.cachedValue(url: url).map { .loaded($0) } ?? .loading
    }

    /// Loads the value of `url`, and returns the value or the error.
    ///
    /// - Parameter url: The URL of the file.
    /// - Returns: ``MediaPhase/loaded(_:)`` or ``MediaPhase/failed(_:)``; ``MediaPhase/loading`` if the task
    ///   is cancelled.
    public nonisolated(nonsending) func load(_ url: URL) async -> MediaPhase<Value> {
        do {
            return .loaded(try await self.request(url: url))
        } catch is CancellationError {
            return .loading
        } catch {
            return .failed(error)
        }
    }

    /// Returns the value of `url` from memory; otherwise decodes the file, which is fetched if absent.
    ///
    /// - Parameter url: The URL of the file.
    /// - Returns: The value.
    /// - Throws: The error of ``AsyncMedia/request(url:sha256:)`` or of the decoder, or `CancellationError`.
    public nonisolated(nonsending) func request(url: URL) async throws -> Value {
        try await self.map.request(key: self.key(of: url)).value
    }

    /// Fetches and decodes files in advance; the fetches have a lower priority than requests.
    ///
    /// Returns when each value was loaded, has failed, or is no longer prefetched. A cancellation of the task
    /// stops the prefetch. A call of ``AsyncMedia/cancelPrefetch(_:)`` on the media stops a fetch, but not
    /// the decoding of a file.
    ///
    /// - Parameter urls: The URLs of the files.
    public nonisolated func prefetch(_ urls: some Sequence<URL>) async {
        await withDiscardingTaskGroup { group in
            for url in urls where self.map.cachedValue(key: self.key(of: url)) == nil {
                group.addTask(priority: .low) {
                    await self.media.prefetch([url])
                    // After a failed prefetch, `request(url:)` would fetch the file again, with a higher
                    // priority.
                    guard self.media.cachedValue(url: url) != nil, !Task.isCancelled else { return }
                    _ = try? await self.request(url: url)
                }
            }
        }
    }

    /// Removes all values from memory; the files stay.
    public nonisolated func clearMemory() { self.map.clearMemory() }

    // MARK: - Decoding

    /// Fetches and decodes a file; a remote file that cannot be decoded is removed and fetched once more.
    private static func fetchAndDecode(
        _ url: URL,
        of media: AsyncMedia,
        _ decode: @escaping @Sendable (URL) throws -> Decoded
    ) async throws -> Decoded {
        let decodeFile = {
            try await media.withFile(url: url) { file in await BlockingWork.run { Result { try decode(file) } } }
        }
        let first = try await decodeFile()
        guard case .failure = first, !url.isFileURL else { return try first.get() }
        try await media.clear(url: url)
        return try await decodeFile().get()
    }
}

/// The key of a file.
///
/// The description contains only the host and the path of the URL, because a query may contain credentials.
private struct DecodedMediaKey: Hashable, Sendable, CustomStringConvertible {
    let url: URL
    /// The key of the app; `nil` if the URL is the key.
    let text: String?

    // Compares bytes, because the name of the file depends on the bytes: equal strings may differ in Unicode
    // form.
    static func == (a: Self, b: Self) -> Bool {
        guard let text = a.text, let other = b.text else { return a.text == b.text && a.url == b.url }
        return text.utf8.elementsEqual(other.utf8)
    }

    func hash(into hasher: inout Hasher) {
        if let text { hasher.combine(text) } else { hasher.combine(self.url) }
    }

    var description: String { "\(self.url.host() ?? "")\(self.url.path())" }
}

/// The phase of loading a value.
#if hasAttribute(nonexhaustive)
@nonexhaustive
#endif
public enum MediaPhase<Value: Sendable>: Sendable {
    /// The value is not loaded yet.
    case loading
    /// The value is in memory.
    case loaded(Value)
    /// The load has failed.
    case failed(any Error)
}
