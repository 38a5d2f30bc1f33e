public import MuxKit
import Synchronization
public import Tracing

/// Makes a span for each fetch, and for each request that joins a fetch, with swift-distributed-tracing.
///
/// ```swift
/// let repository = MuxRepository(observer: TracingObserver())
/// ```
///
/// The span of a fetch is a child of the span of the request that began the fetch. A request that joins has a
/// separate span, a child of the span of its caller. This span links to the span of the fetch and ends with
/// the fetch, even if the caller leaves earlier. Spans are named after the multiplexer; keys are not
/// attributes.
///
/// **Concurrent calls.** Any member may be called from any thread.
public final class TracingObserver: MuxObserver {
    /// `false`: a hit takes no time.
    public var observesHits: Bool { false }

    private struct Key: Hashable {
        let name: String?
        let key: String?
    }

    private struct Fetch: Sendable {
        let span: any Span
        var joins: [any Span] = []
    }

    private struct State {
        var fetches: [Key: [Fetch]] = [:]
        var spanCount = 0
    }

    /// The maximum number of open spans; further fetches and requests have no span.
    private static let maximumSpans = 10_000

    private let tracer: any Tracer
    private let state = Mutex(State())

    /// Makes an observer.
    ///
    /// - Parameter tracer: The tracer of the spans.
    public init(tracer: any Tracer = InstrumentationSystem.tracer) { self.tracer = tracer }

    /// Begins or ends a span, if the event belongs to a fetch.
    public func observe(_ event: MuxEvent) {
        let key = Key(name: event.name ?? event.cacheKey, key: event.key)
        switch event.kind {
        case .fetchStarted: self.began(key)
        case .joined: self.joined(key)
        case .fetched, .fetchFailed: self.ended(key, event.reason)
        default: break
        }
    }

    private func began(_ key: Key) {
        guard self.state.withLock({ $0.spanCount < Self.maximumSpans }) else { return }
        let span = self.tracer.startSpan("fetch \(key.name ?? "")")
        self.state.withLock { state in
            state.fetches[key, default: []].append(Fetch(span: span))
            state.spanCount += 1
        }
    }

    private func joined(_ key: Key) {
        let leader = self.state.withLock { state in
            state.spanCount < Self.maximumSpans ? state.fetches[key]?.last?.span.context : nil
        }
        guard let leader else { return }
        let span = self.tracer.startSpan("wait for \(key.name ?? "")")
        span.addLink(SpanLink(context: leader, attributes: [:]))
        let isAdded = self.state.withLock { state in
            guard let last = state.fetches[key]?.indices.last else { return false }
            state.fetches[key]?[last].joins.append(span)
            state.spanCount += 1
            return true
        }
        if !isAdded { span.end() }
    }

    private func ended(_ key: Key, _ reason: MuxEvent.Reason?) {
        let fetch = self.state.withLock { state -> Fetch? in
            guard var fetches = state.fetches.removeValue(forKey: key) else { return nil }
            let first = fetches.removeFirst()
            if !fetches.isEmpty { state.fetches[key] = fetches }
            state.spanCount -= 1 + first.joins.count
            return first
        }
        guard let fetch else { return }
        for span in fetch.joins + [fetch.span] {
            if let reason { span.setStatus(SpanStatus(code: .error, message: "\(reason)")) }
            span.end()
        }
    }
}
