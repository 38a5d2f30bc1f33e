import Foundation

extension HTTPResponse {
    /// How long the server wants to be left alone, as `Retry-After` says it: RFC 9110, section 10.2.3.
    ///
    /// A time of day counts from the answer's own `Date`; without one, from this device's clock.
    public var retryAfter: Duration? {
        HTTPRetryAfter.parse(self.headers[.retryAfter], date: self.headers[.date], now: Date())
    }
}
