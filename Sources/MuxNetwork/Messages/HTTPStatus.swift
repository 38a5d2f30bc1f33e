/// A status code (RFC 9110, section 15).
///
/// Any number is a status.
///
/// ```swift
/// if response.status == .notFound { … }
/// if response.status.kind == .serverError { … }
/// ```
public struct HTTPStatus: RawRepresentable, Sendable, Hashable, Comparable, CustomStringConvertible {
    /// The classes of status codes, by the first digit.
    public enum Kind: Sendable, Hashable {
        /// 1xx: interim.
        case informational

        /// 2xx.
        case success

        /// 3xx.
        case redirection

        /// 4xx: the request is at fault.
        case clientError

        /// 5xx: the server is at fault.
        case serverError

        /// Any other number.
        case unknown
    }

    /// The number.
    public let rawValue: Int

    /// Makes a status with any number.
    public init(rawValue: Int) { self.rawValue = rawValue }

    /// Makes a status with any number.
    public init(_ code: Int) { self.rawValue = code }

    /// The number.
    public var code: Int { self.rawValue }

    /// The class of the number.
    public var kind: Kind {
        switch self.rawValue {
        case 100...199: .informational
        case 200...299: .success
        case 300...399: .redirection
        case 400...499: .clientError
        case 500...599: .serverError
        default: .unknown
        }
    }

    /// The phrase of the status in the IANA registry; `nil` for a number that is unregistered, unused,
    /// temporary or obsolete.
    public var phrase: String? { Self.phrases[self.rawValue] }

    /// Whether the number of `a` is smaller.
    public static func < (a: Self, b: Self) -> Bool { a.rawValue < b.rawValue }

    /// The number and the phrase, such as "404 Not Found"; only the number without a ``phrase``.
    public var description: String { self.phrase.map { "\(self.rawValue) \($0)" } ?? "\(self.rawValue)" }
}

extension HTTPStatus: ExpressibleByIntegerLiteral {
    /// Makes a status from a literal.
    public init(integerLiteral code: Int) { self.rawValue = code }
}

