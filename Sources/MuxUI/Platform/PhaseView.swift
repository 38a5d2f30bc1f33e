#if canImport(SwiftUI)
public import Foundation
public import MuxNetwork
public import SwiftUI

// Written from the documentation of SwiftUI; compiled here against stand-ins only (`.ci/apple-lines`).

/// Shows a followed value, and follows the value while the view is on the screen.
///
/// ```swift
/// PhaseView(articles) { articles in
///     List(articles) { article in Text(article.title) }
/// }
/// .refreshable { await articles.reload() }
/// ```
///
/// Without a value, the view shows an activity indicator during a fetch, the text of the error, or nothing.
/// For other views, use ``ObservedValue/phase``.
public struct PhaseView<Value: Sendable, Content: View>: View {
    private let observed: ObservedValue<Value>
    private let content: (Value) -> Content

    /// Shows a followed value.
    ///
    /// - Parameters:
    ///   - observed: The object that follows the value.
    ///   - content: The view for a value, fresh or stale.
    public init(_ observed: ObservedValue<Value>, @ViewBuilder content: @escaping (Value) -> Content) {
        self.observed = observed
        self.content = content
    }

    /// The view of the phase.
    public var body: some View {
        self.phase.task(id: ObjectIdentifier(self.observed)) { await self.observed.follow() }
    }

    @ViewBuilder private var phase: some View {
        switch self.observed.phase {
        case .value(let value): self.content(value)
        case .loading: ProgressView()
        case .failure(let error):
            ContentUnavailableView(error.localizedDescription, systemImage: "exclamationmark.triangle")
        // Not an `EmptyView`, whose tasks do not run.
        case .empty: Color.clear
        }
    }
}

/// Shows the image at a URL: at once if in memory, otherwise a placeholder until the load ends or fails.
///
/// ```swift
/// let images = DecodedMedia<Image>(maximumCost: 64 << 20) { file in try decode(file) }
///
/// RemoteImage(url: photo, in: images) { phase in
///     switch phase {
///     case .loaded(let image): image.resizable().scaledToFit()
///     case .failed: Image(systemName: "photo.badge.exclamationmark")
///     default: ProgressView()
///     }
/// }
/// ```
public struct RemoteImage<Value: Sendable, Content: View>: View {
    private let url: URL
    private let media: DecodedMedia<Value>
    private let content: (MediaPhase<Value>) -> Content
    /// The result of the load, with the URL: a view that is reused for another URL does not show the old
    /// image.
    @State private var loaded: (url: URL, phase: MediaPhase<Value>)?

    /// Shows the image at a URL.
    ///
    /// - Parameters:
    ///   - url: The URL of the image.
    ///   - media: The cache that fetches and decodes the image.
    ///   - content: The view for each phase: loading, loaded and failed.
    public init(
        url: URL,
        in media: DecodedMedia<Value>,
        @ViewBuilder content: @escaping (MediaPhase<Value>) -> Content
    ) {
        self.url = url
        self.media = media
        self.content = content
    }

    /// The view of the phase.
    ///
    /// An image in memory is looked up while the view is drawn, so that the view does not flash.
    public var body: some View {
        self.content(self.phase).task(id: self.url) {
            var phase = self.media.phase(of: self.url)
            if case .loaded = phase {
                // The state keeps the image after an eviction from memory, because this task does not run
                // again for the same URL.
                self.loaded = (self.url, phase)
                return
            }
            phase = await self.media.load(self.url)
            if !Task.isCancelled { self.loaded = (self.url, phase) }
        }
    }

    private var phase: MediaPhase<Value> {
        if let loaded = self.loaded, loaded.url == self.url { return loaded.phase }
        return self.media.phase(of: self.url)
    }
}
#endif
