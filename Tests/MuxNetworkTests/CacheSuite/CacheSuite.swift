import Foundation

/// A group of HTTP cache tests from the JSON export of http-tests/cache-tests.
struct CacheSuite: Decodable, Sendable {
    var id: String
    var name: String
    var tests: [CacheSuiteTest]

    /// The vendored data.
    private static let file = URL(filePath: #filePath).deletingLastPathComponent()
        .appending(path: "../../Interop/cache-tests/tests.json").standardizedFileURL

    /// Whether the vendored data is present.
    static var isAvailable: Bool { FileManager.default.isReadableFile(atPath: Self.file.path) }

    static func data() throws -> Data { try Data(contentsOf: Self.file) }

    static func all() throws -> [CacheSuite] { try JSONDecoder().decode([CacheSuite].self, from: self.data()) }

    enum CodingKeys: String, CodingKey, CaseIterable { case id, name, tests }

    /// Members that explain a test to a reader and have no effect.
    static let explanations: Set<String> = ["description", "spec_anchors"]
}

/// Requests that are sent in order to one URL, and the expected results.
struct CacheSuiteTest: Decodable, Sendable {
    /// The severity of a failure.
    enum Kind: String, Decodable, Sendable {
        /// A failure breaks a requirement of the specification.
        case required
        /// A failure costs efficiency.
        case optimal
        /// The test asks a question, and neither yes nor no is a failure.
        case check
    }

    /// The caches to which a test applies.
    enum Scope: Sendable {
        /// Every private cache: upstream runs the test in browsers.
        case privateCache
        /// Private caches except browsers: the Fetch API prevents the test, but a library should pass.
        case beyondBrowsers
        /// Shared caches and CDNs.
        case sharedCache
    }

    var id: String
    var name: String
    var kind: Kind
    var scope: Scope
    /// Whether the test is only for private caches.
    var isForPrivateCache: Bool
    /// Whether the test is only for content delivery networks.
    var isForNetworks: Bool
    var dependsOn: [String]
    var requests: [CacheSuiteRequest]

    enum CodingKeys: String, CodingKey, CaseIterable {
        case id, name, kind, requests
        case dependsOn = "depends_on"
        case browserOnly = "browser_only"
        case browserSkip = "browser_skip"
        case cdnOnly = "cdn_only"
    }

    init(from decoder: any Decoder) throws {
        let members = try decoder.container(keyedBy: CodingKeys.self)
        self.id = try members.decode(String.self, forKey: .id)
        self.name = try members.decode(String.self, forKey: .name)
        self.kind = try members.decodeIfPresent(Kind.self, forKey: .kind) ?? .required
        self.dependsOn = try members.decodeIfPresent([String].self, forKey: .dependsOn) ?? []
        self.requests = try members.decode([CacheSuiteRequest].self, forKey: .requests)
        self.isForPrivateCache = try members.decodeIfPresent(Bool.self, forKey: .browserOnly) ?? false
        // As in upstream's runner, `browser_skip` may be present and `false`, and `browser_only` does not
        // concern a private cache.
        self.isForNetworks = try members.decodeIfPresent(Bool.self, forKey: .cdnOnly) ?? false
        if self.isForNetworks {
            self.scope = .sharedCache
        } else if try members.decodeIfPresent(Bool.self, forKey: .browserSkip) == true {
            self.scope = self.name.lowercased().contains("shared") ? .sharedCache : .beyondBrowsers
        } else {
            self.scope = .privateCache
        }
    }
}

/// One request of a test: the client's part, the server's part, and the expectations.
struct CacheSuiteRequest: Decodable, Sendable {
    // MARK: - The client's part

    var method = "GET"
    var requestHeaders: [CacheSuiteField] = []
    var requestBody: String?
    var queryArgument: String?
    var fileName: String?
    /// The cache mode of the Fetch standard.
    var cacheMode: String?
    var fixesModifiedSince = false
    /// Lower-case names of date fields that are sent in the format of RFC 850.
    var datesInRFC850: [String] = []
    var pausesAfter = false

    // MARK: - The server's part

    var responseStatus: CacheSuiteStatus?
    var responseHeaders: [CacheSuiteField] = []
    var responseBody: String?
    var interimResponses: [CacheSuiteInterim] = []
    /// Seconds before the response.
    var responsePause: Int?
    var disconnects = false
    var fixesLocations = false

    // MARK: - The expectations

    enum ExpectedType: String, Decodable, Sendable {
        case cached
        case notCached = "not_cached"
        case etagValidated = "etag_validated"
        case lastModifiedValidated = "lm_validated"

        var isValidated: Bool { self == .etagValidated || self == .lastModifiedValidated }
    }

