/// How long after its time to live an entry may be used, where that is known of the entry itself.
@usableFromInline
package struct StaleLimits: Sendable, Hashable {
    /// For how long it answers at once while it is renewed; `nil` for what the policy says.
    @usableFromInline package var whileRevalidate: Duration?
    /// For how long it answers for a failed fetch; `nil` for what the policy says.
    @usableFromInline package var ifError: Duration?

    @inlinable
    package init(whileRevalidate: Duration? = nil, ifError: Duration? = nil) {
        self.whileRevalidate = whileRevalidate
        self.ifError = ifError
    }
}
