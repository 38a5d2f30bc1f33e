public import MuxNetwork
import MuxTesting

/// Checks the rules of `HTTPTransport` on a custom transport.
///
/// ```swift
/// @Test func `my transport is a transport`() async throws {
///     try await HTTPTransportConformance.run { options in MyTransport(options) }
/// }
/// ```
///
/// The servers listen on 127.0.0.1, and rules share no server. A server sends exactly the bytes of a script,
/// and ends connections by FIN or RST. One rule starts a server on `::1` if the machine has this address. One
/// rule resolves a name under `.invalid` (RFC 6761, section 6.4). No rule uses a proxy or TLS.
///
/// Rules that expect a failure of the transport accept an `HTTPError` or an `HTTPError.TransportFailure`. A
/// transport that throws other errors, as `HTTPTransport` permits, breaks these rules.
public enum HTTPTransportConformance: RuleSuite, Sendable {
    /// Checks each rule on a separate transport, through `send`, `stream` or both.
    ///
    /// - Parameters:
    ///   - limit: The maximum real time of each rule; exceeding the limit breaks the rule.
    ///   - excluded: The rules to skip, for documented deviations of the transport.
    ///   - makeTransport: Makes a transport with the given options; called once for each checked rule.
    /// - Throws: ``ConformanceFailure`` for the first broken rule (a throwing call breaks the rule, unless
    ///   the rule expects the error); an error from `makeTransport`; `CancellationError` if the task is
    ///   cancelled.
    public static func run(
        within limit: Duration = .seconds(60),
        excluding excluded: Set<Rule> = [],
        of makeTransport: @Sendable @concurrent (HTTPTransportConfiguration) async throws -> any HTTPTransport
    ) async throws {
        for rule in Rule.allCases where !excluded.contains(rule) {
            let transport = try await makeTransport(self.options(for: rule))
            let check = self.check(of: rule)
            try await self.runCheck(of: rule.rawValue, within: limit) { try await check(transport) }
        }
    }

    /// The transport options for a rule.
    private static func options(for rule: Rule) -> HTTPTransportConfiguration {
        var options = HTTPTransportConfiguration()
        options.usesProxies = false
        // Less than the default limit of a rule: a transport that waits in vain reports a time-out.
        options.timeout = .seconds(40)
        switch rule {
        case .silence: options.timeout = Limits.short
        case .slowResponses:
            options.deadline = Limits.short
            // The deadline must end the endless redirections of this rule, not the number of redirections.
            options.maximumRedirects = 1000
        case .bodyLimit: options.maximumBodySize = Limits.body
        case .redirectionLimit: options.maximumRedirects = Limits.redirections
        default: break
        }
        return options
    }

    /// The limits of the transport that some rules exceed.
    enum Limits {
        static let short = Duration.milliseconds(250)
        /// In bytes: more than the gzip content of the rules, and less than the decoded content.
        static let body = 300
        static let redirections = 3
    }

    typealias Check = @Sendable @concurrent (any HTTPTransport) async throws -> Void

    private static func check(of rule: Rule) -> Check {
        switch rule {
        case .methods: self.methods
        case .requestFields: self.requestFields
        case .emptyFields: self.emptyFields
        case .emptyBodies: self.emptyBodies
        case .largeBodies: self.largeBodies
        case .streamedBodies: self.streamedBodies
        case .bodiesInPieces: self.bodiesInPieces
        case .slowServers: self.slowServers
        case .brokenBodies: self.brokenBodies
        case .earlyResponses: self.earlyResponses
        case .simultaneousBodies: self.simultaneousBodies
        case .framingFields: self.framingFields
        case .keptConnections: self.keptConnections
        case .manyCalls: self.manyCalls
        case .addresses: self.addresses
        case .responsesInPieces: self.responsesInPieces
        case .repeatedFields: self.repeatedFields
        case .fieldBytes: self.fieldBytes
        case .trailers: self.trailers
        case .unknownCodings: self.unknownCodings
        case .knownCodings: self.knownCodings
        case .cutContent: self.cutContent
        case .damagedContent: self.damagedContent
        case .interimResponses: self.interimResponses
        case .responsesWithoutBody: self.responsesWithoutBody
        case .unannouncedBodies: self.unannouncedBodies
        case .contradictingLengths: self.contradictingLengths
        case .bodyLimit: self.bodyLimit
        case .redirectedPosts: self.redirectedPosts
        case .redirectedMethods: self.redirectedMethods
        case .resentBodies: self.resentBodies
        case .resentStreams: self.resentStreams
        case .redirectionBodies: self.redirectionBodies
        case .unusableLocations: self.unusableLocations
        case .otherRedirections: self.otherRedirections
        case .relativeLocations: self.relativeLocations
        case .credentials: self.credentials
        case .bodiesForOthers: self.bodiesForOthers
        case .foreignSchemes: self.foreignSchemes
        case .redirectionLimit: self.redirectionLimit
        case .refusedConnections: self.refusedConnections
        case .unknownNames: self.unknownNames
        case .otherProtocols: self.otherProtocols
        case .malformedHeads: self.malformedHeads
        case .missingResponses: self.missingResponses
        case .halfHeads: self.halfHeads
        case .halfBodies: self.halfBodies
        case .halfChunks: self.halfChunks
        case .resetBodies: self.resetBodies
        case .silence: self.silence
        case .slowResponses: self.slowResponses
        case .callLimits: self.callLimits
        case .cancelledBefore: self.cancelledBefore
        case .cancelledWaiting: self.cancelledWaiting
        case .cancelledInBody: self.cancelledInBody
        case .sinkErrors: self.sinkErrors
        case .slowSinks: self.slowSinks
        }
    }
}