extension HTTPStatus {
    /// 100 Continue.
    public static let `continue`: Self = 100
    /// 101 Switching Protocols.
    public static let switchingProtocols: Self = 101
    /// 102 Processing.
    public static let processing: Self = 102
    /// 103 Early Hints.
    public static let earlyHints: Self = 103
    /// 200 OK.
    public static let ok: Self = 200
    /// 201 Created.
    public static let created: Self = 201
    /// 202 Accepted.
    public static let accepted: Self = 202
    /// 203 Non-Authoritative Information.
    public static let nonAuthoritativeInformation: Self = 203
    /// 204 No Content.
    public static let noContent: Self = 204
    /// 205 Reset Content.
    public static let resetContent: Self = 205
    /// 206 Partial Content.
    public static let partialContent: Self = 206
    /// 207 Multi-Status.
    public static let multiStatus: Self = 207
    /// 208 Already Reported.
    public static let alreadyReported: Self = 208
    /// 226 IM Used.
    public static let imUsed: Self = 226
    /// 300 Multiple Choices.
    public static let multipleChoices: Self = 300
    /// 301 Moved Permanently.
    public static let movedPermanently: Self = 301
    /// 302 Found.
    public static let found: Self = 302
    /// 303 See Other.
    public static let seeOther: Self = 303
    /// 304 Not Modified.
    public static let notModified: Self = 304
    /// 305 Use Proxy.
    public static let useProxy: Self = 305
    /// 307 Temporary Redirect.
    public static let temporaryRedirect: Self = 307
    /// 308 Permanent Redirect.
    public static let permanentRedirect: Self = 308
    /// 400 Bad Request.
    public static let badRequest: Self = 400
    /// 401 Unauthorized.
    public static let unauthorized: Self = 401
    /// 402 Payment Required.
    public static let paymentRequired: Self = 402
    /// 403 Forbidden.
    public static let forbidden: Self = 403
    /// 404 Not Found.
    public static let notFound: Self = 404
    /// 405 Method Not Allowed.
    public static let methodNotAllowed: Self = 405
    /// 406 Not Acceptable.
    public static let notAcceptable: Self = 406
    /// 407 Proxy Authentication Required.
    public static let proxyAuthenticationRequired: Self = 407
    /// 408 Request Timeout.
    public static let requestTimeout: Self = 408
    /// 409 Conflict.
    public static let conflict: Self = 409
    /// 410 Gone.
    public static let gone: Self = 410
    /// 411 Length Required.
    public static let lengthRequired: Self = 411
    /// 412 Precondition Failed.
    public static let preconditionFailed: Self = 412
    /// 413 Content Too Large.
    public static let contentTooLarge: Self = 413
    /// 414 URI Too Long.
    public static let uriTooLong: Self = 414
    /// 415 Unsupported Media Type.
    public static let unsupportedMediaType: Self = 415
    /// 416 Range Not Satisfiable.
    public static let rangeNotSatisfiable: Self = 416
    /// 417 Expectation Failed.
    public static let expectationFailed: Self = 417
    /// 421 Misdirected Request.
    public static let misdirectedRequest: Self = 421
    /// 422 Unprocessable Content.
    public static let unprocessableContent: Self = 422
    /// 423 Locked.
    public static let locked: Self = 423
    /// 424 Failed Dependency.
    public static let failedDependency: Self = 424
    /// 425 Too Early.
    public static let tooEarly: Self = 425
    /// 426 Upgrade Required.
    public static let upgradeRequired: Self = 426
    /// 428 Precondition Required.
    public static let preconditionRequired: Self = 428
    /// 429 Too Many Requests.
    public static let tooManyRequests: Self = 429
    /// 431 Request Header Fields Too Large.
    public static let requestHeaderFieldsTooLarge: Self = 431
    /// 451 Unavailable For Legal Reasons.
    public static let unavailableForLegalReasons: Self = 451
    /// 500 Internal Server Error.
    public static let internalServerError: Self = 500
    /// 501 Not Implemented.
    public static let notImplemented: Self = 501
    /// 502 Bad Gateway.
    public static let badGateway: Self = 502
    /// 503 Service Unavailable.
    public static let serviceUnavailable: Self = 503
    /// 504 Gateway Timeout.
    public static let gatewayTimeout: Self = 504
    /// 505 HTTP Version Not Supported.
    public static let httpVersionNotSupported: Self = 505
    /// 506 Variant Also Negotiates.
    public static let variantAlsoNegotiates: Self = 506
    /// 507 Insufficient Storage.
    public static let insufficientStorage: Self = 507
    /// 508 Loop Detected.
    public static let loopDetected: Self = 508
    /// 511 Network Authentication Required.
    public static let networkAuthenticationRequired: Self = 511

    /// The phrases of the IANA registry.
    private static let phrases: [Int: String] = .init(
        uniqueKeysWithValues: Self.runs.flatMap { first, phrases in
            phrases.enumerated().map { (first + $0.offset, $0.element) }
        }
    )

    /// Numbers, each with the phrase of the number and the phrases of the next numbers.
    private static let runs: KeyValuePairs<Int, [String]> = [
        100: ["Continue", "Switching Protocols", "Processing", "Early Hints"],
        200: [
            "OK", "Created", "Accepted", "Non-Authoritative Information", "No Content", "Reset Content",
            "Partial Content", "Multi-Status", "Already Reported",
        ],
        226: ["IM Used"],
        300: ["Multiple Choices", "Moved Permanently", "Found", "See Other", "Not Modified", "Use Proxy"],
        307: ["Temporary Redirect", "Permanent Redirect"],
        400: [
            "Bad Request", "Unauthorized", "Payment Required", "Forbidden", "Not Found", "Method Not Allowed",
            "Not Acceptable", "Proxy Authentication Required", "Request Timeout", "Conflict", "Gone", "Length Required",
            "Precondition Failed", "Content Too Large", "URI Too Long", "Unsupported Media Type",
            "Range Not Satisfiable", "Expectation Failed",
        ],
        421: [
            "Misdirected Request", "Unprocessable Content", "Locked", "Failed Dependency", "Too Early",
            "Upgrade Required",
        ],
        428: ["Precondition Required", "Too Many Requests"],
        431: ["Request Header Fields Too Large"],
        451: ["Unavailable For Legal Reasons"],
        500: [
            "Internal Server Error", "Not Implemented", "Bad Gateway", "Service Unavailable", "Gateway Timeout",
            "HTTP Version Not Supported", "Variant Also Negotiates", "Insufficient Storage", "Loop Detected",
        ],
        511: ["Network Authentication Required"],
    ]
}
