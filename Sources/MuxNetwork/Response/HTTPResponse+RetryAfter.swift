extension HTTPResponse {
    /// How long the server wants to be left alone, as seconds in `Retry-After` say it: RFC 9110, section 10.2.3.
    public var retryAfter: Duration? {
        guard let text = self.headers[.retryAfter], !text.isEmpty, text.utf8.allSatisfy({ (48...57).contains($0) })
        else { return nil }
        return .seconds(min(Int64(text) ?? .max, Int64(Int32.max)))
    }
}
