import Foundation
import MuxKit

/// An answer as a private cache keeps it: RFC 9111, section 3.
struct StoredAnswer: Sendable, Equatable {
    /// Where the content is.
    enum Body: Sendable, Equatable {
        case memory(Data)
        /// In a file of ``BodyFolder``.
        case file(String)
        /// Nowhere: all that is known is that the server has to be asked.
        case none
    }

    /// The bytes that a part holds: RFC 9110, section 14.4.
    struct Part: Sendable, Equatable, Codable {
        /// The place of the first byte.
        var first: Int
        /// The length of the whole content; `nil` if the server did not say.
        var total: Int?
    }

    var status: Int
    /// The fields, without those that are for one connection (RFC 9111, section 3.1).
    var headers: HTTPHeaders
    /// The URL that answered.
    var url: URL?
    /// The values of the request's fields that the answer depends on, normalized; `nil` where the request had none.
    var selecting: [HTTPHeaders.Name: String?]
    /// Whether it depends on credentials of the request, which are not written to disk; so neither is the answer.
    var isTransient: Bool
    var freshness: HTTPFreshness
    /// When it arrived, or was last validated, by the wall clock.
    var receivedAt: Date
    /// The same by the clock of the process; `nil` if another process received it.
    var received: Moment?
    /// The number of the request of the response, or of its last validation; 0 if another process sent it.
    var sent: UInt64 = 0
    /// The number that the cache had reached when the response was complete; 0 if another process received it.
    var completed: UInt64 = 0
    /// Whether its resource has changed since, so that it needs the server's consent: RFC 9111, section 4.4.
    var isInvalidated: Bool
    /// `nil` for the whole content.
    var part: Part?
    var body: Body
    /// The length of the body.
    var count: Int

    /// The times at which an answer is looked at.
    struct Now: Sendable {
        var moment: Moment
        var date: Date
    }

    /// How long ago the answer arrived; `nil` if the wall clock has gone back since.
    func residentTime(at now: Now) -> Duration? {
        if let received { return max(now.moment.duration(since: received), .zero) }
        let seconds = now.date.timeIntervalSince(self.receivedAt)
        return seconds >= 0 ? .milliseconds(Int64(min(seconds, 1e12) * 1000)) : nil
    }

    /// The place of the response among the others.
    var order: ResponseOrder {
        let date = self.headers[.date].flatMap { HTTPDate.parse($0, now: self.receivedAt) }
        return ResponseOrder(date: date, sent: self.sent, completed: self.completed)
    }

    /// The file of the body, if it is in one.
    var fileName: String? {
        guard case .file(let name) = self.body else { return nil }
        return name
    }

    /// What the answer costs in memory, roughly, in bytes.
    var memoryCost: Int {
        let fields = self.headers.fields.reduce(0) { $0 + $1.name.rawValue.utf8.count + $1.value.utf8.count + 64 }
        guard case .memory(let data) = self.body else { return fields + 512 }
        return fields + 512 + data.count
    }

    /// The names of the fields that the answer depends on, in lower case: RFC 9110, section 12.5.5; `nil` if on anything.
    static func selectingNames(_ headers: HTTPHeaders) -> [HTTPHeaders.Name]? {
        let elements = headers.values(of: .vary).flatMap { $0.split(separator: ",") }.map { HTTPGrammar.trimmed($0) }
        // What is no name may be any.
        guard elements.allSatisfy({ $0.isEmpty || ($0 != "*" && HTTPGrammar.isToken($0)) }) else { return nil }
        return elements.filter { !$0.isEmpty }.map { HTTPHeaders.Name(stringLiteral: $0) }
    }

    /// The names of the fields that a stored body depends on.
    ///
    /// Whether a body was decoded depends on the codings that its request asked for, even if the server does not say so in `Vary`.
    static func storedNames(_ headers: HTTPHeaders) -> [HTTPHeaders.Name]? {
        let isPlain = ["", "identity"].contains(headers[.contentEncoding]?.lowercased() ?? "")
        return self.selectingNames(headers).map { isPlain ? $0 : $0 + [.acceptEncoding] }
    }

