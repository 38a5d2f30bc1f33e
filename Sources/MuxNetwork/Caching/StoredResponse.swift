import Foundation
import MuxKit

/// A stored response of a private cache: RFC 9111, section 3.
struct StoredResponse: Sendable, Equatable {
    /// The location of the body.
    enum Body: Sendable, Equatable {
        case memory(Data)
        /// In a file of ``BodyFolder``.
        case file(String)
        /// No body is stored: the entry only records that each use needs a request to the server.
        case none
    }

    /// The stored range of a partial response: RFC 9110, section 14.4.
    ///
    /// The property names are keys on disk.
    struct Part: Sendable, Equatable, Codable {
        /// The position of the first byte in the complete content.
        var first: Int
        /// The length of the complete content, in bytes; `nil` if the server did not send the length.
        var total: Int?
    }

    var status: Int
    /// The header fields, without fields for one connection (RFC 9111, section 3.1).
    var headers = HTTPHeaders()
    /// The URL of the response; `nil` if unknown.
    var url: URL?
    /// The values of the request fields in `Vary`, normalized; `nil` for a field that the request did not
    /// have.
    ///
    /// For an encoded body, `Accept-Encoding` is included even without `Vary`.
    var selectingValues: [HTTPHeaders.Name: String?] = [:]
    /// Whether the response depends on credentials of the request.
    ///
    /// If `true`, neither the credentials nor the response are written to disk.
    var isTransient = false
    var freshness: HTTPFreshness
    /// The wall-clock time of the arrival, or of the last validation.
    var receivedAt: Date
    /// The time of ``receivedAt`` by the clock of the process; `nil` for a response from disk.
    var received: Moment?
    /// The sequence number of the request, or of the last validation; 0 for a response from disk.
    var sent: UInt64 = 0
    /// The sequence number of the completion of the response; 0 for a response from disk.
    var completed: UInt64 = 0
    /// Whether the response requires validation, because the resource has changed, or a newer response may
    /// exist: RFC 9111, sections 4 and 4.4.
    var isInvalidated = false
    /// The stored range; `nil` for the complete content.
    var part: Part?
    var body: Body
    /// The length of the stored body, in bytes.
    var count = 0

    /// The current time by the clock of the process and by the wall clock.
    struct Now: Sendable {
        var moment: Moment
        var date: Date
    }

    /// The time since ``receivedAt``; `nil` for a response from disk if the wall clock is earlier than
    /// ``receivedAt``.
    func residentTime(at now: Now) -> Duration? {
        if let received { return max(now.moment.duration(since: received), .zero) }
        let seconds = now.date.timeIntervalSince(self.receivedAt)
        // The limit prevents a trap in the conversion to an integer.
        return seconds >= 0 ? .milliseconds(Int64(min(seconds, 1e12) * 1000)) : nil
    }

    /// The order of the response among the responses of one URL.
    var order: ResponseOrder {
        let date = self.headers[.date].flatMap { HTTPDate.parse($0, now: self.receivedAt) }
        return ResponseOrder(date: date, sent: self.sent, completed: self.completed)
    }

    /// The name of the body's file; `nil` without a file.
    var fileName: String? {
        guard case .file(let name) = self.body else { return nil }
        return name
    }

    /// The approximate cost in memory, in bytes.
    var memoryCost: Int {
        let fields = self.headers.fields.reduce(0) { $0 + $1.name.rawValue.utf8.count + $1.value.utf8.count + 64 }
        guard case .memory(let data) = self.body else { return fields + 512 }
        return fields + 512 + data.count
    }

    /// The names of the request fields in `Vary`; `nil` for `*` or an invalid name: RFC 9110, section 12.5.5.
    static func selectingNames(_ headers: HTTPHeaders) -> [HTTPHeaders.Name]? {
        let elements = headers.values(of: .vary).flatMap { $0.split(separator: ",") }.map { HTTPGrammar.trimmed($0) }
        // An invalid name may mean any field.
        guard elements.allSatisfy({ $0.isEmpty || ($0 != "*" && HTTPGrammar.isToken($0)) }) else { return nil }
        return elements.filter { !$0.isEmpty }.map { HTTPHeaders.Name(stringLiteral: $0) }
    }

