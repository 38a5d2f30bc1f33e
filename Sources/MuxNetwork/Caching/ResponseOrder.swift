import Foundation

/// The order of a response among the responses of one URL: RFC 9111, section 4.
///
/// The response with the later `Date` is newer. If the dates are equal, if a date is missing, or if only one
/// date is more than an hour in the future, the response to the later request is newer.
struct ResponseOrder: Sendable, Equatable {
    /// The relation of a response to a stored response.
    enum Relation: Sendable {
        /// The response replaces the stored response.
        case newer
        /// The stored response remains.
        case older
        /// The response has an earlier `Date`, but its request was sent after the stored response was
        /// complete.
        ///
        /// Only the server can decide between the two responses.
        case disputed
    }

    /// The field `Date`; `nil` without a valid field.
    var date: Date?
    /// The sequence number of the request, in the order of sending; 0 for a response from disk.
    var sent: UInt64
    /// The sequence number of the completion of the response; 0 for a response from disk.
    var completed: UInt64

    /// An hour: a `Date` further ahead of this machine's clock is compared only with another such `Date`.
    private static let tolerance: TimeInterval = 60 * 60

    /// The relation of the response with this order to the stored response with the order `other`.
    ///
    /// - Parameters:
    ///   - other: The order of the stored response.
    ///   - now: The current wall-clock time.
    /// - Returns: The relation.
    func relation(to other: ResponseOrder, at now: Date) -> Relation {
        if let date, let otherDate = other.date, date != otherDate {
            let latest = now.addingTimeInterval(Self.tolerance)
            if (date > latest) == (otherDate > latest) {
                guard date < otherDate else { return .newer }
                return self.sent < other.completed ? .older : .disputed
            }
        }
        return self.sent < other.sent ? .older : .newer
    }
}

/// A response that replaces stored responses, usually without being stored: RFC 9111, sections 4 and 4.3.3.
struct SupersedingResponse: Sendable {
    let order: ResponseOrder
    /// The values of the request fields in `Vary`, normalized; `nil` if any field may be significant.
    fileprivate(set) var selectingValues: [HTTPHeaders.Name: String?]?
    /// The fields of the request.
    let fields: SelectingFields
    /// Whether the response is stored.
    ///
    /// A stored response prevents the storage of an older response only: ``StoredResponses`` handles a
    /// disputed order. Any other response also prevents the storage of a response with a disputed order.
    fileprivate(set) var isStored = false
    private var reply: HTTPReply?
    private var validator: HTTPValidator?
    private var isStorable = false

    /// Statuses about the request, the connection or a temporary condition, not about the resource.
    private static let neutralStatuses: Set<Int> = [
        407, 408, 411, 412, 413, 415, 416, 417, 421, 425, 428, 429, 431, 511,
    ]

    /// Whether a response is about the request, the connection or a temporary condition, not about the
    /// resource: the response is not stored, and has no effect on stored responses.
    static func isNeutral(_ reply: HTTPReply) -> Bool {
        self.neutralStatuses.contains(reply.status) || (reply.status == 403 && reply.headers[.retryAfter] != nil)
    }

    /// Makes a superseding response from a reply; `nil` for a reply without an effect on stored responses.
    ///
    /// A server error (500 to 599) that is not stored replaces no stored response, because a stored response
    /// may be used in place of the error (RFC 9111, section 4.3.3).
    ///
    /// - Parameters:
    ///   - reply: The head of the response.
    ///   - request: The request.
    ///   - order: The order of the response.
    ///   - now: The time of the arrival.
    init?(_ reply: HTTPReply, to request: CacheableRequest, _ order: ResponseOrder, at now: Date) {
        guard request.call.method == .get, request.call.call.body == nil, (200...499).contains(reply.status),
            !Self.isNeutral(reply)
        else { return nil }
        self.order = order
        self.fields = request.selectingFields
        self.selectingValues = StoredResponse.selectingNames(reply.headers).map {
            StoredResponse.selectingValues(of: $0, in: request.selectingFields)
        }
        self.reply = reply
        self.validator = HTTPValidator(reply.headers, receivedAt: now)
        let response = HTTPFreshness.Response(
            status: reply.status == 206 ? .ok : HTTPStatus(reply.status),
            headers: reply.headers,
            receivedAt: now
        )
        self.isStorable = self.selectingValues != nil && HTTPFreshness.of(response, heuristicLimit: .zero).isKept
    }