    /// Whether one of `names` is a field of credentials.
    static func areCredentials(_ names: [HTTPHeaders.Name], of request: CacheableRequest) -> Bool {
        let known = HTTPTransportOptions().credentialHeaders.union(request.call.call.credentialHeaders)
        let credentials = Set(known.map { HTTPHeaders.Name(stringLiteral: $0) })
        return !credentials.isDisjoint(with: names)
    }

    /// The values of `names` in a request, normalized: RFC 9111, section 4.1.
    static func selecting(_ names: [HTTPHeaders.Name], in headers: HTTPHeaders) -> [HTTPHeaders.Name: String?] {
        Dictionary(names.map { ($0, self.normalized(headers, $0)) }) { first, _ in first }
    }

    /// The values of the lines joined, blanks around commas left out, and in lower case where case does not count.
    private static func normalized(_ headers: HTTPHeaders, _ name: HTTPHeaders.Name) -> String? {
        guard let value = headers[name] else { return nil }
        let text = HTTPDirective.elements(of: value).joined(separator: ",")
        return Self.caseInsensitive.contains(name) ? text.lowercased() : text
    }

    /// RFC 9110, sections 12.5.1, 12.5.3 and 12.5.4, whose members are compared without regard to case.
    private static let caseInsensitive: Set<HTTPHeaders.Name> = [.accept, .acceptEncoding, .acceptLanguage]

    /// Whether the answer is for a request with these fields.
    func isSelected(by headers: HTTPHeaders) -> Bool {
        self.selecting.allSatisfy { Self.normalized(headers, $0.key) == $0.value }
    }

    /// The fields of an answer that may be stored: RFC 9111, section 3.1.
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

    /// The stored fields after a validation: RFC 9111, section 3.2.
    ///
    /// The new ones replace those of the same names, but for those that describe the stored content.
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

extension StoredAnswer: Codable {
    private enum Key: String, CodingKey {
        case status, fields, url, selecting, freshness, received, invalidated, part, body, file, count
    }

    init(from decoder: any Decoder) throws {
        let record = try decoder.container(keyedBy: Key.self)
        self.status = try record.decode(Int.self, forKey: .status)
        self.headers = HTTPHeaders()
        for field in try record.decode([[String]].self, forKey: .fields) {
            guard field.count == 2, let name = HTTPHeaders.Name(rawValue: field[0]) else { continue }
            self.headers.append(field[1], for: name)
        }
        self.url = try record.decodeIfPresent(URL.self, forKey: .url)
        self.selecting = [:]
        for field in try record.decode([[String]].self, forKey: .selecting) {
            guard let name = field.first.flatMap({ HTTPHeaders.Name(rawValue: $0) }) else {
                throw Self.damaged(decoder)
            }
            self.selecting[name] = .some(field.count > 1 ? field[1] : nil)
        }
        self.isTransient = false
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
        DecodingError.dataCorrupted(.init(codingPath: decoder.codingPath, debugDescription: "no stored answer"))
    }

