import MuxKit
import MuxNetwork

/// The transports that must have the same behaviour.
enum TransportKind: String, CaseIterable, Sendable {
    case system
    case urlSession

    func make(
        _ options: HTTPTransportConfiguration = .init(),
        clock: any Clock<Duration> = ContinuousClock()
    ) -> any ValidatedTransport {
        switch self {
        case .system: SystemTransport(options, clock: clock)
        case .urlSession: URLSessionTransport(options, clock: clock)
        }
    }
}