    /// The names of the request fields that a stored body depends on; `nil` as in ``selectingNames(_:)``.
    ///
    /// For an encoded body, `Accept-Encoding` is always a dependency, even without `Vary`: the transport
    /// decodes a body only if the request asked for the coding.
    static func storedNames(_ headers: HTTPHeaders) -> [HTTPHeaders.Name]? {
        self.selectingNames(headers).map { headers.isIdentityCoded ? $0 : $0 + [.acceptEncoding] }
    }

    /// Whether one of `names` is a field with credentials, by default, by configuration, or of a token.
    static func areCredentials(_ names: [HTTPHeaders.Name], of request: CacheableRequest) -> Bool {
        guard !names.isEmpty else { return false }
        let known = HTTPTransportConfiguration().credentialHeaders.union(request.call.call.credentialHeaders)
        let credentials = Set(known.map { HTTPHeaders.Name(stringLiteral: $0) })
            .union(request.call.steps?.credentials.names ?? [])
        return !credentials.isDisjoint(with: names)
    }

    /// The values of `names` in a request, normalized: RFC 9111, section 4.1.
    static func selectingValues(of names: [HTTPHeaders.Name], in fields: SelectingFields) -> [HTTPHeaders.Name: String?]
    {
        Dictionary(names.map { ($0, self.normalized(fields, $0)) }) { first, _ in first }
    }

    /// The elements of the field, joined by commas; in lower case if case is not significant.
    ///
    /// `nil` without the field. A text with characters outside ASCII has a character for each byte, because
    /// the comparison of strings would ignore differences in bytes.
    private static func normalized(_ fields: SelectingFields, _ name: HTTPHeaders.Name) -> String? {
        guard let value = fields[name] else { return nil }
        var text = HTTPDirective.elements(of: value).joined(separator: ",")
        if !text.utf8.allSatisfy({ $0 < 0x80 }) {
            text = String(String.UnicodeScalarView(text.utf8.map { Unicode.Scalar($0) }))
        }
        return Self.caseInsensitive.contains(name) ? text.lowercased() : text
    }

    /// The fields with case-insensitive members: RFC 9110, sections 12.5.1, 12.5.3 and 12.5.4.
    private static let caseInsensitive: Set<HTTPHeaders.Name> = [.accept, .acceptEncoding, .acceptLanguage]

    /// Whether the response matches a request with `fields`.
    func isSelected(by fields: SelectingFields) -> Bool {
        self.selectingValues.allSatisfy { Self.normalized(fields, $0.key) == $0.value }
    }

    /// The fields of a response without fields for one connection: RFC 9111, section 3.1.
    static func storable(_ headers: HTTPHeaders) -> HTTPHeaders {
        guard headers.fields.contains(where: { Self.forOneConnection.contains($0.name) }) else { return headers }
        let named = headers.values(of: .connection).flatMap { HTTPDirective.elements(of: $0) }
        let gone = Self.forOneConnection.union(named.map { HTTPHeaders.Name(stringLiteral: $0) })
        var stored = HTTPHeaders()
        for field in headers.fields where !gone.contains(field.name) { stored.append(field.value, for: field.name) }
        return stored
    }

    private static let forOneConnection: Set<HTTPHeaders.Name> = [
        .connection, "Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "Upgrade",
        .proxyAuthenticate, .proxyAuthorization, "Proxy-Authentication-Info",
    ]

    /// The stored fields, updated by the fields of a newer response: RFC 9111, section 3.2.
    ///
    /// The storable new fields replace stored fields of the same names, except `Cache-Status` and fields that
    /// describe the stored content.
    static func updated(_ stored: HTTPHeaders, by new: HTTPHeaders) -> HTTPHeaders {
        var fresh = HTTPHeaders()
        for field in self.storable(new).fields where !self.describesContent(field.name) {
            fresh.append(field.value, for: field.name)
        }
        return stored.merging(fresh)
    }

    private static func describesContent(_ name: HTTPHeaders.Name) -> Bool {
        [.contentLength, .contentEncoding, .contentType, .contentRange, .cacheStatus].contains(name)
    }
}