    /// A member for which absence means a default, and `null` waives the check.
    enum Waivable<Value: Sendable>: Sendable {
        case absent
        case waived
        case value(Value)
    }

    var expectedType: ExpectedType?
    var expectedMethod: String?
    var expectedStatus = Waivable<Int>.absent
    var expectedRequestHeaders: [CacheSuiteExpectedField] = []
    var missingRequestHeaders: [CacheSuiteExpectedField] = []
    var expectedResponseHeaders: [CacheSuiteExpectedField] = []
    var missingResponseHeaders: [CacheSuiteExpectedField] = []
    var expectedText = Waivable<String>.absent
    var expectedInterimResponses: [CacheSuiteInterim] = []
    var checksBody = true
    private var isSetup = false
    private var setupTests: [String] = []

    /// Whether a failed expectation of `member` voids the test.
    func isSetup(_ member: CodingKeys) -> Bool { self.isSetup || self.setupTests.contains(member.rawValue) }

    enum CodingKeys: String, CodingKey, CaseIterable {
        case cache, disconnect, filename, redirect, setup, mode, credentials
        case requestMethod = "request_method"
        case requestHeaders = "request_headers"
        case requestBody = "request_body"
        case queryArgument = "query_arg"
        case magicIMS = "magic_ims"
        case rfc850Date = "rfc850date"
        case pauseAfter = "pause_after"
        case responseStatus = "response_status"
        case responseHeaders = "response_headers"
        case responseBody = "response_body"
        case interimResponses = "interim_responses"
        case responsePause = "response_pause"
        case magicLocations = "magic_locations"
        case expectedType = "expected_type"
        case expectedMethod = "expected_method"
        case expectedStatus = "expected_status"
        case expectedRequestHeaders = "expected_request_headers"
        case expectedRequestHeadersMissing = "expected_request_headers_missing"
        case expectedResponseHeaders = "expected_response_headers"
        case expectedResponseHeadersMissing = "expected_response_headers_missing"
        case expectedText = "expected_response_text"
        case expectedInterimResponses = "expected_interim_responses"
        case checkBody = "check_body"
        case setupTests = "setup_tests"
    }

    init(from decoder: any Decoder) throws {
        let members = try decoder.container(keyedBy: CodingKeys.self)
        func value<Value: Decodable>(_ key: CodingKeys, or standard: Value) throws -> Value {
            try members.decodeIfPresent(Value.self, forKey: key) ?? standard
        }
        func waivable<Value: Decodable & Sendable>(_ key: CodingKeys) throws -> Waivable<Value> {
            guard members.contains(key) else { return .absent }
            return try members.decodeIfPresent(Value.self, forKey: key).map { .value($0) } ?? .waived
        }
        self.method = try value(.requestMethod, or: "GET")
        self.requestHeaders = try value(.requestHeaders, or: [])
        self.requestBody = try value(.requestBody, or: nil)
        self.queryArgument = try value(.queryArgument, or: nil)
        self.fileName = try value(.filename, or: nil)
        self.cacheMode = try value(.cache, or: nil)
        self.fixesModifiedSince = try value(.magicIMS, or: false)
        self.datesInRFC850 = try value(.rfc850Date, or: [])
        self.pausesAfter = members.contains(.pauseAfter)
        self.responseStatus = try value(.responseStatus, or: nil)
        self.responseHeaders = try value(.responseHeaders, or: [])
        self.responseBody = try value(.responseBody, or: nil)
        self.interimResponses = try value(.interimResponses, or: [])
        self.responsePause = try value(.responsePause, or: nil)
        self.disconnects = try value(.disconnect, or: false)
        self.fixesLocations = try value(.magicLocations, or: false)
        self.expectedType = try value(.expectedType, or: nil)
        self.expectedMethod = try value(.expectedMethod, or: nil)
        self.expectedStatus = try waivable(.expectedStatus)
        self.expectedRequestHeaders = try value(.expectedRequestHeaders, or: [])
        self.missingRequestHeaders = try value(.expectedRequestHeadersMissing, or: [])
        self.expectedResponseHeaders = try value(.expectedResponseHeaders, or: [])
        self.missingResponseHeaders = try value(.expectedResponseHeadersMissing, or: [])
        self.expectedText = try waivable(.expectedText)
        self.expectedInterimResponses = try value(.expectedInterimResponses, or: [])
        self.checksBody = try value(.checkBody, or: true)
        self.isSetup = try value(.setup, or: false)
        self.setupTests = try value(.setupTests, or: [])
    }
}

/// A status code with its phrase.
struct CacheSuiteStatus: Decodable, Sendable {
    var code: Int
    var phrase: String

    init(_ code: Int, _ phrase: String) {
        self.code = code
        self.phrase = phrase
    }

