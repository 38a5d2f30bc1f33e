#if canImport(SwiftUI)
public import Foundation
public import MuxNetwork
public import SwiftUI

/// Shows the image at a URL: at once if it is in memory, else a placeholder until it is there or has failed.
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
///
/// A sample to copy. Written from the documentation; compiled here against stand-ins only (`.ci/apple-lines`).
public struct RemoteImage<Value: Sendable, Content: View>: View {
    private let url: URL
    private let media: DecodedMedia<Value>
    private let content: (MediaPhase<Value>) -> Content
    /// What was loaded, and for which URL: a view that is used again for another one does not show the old image.
    @State private var loaded: (url: URL, phase: MediaPhase<Value>)?

    /// Shows the image at a URL.
    ///
    /// - Parameters:
    ///   - url: Where the image is.
    ///   - media: Fetches, decodes and keeps it.
    ///   - content: What to show while it loads, when it is there, and when it failed.
    public init(
        url: URL,
        in media: DecodedMedia<Value>,
        @ViewBuilder content: @escaping (MediaPhase<Value>) -> Content
    ) {
        self.url = url
        self.media = media
        self.content = content
    }

    /// What is in memory is looked up while the view is drawn, so that there is no flash.
    public var body: some View {
        self.content(self.phase).task(id: self.url) {
            if case .loaded = self.media.phase(of: self.url) { return }
            let phase = await self.media.load(self.url)
            if !Task.isCancelled { self.loaded = (self.url, phase) }
        }
    }

    private var phase: MediaPhase<Value> {
        if let loaded = self.loaded, loaded.url == self.url { return loaded.phase }
        return self.media.phase(of: self.url)
    }
}
#endif