extension StoredResponse: Codable {
    private enum Key: String, CodingKey {
        case status, fields, url, selecting, freshness, received, invalidated, part, body, file, count
    }

    init(from decoder: any Decoder) throws {
        let record = try decoder.container(keyedBy: Key.self)
        self.status = try record.decode(Int.self, forKey: .status)
        for field in try record.decode([[String]].self, forKey: .fields) {
            guard field.count == 2, let name = HTTPHeaders.Name(rawValue: field[0]) else { continue }
            self.headers.append(field[1], for: name)
        }
        self.url = try record.decodeIfPresent(URL.self, forKey: .url)
        for field in try record.decode([[String]].self, forKey: .selecting) {
            guard let name = field.first.flatMap({ HTTPHeaders.Name(rawValue: $0) }) else {
                throw Self.damaged(decoder)
            }
            self.selectingValues[name] = .some(field.count > 1 ? field[1] : nil)
        }
        self.freshness = try record.decode(HTTPFreshness.self, forKey: .freshness)
        self.receivedAt = try record.decode(Date.self, forKey: .received)
        self.isInvalidated = try record.decodeIfPresent(Bool.self, forKey: .invalidated) ?? false
        self.part = try record.decodeIfPresent(Part.self, forKey: .part)
        self.count = try record.decode(Int.self, forKey: .count)
        if let file = try record.decodeIfPresent(String.self, forKey: .file) {
            self.body = .file(file)
        } else if let data = try record.decodeIfPresent(Data.self, forKey: .body) {
            self.body = .memory(data)
            self.count = data.count
        } else {
            self.body = .none
        }
        let isSound =
            self.count >= 0 && (100...999).contains(self.status)
            && (self.part.map { $0.first >= 0 && !$0.first.addingReportingOverflow(self.count).overflow } ?? true)
            && self.freshness.isSound
            && (self.freshness.validator.map { HTTPValidator($0.text) == $0 } ?? true)
            && (self.fileName.map { BodyFolder.isName($0) } ?? true)
        guard isSound else { throw Self.damaged(decoder) }
    }

    private static func damaged(_ decoder: any Decoder) -> any Error {
        DecodingError.dataCorrupted(.init(codingPath: decoder.codingPath, debugDescription: "invalid response"))
    }

    /// Writes the response without `Set-Cookie`, a possible credential, and without the order of arrival,
    /// which is valid in this process only.
    func encode(to encoder: any Encoder) throws {
        var record = encoder.container(keyedBy: Key.self)
        try record.encode(self.status, forKey: .status)
        let fields = self.headers.fields.filter { $0.name != .setCookie }
        try record.encode(fields.map { [$0.name.rawValue, $0.value] }, forKey: .fields)
        try record.encodeIfPresent(self.url, forKey: .url)
        let selecting = self.selectingValues.map { [$0.key.rawValue] + ($0.value.map { [$0] } ?? []) }
        try record.encode(selecting.sorted { $0[0] < $1[0] }, forKey: .selecting)
        try record.encode(self.freshness, forKey: .freshness)
        try record.encode(self.receivedAt, forKey: .received)
        if self.isInvalidated { try record.encode(true, forKey: .invalidated) }
        try record.encodeIfPresent(self.part, forKey: .part)
        try record.encode(self.count, forKey: .count)
        switch self.body {
        case .memory(let data): try record.encode(data, forKey: .body)
        case .file(let name): try record.encode(name, forKey: .file)
        case .none: break
        }
    }
}

/// The stored responses of one URL, most recently stored first: one response or part per variant.
struct StoredResponses: Sendable {
    /// The maximum number of stored responses per URL.
    static let maximumCount = 16

    private(set) var responses: [StoredResponse] = []

    init(_ responses: [StoredResponse] = []) { self.responses = responses }