extension HTTPTransportConformance {
    /// A rule of `HTTPTransport`, in the order of the checks; the raw value is a sentence.
    #if hasAttribute(nonexhaustive)
    @nonexhaustive
    #endif
    public enum Rule: String, CaseIterable, Sendable, Hashable {
        // MARK: Requests

        /// `GET`, `HEAD`, `POST`, `PUT`, `PATCH` and `DELETE`, and a target with encoded and reserved
        /// characters.
        case methods = "Methods and targets are sent unchanged"

        /// Names, values and their order; a name may occur more than once.
        case requestFields = "Header fields are sent in order, and fields of the same name are not merged"

        /// A field with an empty value, or a space as the value.
        case emptyFields = "A field without a value is sent"

        /// `POST`, `PUT` and `PATCH` without a body, or with an empty body: RFC 9110, section 8.6. For `GET`
        /// and `DELETE`, the length is 0 or is not sent.
        case emptyBodies = "A missing body is sent with Content-Length 0 if the method anticipates content"

        /// 300 KB in either direction.
        case largeBodies = "Large bodies arrive completely"

        /// A stream with a known length, a stream without a length, and a stream without pieces.
        case streamedBodies = "A streamed body arrives completely"

        /// The server has the first piece before the second piece is generated.
        case bodiesInPieces = "A piece of a body is sent before the next piece is made"

        /// A body of 32 MB for a server that does not read; fewer than 8 MB may be generated.
        case slowServers = "A server that does not read suspends the stream of a body"

        /// A stream that is shorter or longer than announced, or that throws an error.
        case brokenBodies = "A call fails if the stream of the body fails or differs from the announced length"

        /// A 413 response after the head of a request with 8 MB.
        case earlyResponses = "A response before the end of the request body is returned"

        /// 8 MB, sent back by the server during the upload.
        case simultaneousBodies = "The body and the response are transferred at the same time"

        /// The fields in `HTTPHeaders.Name.framing`.
        case framingFields = "A framing field is refused before the request is sent"

        /// The server ends a kept connection between two requests by FIN, or at the second request by FIN or
        /// RST.
        case keptConnections = "A POST on a kept connection that ends fails or arrives exactly once"

        /// 200 concurrent calls.
        case manyCalls = "Each of many concurrent calls gets the response to its request"

        /// `http://[::1]/`, if the machine has that address.
        case addresses = "A server at an IPv6 address is reached"

        // MARK: Responses

        /// The server sends the body after the sink has received the head, and the second piece of the body
        /// after the sink has received the first piece.
        case responsesInPieces = "The sink receives a response while the response arrives"

        /// Two `Set-Cookie` lines, one with a comma in a date: RFC 6265, section 3.
        case repeatedFields = "Set-Cookie fields are not merged"

        /// The bytes are UTF-8, or otherwise ISO 8859-1: RFC 9110, section 5.5.
        case fieldBytes = "Bytes outside ASCII in a field value arrive as text"

        /// RFC 9112, section 7.1.2.
        case trailers = "The fields after a chunked body are trailers"

        /// The content is not decoded, and the field `Content-Encoding` stays.
        case unknownCodings = "Content with an unknown coding arrives unchanged, with the field Content-Encoding"

        /// Decoding is checked only if the transport sends `Accept-Encoding: gzip`. Every transport must send
        /// the caller's `Accept-Encoding` unchanged.
        case knownCodings = "Content with the coding gzip arrives decoded"

        /// Truncated gzip content, with a correct `Content-Length`, with a last chunk, and without a length;
        /// checked only if the transport sends `Accept-Encoding: gzip`.
        case cutContent = "Incomplete gzip content fails as truncated, even if all announced bytes arrived"

        /// Checked only if the transport sends `Accept-Encoding: gzip`.
        case damagedContent = "Content with a wrong gzip checksum is an error"

