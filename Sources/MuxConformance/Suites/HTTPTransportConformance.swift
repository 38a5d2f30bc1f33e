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
/// The rules start servers on 127.0.0.1, and on `::1` if the machine has this address; no two rules share a
/// server. The servers send well-formed and malformed responses, and end connections by FIN or RST. One rule
/// resolves a name under `.invalid` (RFC 6761, section 6.4). No rule needs a proxy or TLS.
///
/// A rule that names a failure, such as `truncated`, accepts an `HTTPError` with the failure, and the
/// `HTTPError.TransportFailure` itself. `HTTPTransport` permits other types of errors; a transport that
/// throws an error of another type breaks such a rule.
public enum HTTPTransportConformance: RuleSuite, Sendable {
    /// Checks each rule that is not excluded on a separate transport, through `send`, `stream` or both.
    ///
    /// - Parameters:
    ///   - limit: The maximum real time of each rule; exceeding the limit breaks the rule.
    ///   - excluded: The rules to skip, for documented deviations of the transport.
    ///   - makeTransport: Makes a transport with the given options; called once for each checked rule.
    /// - Throws: ``ConformanceFailure`` for the first broken rule (an unexpected error during the check also
    ///   breaks the rule); an error from `makeTransport`; `CancellationError` if the task is cancelled.
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
        // Less than the default limit of a rule: a transport that waits in vain can report a time-out before
        // the rule ends.
        options.timeout = .seconds(40)
        switch rule {
        case .silence: options.timeout = Limits.short
        case .slowResponses:
            options.deadline = Limits.short
            // A server of this rule redirects endlessly: the call must reach the deadline before the maximum
            // number of redirections.
            options.maximumRedirects = 1000
        case .bodyLimit: options.maximumBodySize = Limits.body
        case .redirectionLimit: options.maximumRedirects = Limits.redirections
        default: break
        }
        return options
    }

    /// The limits of the transport in the rules that exceed a limit.
    enum Limits {
        static let short = Duration.milliseconds(250)
        /// The maximum body in bytes: more than the gzip content of the rules, less than the decoded content.
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
    /// A rule of `HTTPTransport`, with the rule's sentence as the raw value.
    ///
    /// The order of the cases is the order of the checks.
    #if hasAttribute(nonexhaustive)
    @nonexhaustive
    #endif
    public enum Rule: String, CaseIterable, Sendable, Hashable {
        // MARK: Requests

        /// `GET`, `HEAD`, `POST`, `PUT`, `PATCH` and `DELETE`, and a target with encoded and reserved
        /// characters.
        case methods = "Methods and targets are sent unchanged"

        /// The server gets the names, values and order unchanged; a name may occur more than once.
        case requestFields = "Header fields are sent in order, and fields of the same name are not merged"

        /// A field with an empty value, or a space as the value.
        case emptyFields = "A field without a value is sent"

        /// `POST`, `PUT` and `PATCH` without a body, or with an empty body: RFC 9110, section 8.6. With `GET`
        /// and `DELETE`, a `Content-Length` may be missing, and must otherwise be 0.
        case emptyBodies =
            "A missing or empty body is sent with Content-Length 0 if the method anticipates content"

        /// 300 KB in each direction.
        case largeBodies = "Large bodies arrive completely"

        /// A stream with a known length, a stream without a length, and a stream without pieces.
        case streamedBodies = "A streamed body arrives completely"

        /// The server receives the first piece before the second piece is generated.
        case bodiesInPieces = "A piece of a body is sent before the next piece is made"

        /// A body of 32 MB; fewer than 8 MB may be generated before the server reads the first byte.
        case slowServers = "A server that does not read suspends the stream of a body"

        /// A stream that is shorter or longer than announced, or that throws an error.
        ///
        /// The call throws the error of the stream, or a `ConnectivityError` whose `isConnectivityFailure`
        /// is `false`. The server gets no complete request.
        case brokenBodies = "A call fails if the stream of the body fails or differs from the announced length"

        /// A 413 response after the head of a request with a body of 8 MB.
        case earlyResponses = "A response before the end of the request body is returned"

        /// 8 MB, sent back by the server during the upload.
        case simultaneousBodies = "The body and the response are transferred at the same time"

        /// The fields in `HTTPHeaders.Name.framing`; the failure is an `HTTPError.PreparationFailure`.
        case framingFields = "A framing field is refused before the request is sent"

        /// The server ends the connection by FIN after the first response, or by FIN or RST after the second
        /// request. The `POST` may fail with a connectivity failure.
        case keptConnections = "A POST arrives at most once, even if the server ends the kept connection"

        /// 200 concurrent calls.
        case manyCalls = "Each of many concurrent calls gets the response to its request"

        /// A server on `::1`; checked only if the machine has this address.
        case addresses = "A server at an IPv6 address is reached"

        // MARK: Responses

        /// The server sends no byte of the body before the sink has the head, and no second piece before the
        /// sink has bytes of the first piece.
        case responsesInPieces = "The sink receives a response while the response arrives"

        /// Two `Set-Cookie` lines, one with a comma in a date: RFC 6265, section 3.
        case repeatedFields = "Set-Cookie fields are not merged"

        /// The bytes are UTF-8, or otherwise ISO 8859-1: RFC 9110, section 5.5.
        case fieldBytes = "Bytes outside ASCII in a field value arrive as text"

        /// RFC 9112, section 7.1.2.
        case trailers = "The fields after a chunked body are trailers"

        /// The codings `x-mux` and `gzip, x-mux`.
        case unknownCodings = "Content with an unknown coding arrives unchanged, with the field Content-Encoding"

        /// Decoding is checked only if the transport itself adds an `Accept-Encoding` with `gzip`. Every
        /// transport must send the caller's `Accept-Encoding` unchanged.
        case knownCodings = "Content with the coding gzip arrives decoded"

        /// Truncated gzip content, with a correct `Content-Length`, with a last chunk, and without a length;
        /// checked under the same condition as ``knownCodings``.
        case cutContent = "Incomplete gzip content fails as truncated, even if all announced bytes arrived"

        /// The call fails with any transport failure; checked under the same condition as ``knownCodings``.
        case damagedContent = "Content with a wrong gzip checksum is an error"

        /// The statuses 100 and 103: RFC 9110, section 15.2.
        case interimResponses = "Interim responses and their fields are ignored"

        /// Responses to `HEAD`, the statuses 204 and 304, and the length 0: RFC 9112, section 6.3.
        case responsesWithoutBody = "A response without a body ends with the head, regardless of Content-Length"

        /// FIN ends the body: RFC 9112, section 6.3. After RST, see ``resetBodies``.
        case unannouncedBodies = "A body without a length ends at the end of the connection"

        /// Contradictory, non-numeric, negative or too large lengths: RFC 9112, section 6.3. The call fails
        /// with any transport failure.
        case contradictingLengths = "An invalid or contradicting Content-Length is an error"

        /// The failure is `bodyTooLarge`; `HTTPTransportConfiguration.maximumBodySize` applies only to
        /// `send`.
        case bodyLimit = "A decoded body over the limit is refused, with or without an announced length"

        // MARK: Redirections

        /// 301, 302 and 303.
        case redirectedPosts = "A redirected POST becomes a GET without the body and the fields of the body"

        /// A kept method keeps the body; a `GET` in place of another method has no body.
        case redirectedMethods =
            "301 and 302 keep all methods except POST, and 303 changes all methods except HEAD to GET"

        /// 307 and 308, with a body in memory.
        case resentBodies = "A redirection with 307 or 308 sends the method and the body again"

        /// 307 and 308, with a streamed body.
        case resentStreams = "A redirection with 307 or 308 sends a streamed body again"

        /// The status 302, with a short body and with a body of about 1 MB.
        case redirectionBodies = "The head and the body of a followed redirection are not returned"

        /// A missing or empty `Location`, an invalid URL, or an `http` URL without a host.
        case unusableLocations = "A redirection without a usable Location is returned"

        /// The statuses 201, 300, 304, 305, 306 and 400.
        case otherRedirections = "A response with another status and a Location is returned"

        /// RFC 9110, section 10.2.2.
        case relativeLocations =
            "A relative Location is resolved, and a Location without a fragment inherits the fragment"

        /// The credential fields of the options and of the call, with redirections to another port and back.
        case credentials =
            "A redirection to another port removes credentials, and a return does not restore the credentials"

        /// `POST` with 307 and 308, `PUT` with 301 and 302, and `PATCH` with 307. The failure is
        /// `redirectRefused`.
        case bodiesForOthers = "A body is not sent to another port"

        /// `ftp`, `file`, `data` and an unknown scheme. The failure is `redirectRefused`.
        case foreignSchemes = "A redirection to a scheme other than http and https is refused"

        /// The failure is `redirectRefused`, after `HTTPTransportConfiguration.maximumRedirects`
        /// redirections.
        case redirectionLimit = "A redirection beyond the limit is refused"

        // MARK: Failures

        /// The failure is `notConnected`.
        case refusedConnections = "A call to a port without a listener fails as not connected"

        /// The failure is `notResolved`.
        case unknownNames = "A call to a host name without an address fails as not resolved"

        /// The failure is `notHTTP`.
        case otherProtocols = "A response of another protocol fails as not HTTP"

        /// Heads with malformed lines, or with the unexpected status 101; each head several times, after a
        /// well-formed response.
        case malformedHeads = "Malformed lines of a head are ignored, or the response is not HTTP"

        /// The failure is `closedWithoutResponse`, after FIN and after RST.
        case missingResponses = "A connection that ends before the first byte fails as closed without a response"

        /// The failure is `closedWithoutResponse`, after FIN and after RST, and also after an interim
        /// response.
        case halfHeads = "A connection that ends within a head fails as closed without a response"

        /// The failure is `truncated`, with the announced and the received number of bytes.
        case halfBodies = "A body that is shorter than the announced length fails as truncated"

        /// The failure is `truncated`; with a malformed chunk, any transport failure.
        case halfChunks = "A chunked body that ends before the last chunk fails as truncated"

        /// The failure is `truncated`.
        case resetBodies = "A body whose connection is reset fails as truncated"

        /// The failure is `timedOut`, and the connection is closed. The server is silent before, within or
        /// after the head, or within the body; pauses below the limit are no failure.
        case silence = "A call to a silent server times out after the limit"

        /// The failure is `deadlineExceeded`, with and without redirections. The deadline of the options
        /// applies to `send`, and not to `stream`.
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

        /// A response of 32 MB; the server can send fewer than 8 MB while the sink waits.
        case slowSinks = "A waiting sink suspends the server"
    }
}