    /// Makes a superseding response from a validated response that may no longer be stored, or from a stored
    /// response.
    init(_ validated: StoredResponse, to request: CacheableRequest, isStored: Bool = false) {
        self.order = validated.order
        self.fields = request.selectingFields
        self.isStored = isStored
        self.selectingValues = StoredResponse.selectingNames(validated.headers) == nil ? nil : validated.selectingValues
    }

    /// Whether `stored` may remain, because the response is of the same version of the resource.
    func confirms(_ stored: StoredResponse) -> Bool {
        guard let reply else { return false }
        if reply.status == 304 { return !self.isAboutAnother(stored, reply) }
        return (200...299).contains(reply.status) && (200...299).contains(stored.status) && self.isStorable
            && self.validator != nil && self.validator == stored.freshness.validator
    }

    /// Whether a 304 to the condition of the caller's request is for another version than `stored`.
    private func isAboutAnother(_ stored: StoredResponse, _ reply: HTTPReply) -> Bool {
        switch stored.freshness.validator {
        case .entityTag(let own):
            let asked = self.fields[.ifNoneMatch].map { HTTPDirective.elements(of: $0) } ?? []
            guard let tag = reply.headers[.eTag].map({ HTTPGrammar.trimmed($0) }) ?? (asked.count == 1 ? asked[0] : nil)
            else { return false }
            return tag != "*" && !HTTPValidator.isWeaklyEqual(tag, own)
        case .lastModified(let own):
            return reply.headers[.lastModified].map { HTTPGrammar.trimmed($0) != own } ?? false
        case nil: return false
        }
    }

    /// Whether the response matches a request with `fields`.
    func isSelected(by fields: SelectingFields) -> Bool {
        guard let selectingValues else { return true }
        return StoredResponse.selectingValues(of: Array(selectingValues.keys), in: fields) == selectingValues
    }
}

/// The numbers of running exchanges by URL, and the responses that arrived during other exchanges.
///
/// With these records, an exchange detects a newer response that is not stored, or no longer in memory.
struct RunningExchanges: Sendable {
    private var counts: [String: Int] = [:]
    private var superseding: [String: [SupersedingResponse]] = [:]

    /// Records the start of an exchange; see ``recordEnd(of:)``.
    mutating func recordStart(of resource: String) { self.counts[resource, default: 0] += 1 }

    /// Records the end of an exchange; the end of the last exchange of a URL removes the recorded responses.
    mutating func recordEnd(of resource: String) {
        let count = (self.counts[resource] ?? 1) - 1
        self.counts[resource] = count > 0 ? count : nil
        if count <= 0 { self.superseding[resource] = nil }
    }

    /// Records a response for the other running exchanges of its URL, if any.
    mutating func recordResponse(_ response: SupersedingResponse, of resource: String, at now: Date) {
        guard (self.counts[resource] ?? 0) > 1 else { return }
        var noted = self.superseding[resource] ?? []
        let place = noted.firstIndex {
            $0.selectingValues == response.selectingValues && $0.isStored == response.isStored
        }
        if let place {
            if response.order.relation(to: noted[place].order, at: now) != .older { noted[place] = response }
        } else {
            noted.append(response)
            if noted.count > Self.maximumVariants { noted = [Self.forAllVariants(noted, at: now)] }
        }
        self.superseding[resource] = noted
    }

    /// The maximum number of records for each URL.
    private static let maximumVariants = 64

    /// One record in place of all `noted` records: the newest of the responses, for all variants.
    private static func forAllVariants(_ noted: [SupersedingResponse], at now: Date) -> SupersedingResponse {
        var newest = noted.dropFirst().reduce(noted[0]) { newest, next in
            next.order.relation(to: newest.order, at: now) == .newer ? next : newest
        }
        (newest.selectingValues, newest.isStored) = (nil, false)
        return newest
    }

    /// Whether a recorded response is newer than `response`.
    ///
    /// If the order is disputed, an arrived response that is not stored counts as newer.
    func isSuperseded(_ response: StoredResponse, to fields: SelectingFields, of resource: String, at now: Date) -> Bool
    {
        self.superseding[resource]?.contains { newer in
            guard newer.isSelected(by: fields) else { return false }
            let relation = response.order.relation(to: newer.order, at: now)
            return newer.isStored ? relation == .older : relation != .newer
        } ?? false
    }

    func recordedCount(of resource: String) -> Int { self.superseding[resource]?.count ?? 0 }

    /// The number of URLs with a running exchange.
    var count: Int { max(self.counts.count, self.superseding.count) }
}