        /// 100 and 103: RFC 9110, section 15.2.
        case interimResponses = "Interim responses and their fields are ignored"

        /// Responses to `HEAD`, the statuses 204 and 304, and the length 0: RFC 9112, section 6.3.
        case responsesWithoutBody = "A response without a body ends with the head, regardless of Content-Length"

        /// The end of the connection ends the body: RFC 9112, section 6.3.
        case unannouncedBodies = "A body without a length ends at the end of the connection"

        /// Contradictory, non-numeric, negative or too large lengths: RFC 9112, section 6.3.
        case contradictingLengths = "An invalid or contradicting Content-Length is an error"

        /// `HTTPTransportConfiguration.maximumBodySize`, which applies only to `send`.
        case bodyLimit = "A decoded body over the limit is refused, with or without an announced length"

        // MARK: Redirections

        /// 301, 302 and 303.
        case redirectedPosts = "A redirected POST becomes a GET without the body and the fields of the body"

        /// 301 and 302 keep all methods except `POST`; 303 changes all methods except `HEAD` to `GET`.
        case redirectedMethods = "A redirection keeps other methods, but 303 changes all methods except HEAD to GET"

        /// 307 and 308, with a body in memory.
        case resentBodies = "A redirection with 307 or 308 sends the method and the body again"

        /// 307 and 308, with a streamed body.
        case resentStreams = "A redirection with 307 or 308 sends a streamed body again"

        /// The sink gets only one head.
        case redirectionBodies = "The head and the body of a followed redirection are not returned"

        /// A missing or empty `Location`, or a `Location` without a valid URL or without a host.
        case unusableLocations = "A redirection without a usable Location is returned"

        /// 201, 300, 304, 305, 306 and 400.
        case otherRedirections = "A response with another status and a Location is returned"

        /// RFC 9110, section 10.2.2.
        case relativeLocations =
            "A relative Location is resolved, and a Location without a fragment inherits the fragment"

        /// The credential fields of the options and of the call, with redirections to another port and back.
        case credentials = "A redirection to another port removes credentials, also after a return"

        /// `POST` with 307 and 308, `PUT` with 301 and 302, and `PATCH` with 307.
        case bodiesForOthers = "A body is not sent to another port"

        /// `ftp`, `file`, `data` and an unknown scheme.
        case foreignSchemes = "A redirection to a scheme other than http and https is refused"

        /// `HTTPTransportConfiguration.maximumRedirects`.
        case redirectionLimit = "A redirection beyond the limit is refused"

        // MARK: Failures

        /// The failure is `notConnected`.
        case refusedConnections = "A call to a port without a listener fails as not connected"

        /// The failure is `notResolved`.
        case unknownNames = "A call to a host name without an address fails as not resolved"

        /// The failure is `notHTTP`.
        case otherProtocols = "A response of another protocol fails as not HTTP"

        /// Malformed field lines and status lines, several times, each after a well-formed response.
        case malformedHeads = "Malformed lines of a head are ignored, or the response is not HTTP"

        /// The failure is `closedWithoutResponse`, after FIN and after RST.
        case missingResponses = "A connection that ends before the first byte was closed without a response"

        /// The failure is `closedWithoutResponse`, after FIN and after RST.
        case halfHeads = "A connection that ends in a head was closed without a response"

        /// The failure is `truncated`, with the announced and the received number of bytes.
        case halfBodies = "A body that is shorter than the announced length fails as truncated"

        /// The failure is `truncated`; for malformed chunks, any transport failure.
        case halfChunks = "A chunked body that ends before the last chunk fails as truncated"

        /// The failure is `truncated`.
        case resetBodies = "A body whose connection is reset fails as truncated"

        /// The failure is `timedOut`, if the server is silent before, within or after the head, or within the
        /// body.
        case silence = "A call to a silent server times out after the limit"

        /// The failure is `deadlineExceeded`; for `stream`, only the deadline of a call applies.
        case slowResponses = "A call ends at the deadline, even while the response arrives"

        /// `HTTPCall.timeout` and `HTTPCall.deadline`.
        case callLimits = "The limits of a call replace the limits of the transport"

        // MARK: Control

        /// No request is sent.
        case cancelledBefore = "A call of a cancelled task ends with CancellationError"

        /// The connection is closed.
        case cancelledWaiting = "A call that is cancelled before the response ends with CancellationError"

        /// The connection is closed.
        case cancelledInBody = "A call that is cancelled in the body ends with CancellationError"

        /// The caller gets the error. If the response is incomplete, the connection is closed.
        case sinkErrors = "The call ends with the error of the sink"

        /// A response of 32 MB for a waiting sink; the server can send fewer than 8 MB.
        case slowSinks = "A waiting sink suspends the server"
    }
}