    /// Inserts `response` in place of the stored responses that match the request, unless one of these is
    /// newer.
    ///
    /// A part is combined with a stored part of the same version, if possible
    /// (``StoredResponse/combined(with:limit:)``). A part does not replace a complete response of the same
    /// version.
    ///
    /// For responses of different versions, and for two complete responses, the order decides. If the order
    /// is disputed (``ResponseOrder/Relation/disputed``), `response` is not stored, and the stored response
    /// is marked for validation. A stored response that already has the mark is replaced.
    ///
    /// - Parameters:
    ///   - response: The response.
    ///   - former: The stored response that a validation has updated to `response`; `nil` for a new response.
    ///   - fields: The fields of the request.
    ///   - partLimit: The maximum sum of the lengths of combined parts, in bytes.
    ///   - now: The current wall-clock time.
    /// - Returns: The responses that are no longer stored, whether `response` is stored, and whether a stored
    ///   response was marked. Without a storage, `gone` contains only `response`.
    mutating func insert(
        _ response: StoredResponse,
        replacing former: StoredResponse? = nil,
        for fields: SelectingFields,
        partLimit: Int,
        at now: Date
    ) -> (gone: [StoredResponse], isStored: Bool, isMarked: Bool) {
        var response = response
        var isDisputed = false
        for place in self.responses.indices where self.responses[place].isSelected(by: fields) {
            let stored = self.responses[place]
            guard stored != former else { continue }
            let relation = response.order.relation(to: stored.order, at: now)
            // RFC 9111, section 3.4: parts of one version are combined, in any order of arrival.
            if response.part != nil || stored.part != nil, let tag = response.strongTag, tag == stored.strongTag {
                if response.part == nil {
                    // The complete response replaces the part, and counts as at least as new.
                    response.sent = max(response.sent, stored.sent)
                } else if stored.part == nil {
                    return ([response], false, false)
                } else if relation == .newer {
                    response = stored.combined(with: response, limit: partLimit) ?? response
                } else if let combined = response.combined(with: stored, limit: partLimit) {
                    response = combined
                } else {
                    return ([response], false, false)
                }
            } else if relation == .older {
                return ([response], false, false)
            } else if relation == .disputed, !stored.isInvalidated {
                self.responses[place].isInvalidated = true
                isDisputed = true
            }
        }
        guard !isDisputed else { return ([response], false, true) }
        var gone = self.responses.filter { $0.isSelected(by: fields) }
        self.responses.removeAll { $0.isSelected(by: fields) }
        self.responses.insert(response, at: 0)
        while self.responses.count > Self.maximumCount, let last = self.responses.popLast() { gone.append(last) }
        return (gone, true, false)
    }

    /// Removes the stored responses that another response replaces; marks a stored response for validation if
    /// the order is disputed.
    ///
    /// - Parameters:
    ///   - response: The other response, which is not stored.
    ///   - now: The current wall-clock time.
    /// - Returns: The removed responses, and whether any response was removed or marked for validation.
    mutating func remove(
        supersededBy response: SupersedingResponse,
        at now: Date
    ) -> (gone: [StoredResponse], isChanged: Bool) {
        var (gone, kept): ([StoredResponse], [StoredResponse]) = ([], [])
        var isMarked = false
        for var stored in self.responses {
            guard stored.isSelected(by: response.fields), !response.confirms(stored) else {
                kept.append(stored)
                continue
            }
            switch response.order.relation(to: stored.order, at: now) {
            case .older: kept.append(stored)
            case .disputed where !stored.isInvalidated:
                stored.isInvalidated = true
                isMarked = true
                kept.append(stored)
            case .newer, .disputed: gone.append(stored)
            }
        }
        self.responses = kept
        return (gone, isMarked || !gone.isEmpty)
    }

    mutating func update(_ change: (inout StoredResponse) -> Void) {
        for index in self.responses.indices { change(&self.responses[index]) }
    }

    mutating func remove(_ response: StoredResponse) { self.responses.removeAll { $0 == response } }

    var memoryCost: Int { self.responses.reduce(0) { $0 + $1.memoryCost } }
}

extension StoredResponses: Codable {
    init(from decoder: any Decoder) throws {
        self.responses = try decoder.singleValueContainer().decode([StoredResponse].self)
    }

    /// Writes the responses, except responses that depend on credentials.
    func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(self.responses.filter { !$0.isTransient })
    }
}