    /// Writes the answer, but for `Set-Cookie`: what may be a credential stays in memory.
    func encode(to encoder: any Encoder) throws {
        var record = encoder.container(keyedBy: Key.self)
        try record.encode(self.status, forKey: .status)
        let fields = self.headers.fields.filter { $0.name != .setCookie }
        try record.encode(fields.map { [$0.name.rawValue, $0.value] }, forKey: .fields)
        try record.encodeIfPresent(self.url, forKey: .url)
        let selecting = self.selecting.map { [$0.key.rawValue] + ($0.value.map { [$0] } ?? []) }
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

/// The answers that are stored for one URL, the newest first: one for each variant, or several parts.
struct StoredAnswers: Sendable {
    /// How many are kept for one URL.
    static let maximumCount = 16

    private(set) var answers: [StoredAnswer] = []

    init(_ answers: [StoredAnswer] = []) { self.answers = answers }

    /// Puts `answer` in the place of the responses that would be selected by the same requests, unless one of them is newer.
    ///
    /// A part is combined with a stored part of the same version, where they are neighbours, and does not replace a complete response of
    /// the same version.
    ///
    /// - Parameters:
    ///   - answer: The answer.
    ///   - former: The stored response that `answer` is a newer state of; `nil` if there is none.
    ///   - headers: The fields of its request.
    ///   - partLimit: The most bytes that parts are combined to.
    ///   - now: The time of day.
    /// - Returns: What is not stored any more, and whether the answer is; if it is not, it is among the former.
    mutating func insert(
        _ answer: StoredAnswer,
        replacing former: StoredAnswer? = nil,
        for headers: HTTPHeaders,
        partLimit: Int,
        at now: Date
    ) -> (gone: [StoredAnswer], isStored: Bool) {
        var answer = answer
        var isDisputed = false
        for place in self.answers.indices where self.answers[place].isSelected(by: headers) {
            let stored = self.answers[place]
            guard stored != former else { continue }
            let relation = answer.order.relation(to: stored.order, at: now)
            // RFC 9111, section 3.4: parts of one version complete each other, in whatever order they arrive.
            if answer.part != nil || stored.part != nil, let tag = answer.strongTag, tag == stored.strongTag {
                if answer.part == nil {
                    answer.sent = max(answer.sent, stored.sent)
                } else if stored.part == nil {
                    return ([answer], false)
                } else if relation == .newer {
                    answer = stored.combined(with: answer, limit: partLimit) ?? answer
                } else if let combined = answer.combined(with: stored, limit: partLimit) {
                    answer = combined
                } else {
                    return ([answer], false)
                }
            } else if relation == .older {
                return ([answer], false)
            } else if relation == .disputed, !stored.isInvalidated {
                self.answers[place].isInvalidated = true
                isDisputed = true
            }
        }
        guard !isDisputed else { return ([answer], false) }
        var gone = self.answers.filter { $0.isSelected(by: headers) }
        self.answers.removeAll { $0.isSelected(by: headers) }
        self.answers.insert(answer, at: 0)
        while self.answers.count > Self.maximumCount, let last = self.answers.popLast() { gone.append(last) }
        return (gone, true)
    }

    /// Removes the responses that a newer one replaces.
    ///
    /// - Parameters:
    ///   - response: The newer response, which is not stored.
    ///   - now: The time of day.
    /// - Returns: The removed responses, and whether any response was removed or marked as in need of validation.
    mutating func remove(
        supersededBy response: SupersedingResponse,
        at now: Date
    ) -> (gone: [StoredAnswer], isChanged: Bool) {
        var (gone, kept): ([StoredAnswer], [StoredAnswer]) = ([], [])
        var isMarked = false
        for var stored in self.answers {
            guard stored.isSelected(by: response.headers), !response.confirms(stored) else {
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
        self.answers = kept
        return (gone, isMarked || !gone.isEmpty)
    }

    /// Changes every answer.
    mutating func update(_ change: (inout StoredAnswer) -> Void) {
        for index in self.answers.indices { change(&self.answers[index]) }
    }

    mutating func remove(_ answer: StoredAnswer) { self.answers.removeAll { $0 == answer } }

    /// What they cost in memory, roughly, in bytes.
    var memoryCost: Int { self.answers.reduce(0) { $0 + $1.memoryCost } }
}

extension StoredAnswers: Codable {
    init(from decoder: any Decoder) throws {
        self.answers = try decoder.singleValueContainer().decode([StoredAnswer].self)
    }

    /// Writes the answers, but for those that depend on credentials.
    func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(self.answers.filter { !$0.isTransient })
    }
}
