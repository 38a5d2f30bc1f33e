import MuxKit
import MuxNetwork

/// The transports that have to behave alike.
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