    init(from decoder: any Decoder) throws {
        var items = try decoder.unkeyedContainer()
        self.code = try items.decode(Int.self)
        self.phrase = try items.decode(String.self)
    }
}

/// The value of a field: text, or a number, which in a date field is an offset from now in seconds.
enum CacheSuiteValue: Decodable, Sendable {
    case text(String)
    case number(Int)

    init(from decoder: any Decoder) throws {
        let value = try decoder.singleValueContainer()
        self =
            if let number = try? value.decode(Int.self) { .number(number) } else {
                .text(try value.decode(String.self))
            }
    }
}

/// A header field that is sent.
struct CacheSuiteField: Decodable, Sendable {
    var name: String
    var value: CacheSuiteValue
    /// Whether the client must receive the sent value.
    var isExpected: Bool

    init(from decoder: any Decoder) throws {
        var items = try decoder.unkeyedContainer()
        self.name = try items.decode(String.self)
        self.value = try items.decode(CacheSuiteValue.self)
        self.isExpected = items.isAtEnd ? true : try items.decode(Bool.self)
    }

    /// The field value to send: upstream's `fixupHeader`.
    ///
    /// - Parameters:
    ///   - now: The base of a relative date.
    ///   - base: The prefix of a location; `nil` to leave a location unchanged.
    ///   - datesInRFC850: Names of date fields, in lower case.
    /// - Returns: The text.
    func text(now: Date?, base: String? = nil, datesInRFC850: [String] = []) -> String {
        let name = self.name.lowercased()
        switch self.value {
        case .number(let number):
            guard let now, Self.dates.contains(name) else { return String(number) }
            let date = now.addingTimeInterval(TimeInterval(number))
            return CacheSuiteDate.text(date, isRFC850: datesInRFC850.contains(name))
        case .text(let text):
            guard let base, Self.locations.contains(name) else { return text }
            return text.isEmpty ? base : "\(base)/\(text)"
        }
    }

    private static let dates: Set<String> = [
        "date", "expires", "last-modified", "if-modified-since", "if-unmodified-since",
    ]
    private static let locations: Set<String> = ["location", "content-location"]
}

/// An expectation about a header field.
enum CacheSuiteExpectedField: Decodable, Sendable {
    case named(String)
    case field(CacheSuiteField)
    case sameAs(name: String, other: String)
    case greater(name: String, than: Int)

    init(from decoder: any Decoder) throws {
        if let name = try? decoder.singleValueContainer().decode(String.self) {
            self = .named(name)
            return
        }
        var items = try decoder.unkeyedContainer()
        guard let count = items.count, count > 2 else {
            self = .field(try CacheSuiteField(from: decoder))
            return
        }
        let name = try items.decode(String.self)
        switch try items.decode(String.self) {
        case "=": self = .sameAs(name: name, other: try items.decode(String.self))
        case ">": self = .greater(name: name, than: try items.decode(Int.self))
        default: throw DecodingError.dataCorruptedError(in: items, debugDescription: "an unknown comparison")
        }
    }

    var name: String {
        switch self {
        case .named(let name), .sameAs(let name, _), .greater(let name, _): name
        case .field(let field): field.name
        }
    }
}

/// A response with a 1xx status before the final response.
struct CacheSuiteInterim: Decodable, Sendable {
    var status: Int
    var headers: [CacheSuiteField] = []

    init(from decoder: any Decoder) throws {
        var items = try decoder.unkeyedContainer()
        self.status = try items.decode(Int.self)
        if !items.isAtEnd { self.headers = try items.decode([CacheSuiteField].self) }
    }
}

/// Formats HTTP dates: RFC 9110, section 5.6.7.
enum CacheSuiteDate {
    static func text(_ date: Date, isRFC850: Bool = false) -> String {
        var calendar = Calendar(identifier: .gregorian)
        calendar.timeZone = .gmt
        let parts = calendar.dateComponents([.weekday, .day, .month, .year, .hour, .minute, .second], from: date)
        func two(_ number: Int?) -> String { (number ?? 0) < 10 ? "0\(number ?? 0)" : "\(number ?? 0)" }
        let day = Self.days[(parts.weekday ?? 1) - 1]
        let month = Self.months[(parts.month ?? 1) - 1]
        let year = String(parts.year ?? 0)
        let time = "\(two(parts.hour)):\(two(parts.minute)):\(two(parts.second)) GMT"
        return isRFC850
            ? "\(day), \(two(parts.day))-\(month)-\(year.suffix(2)) \(time)"
            : "\(day.prefix(3)), \(two(parts.day)) \(month) \(year) \(time)"
    }

    private static let days = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]
    private static let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
}
