/// What a transport without credentials answers to a challenge of the URL loading system.
package enum HTTPChallengeAnswer: Sendable, Hashable {
    /// The system goes on as it would by itself: it checks the server's certificate, and shows none of its own.
    case performDefaultHandling

    /// The system goes on without credentials, so that the refusal arrives as it is, with its body.
    case rejectProtectionSpace

    /// The system ends the request; the head of the refusal is known from the challenge.
    ///
    /// On Apple platforms this would cost the body of a 401.
    case cancelAuthenticationChallenge

    /// The answer to a challenge.
    ///
    /// - Parameters:
    ///   - method: The authentication method of the challenge's protection space.
    ///   - goesOnAfterRejection: Whether the system goes on without credentials once it is told to.
    package init(to method: String, goesOnAfterRejection: Bool) {
        guard Self.methodsOfHTTP.contains(method) else {
            self = .performDefaultHandling
            return
        }
        self = goesOnAfterRejection ? .rejectProtectionSpace : .cancelAuthenticationChallenge
    }

    /// The methods by which a server, or a proxy, asks for a name and a password, as both Foundations spell them.
    private static let methodsOfHTTP: Set<String> = [
        "NSURLAuthenticationMethodDefault", "NSURLAuthenticationMethodHTTPBasic", "NSURLAuthenticationMethodHTTPDigest",
        "NSURLAuthenticationMethodHTMLForm", "NSURLAuthenticationMethodNegotiate", "NSURLAuthenticationMethodNTLM",
    ]
}
