public import Foundation
public import MuxKit

/// What all requests of an ``HTTPClient`` have in common.
public struct HTTPConfiguration: Sendable {
    /// What the client asks for (`Accept`), and what a body is that does not say; JSON.
    public var contentType: HTTPMediaType = .json

    /// Header fields of every request without private headers; none.
    ///
    /// A request's own fields of the same names count more.
    public var headers: HTTPHeaders = [:]

    /// The limits of the client's own transport: 20 s of silence, 40 s in all, 10 connections to a host.
    ///
    /// A transport that is handed to the client has limits of its own; of these, only the first counts then.
    public var transport = HTTPTransportOptions()

    /// Does nothing: a runner renews a token before its end, by `RunnerPolicy/leeway`.
    @available(*, deprecated, message: "Set the leeway of the runner's RunnerPolicy.")
    public var tokenLeeway: Duration {
        get { .seconds(30) }
        set { _ = newValue }
    }

    /// Names whose answers these are, where several accounts are used at the same time; `nil` for the one of the session.
    ///
    /// It is part of the key of everything that is cached, and is sent nowhere.
    public var viewer: String?

    /// How often a request is sent again that met trouble which may pass; `nil`, the default, for never.
    ///
    /// Only requests of idempotent methods are (``HTTPMethod/isIdempotent``), unless the policy says otherwise. A server that
    /// wants to be left alone (`Retry-After`) is. In the end the caller gets what the last attempt met.
    public var retry: RetryPolicy?

    /// Bounds the retries of all requests to a host, if there are any.
    public var retryBudget = RetryBudget.shared

    /// Measures the waits between attempts, and how long a server wants to be left alone.
    public var clock: any Clock<Duration> = ContinuousClock()

    /// The time of day, by which answers are dated.
    public var wallTime: @Sendable () -> Date = { Date() }

    /// The defaults.
    public init() {}

    /// The defaults.
    public static let `default` = HTTPConfiguration()
}
