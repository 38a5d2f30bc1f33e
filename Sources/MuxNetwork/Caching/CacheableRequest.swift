import Foundation
import MuxKit

/// The properties of a request that a private cache uses.
struct CacheableRequest: Sendable {
    /// The kind of content that the request asks for.
    enum Kind: Sendable, Equatable {
        /// The complete content; for HEAD, a `Range` is ignored.
        case whole
        /// A range of the content.
        case range(HTTPByteRange)
        /// The caller has a version, and asks whether the version is current: RFC 9110, sections 13.1.2 and
        /// 13.1.3.
        case validation
        /// Any other request, such as a POST or a request for several ranges: no stored response is usable.
        case other
    }

    let call: ValidatedCall
    /// The URL as ``HTTPResourceName/text``, the primary key of the cache: RFC 9111, section 2.
    let resource: String
    let control: HTTPRequestCacheControl
    let kind: Kind

    init(_ call: ValidatedCall) {
        self.resource = HTTPResourceName(call.call.url, of: call.origin).text
        self.control = HTTPRequestCacheControl(call.call.headers[.cacheControl])
        self.kind = Self.kind(of: call)
        self.call = call
    }

    private static func kind(of call: ValidatedCall) -> Kind {
        guard call.method == .get || call.method == .head, call.call.body == nil else { return .other }
        let headers = call.call.headers
        guard !headers.isEmpty else { return .whole }
        let names = Set(headers.fields.map(\.name))
        if !names.isDisjoint(with: [.ifMatch, .ifUnmodifiedSince, .ifRange]) { return .other }
        if !names.isDisjoint(with: [.ifNoneMatch, .ifModifiedSince]) {
            return names.contains(.range) ? .other : .validation
        }
        // RFC 9110, section 14.2: only GET has ranges.
        guard let range = headers[.range], call.method == .get else { return .whole }
        return HTTPByteRange(range).map { .range($0) } ?? .other
    }
}

/// The request fields by which a cache selects a stored response: RFC 9111, section 4.1.
///
/// The token of an authenticator may be added after the selection. Therefore each field that a later token
/// may set is compared by the identity of the authenticator, in addition to the value in the request.
struct SelectingFields: Sendable {
    let headers: HTTPHeaders
    var credentials: CredentialsIdentity?

    /// The value of a field for the selection: the value in the request, and the identity of the
    /// authenticator if the authenticator may set the field.
    subscript(name: HTTPHeaders.Name) -> String? {
        guard let credentials, credentials.names.contains(name) else { return self.headers[name] }
        return [self.headers[name], credentials.authenticator].compactMap(\.self).joined(separator: " ")
    }

    /// The normalized values of `names` as text; empty without names.
    ///
    /// No field value contains NUL, so a missing field and an empty field have different texts.
    func text(of names: [HTTPHeaders.Name]) -> String {
        StoredResponse.selectingValues(of: names, in: self)
            .map { "\($0.key.canonical):\($0.value ?? "\u{0}")" }
            .sorted()
            .joined(separator: "\n")
    }
}

extension CacheableRequest {
    var headers: HTTPHeaders { self.call.call.headers }

    /// The fields of the request for the selection, with the identity of the credentials of a later step.
    var selectingFields: SelectingFields {
        SelectingFields(headers: self.headers, credentials: self.call.steps?.credentials)
    }

    /// Decides whether a stored response of the URL is used.
    ///
    /// - Parameters:
    ///   - stored: The stored responses of the URL, most recently stored first.
    ///   - now: The current time.
    ///   - staleLimit: The time after the lifetime in which a response may be used if the server cannot be
    ///     reached.
    /// - Returns: The decision.
    func decision(
        _ stored: [StoredResponse],
        at now: StoredResponse.Now,
        staleLimit: Duration = .zero
    ) -> CacheDecision {
        guard self.call.method == .get || self.call.method == .head else {
            // A stored response is used for GET and HEAD only, so `only-if-cached` excludes other methods.
            return self.control.onlyIfCached ? .refuse : .forward(CacheForward(reason: .method))
        }
        let decision = self.unrestrictedDecision(stored, at: now, staleLimit)
        if self.control.onlyIfCached, case .forward = decision { return .refuse }
        return decision
    }

    /// The decision for GET and HEAD, as if the request had no `only-if-cached`.
    private func unrestrictedDecision(
        _ stored: [StoredResponse],
        at now: StoredResponse.Now,
        _ staleLimit: Duration
    ) -> CacheDecision {
        guard self.kind != .other else { return .forward(CacheForward(reason: .bypass)) }
        guard let hit = self.hit(stored, at: now) else { return .forward(self.forward(withoutHitIn: stored, at: now)) }
        guard !self.control.noStore, !self.control.noCache else {
            return .forward(self.forward(.request, validating: hit, staleLimit: .zero))
        }
        if self.permits(hit) { return .use(hit) }
        // RFC 5861, section 3. The request must be for the complete content, because the revalidation sends
        // the same request.
        let stale = Duration.zero - hit.timeToLive
        let freshness = hit.response.freshness
        if stale >= .zero, let granted = freshness.limitSinceExpiry(freshness.staleWhileRevalidate), stale <= granted,
            !hit.response.freshness.mustRevalidate, !hit.response.isInvalidated, self.control.maxAge == nil,
            self.control.minFresh == nil,
            self.kind == .whole
        {
            var renewed = hit
            renewed.revalidates = true
            return .use(renewed)
        }
        let reason: HTTPCacheStatus.Forward = hit.timeToLive > .zero ? .request : .stale
        return .forward(self.forward(reason, validating: hit, staleLimit: staleLimit))
    }

    /// Whether the request accepts the age and the remaining lifetime of `hit`: RFC 9111, sections 4.2 and
    /// 5.2.1.
    private func permits(_ hit: CacheHit) -> Bool {
        if let limit = self.control.maxAge, hit.age > limit {
            // RFC 8246, section 2: a reload (`max-age=0`) does not validate a fresh immutable response.
            guard limit == .zero, hit.response.isImmutable, hit.timeToLive > .zero else { return false }
        }
        if hit.timeToLive > (self.control.minFresh ?? .zero) { return true }
        guard let tolerated = self.control.maxStale, self.control.minFresh == nil,
            !hit.response.freshness.mustRevalidate, !hit.response.isInvalidated
        else { return false }
        return .zero - hit.timeToLive <= tolerated
    }

    /// The first of `stored` that is a response to the request, fresh or stale.
    private func hit(_ stored: [StoredResponse], at now: StoredResponse.Now) -> CacheHit? {
        let fields = self.selectingFields
        // By index, because an iteration copies each response.
        for index in stored.indices where stored[index].isSelected(by: fields) {
            if let hit = self.hit(stored[index], at: now) { return hit }
        }
        return nil
    }

    /// `response` as a response to the request, fresh or stale; `nil` if the requested content is not
    /// stored.
    private func hit(_ response: consuming StoredResponse, at now: StoredResponse.Now) -> CacheHit? {
        guard response.body != .none else { return nil }
        var places: Range<Int>?
        var isNotModified = false
        switch self.kind {
        case .other: return nil
        case .range(let range) where response.status == 200 || response.status == 206:
            let first = response.part?.first ?? 0
            let total = response.part == nil ? response.count : response.part?.total
            // The byte positions of a decoded body differ from the server's byte positions.
            guard !response.isEncoded, let requested = range.places(in: total), requested.lowerBound >= first,
                requested.upperBound <= first + response.count
            else { return nil }
            places = (requested.lowerBound - first)..<(requested.upperBound - first)
        // RFC 9110, section 14.2: a range applies to a 200 only; for another status the range is ignored.
        case .whole, .range: guard response.part == nil else { return nil }
        case .validation:
            guard response.part == nil else { return nil }
            isNotModified = response.status == 200 && self.hasVersion(of: response)
        }
        var hit = CacheHit(response, at: now)
        (hit.places, hit.isNotModified) = (places, isNotModified)
        return hit
    }

    /// Whether the caller's condition names the version of `response`: RFC 9111, section 4.3.2.
    private func hasVersion(of response: StoredResponse) -> Bool {
        if let tags = self.headers[.ifNoneMatch] {
            let own = response.headers[.eTag].map { HTTPGrammar.trimmed($0) }
            return HTTPDirective.elements(of: tags).contains { tag in
                tag == "*" || own.map { HTTPValidator.isWeaklyEqual(tag, $0) } ?? false
            }
        }
        let date = { (text: String) in HTTPDate.parse(text, now: response.receivedAt) }
        guard let since = self.headers[.ifModifiedSince].flatMap(date) else { return false }
        let changed = response.headers[.lastModified] ?? response.headers[.date]
        return (changed.flatMap(date) ?? response.receivedAt) <= since
    }

    /// The parameters of the request to the server, if no response of `stored` has the requested content.
    private func forward(withoutHitIn stored: [StoredResponse], at now: StoredResponse.Now) -> CacheForward {
        guard !stored.isEmpty else { return self.forward(.uriMiss) }
        let fields = self.selectingFields
        let selected = stored.filter { $0.isSelected(by: fields) }
        guard !selected.isEmpty else { return self.forward(.varyMiss) }
        var forward = self.forward(.partial)
        if self.kind == .whole, self.call.method == .get, !self.control.noStore {
            forward.storedToComplete = selected.first { response in
                response.fileName == nil && response.part?.first == 0 && response.strongTag != nil
                    && !response.isEncoded
                    && CacheHit(response, at: now).timeToLive > .zero
            }
        }
        if self.call.method == .head, !self.control.noStore {
            forward.storedToCompare = selected.first { $0.part != nil }
        }
        // An entry without a body records `must-revalidate` or `no-cache`.
        forward.demandsServer = selected.contains { $0.body == .none }
        if forward.demandsServer { forward.reason = .stale }
        return forward
    }

    /// The parameters of a request to the server, before the callers add stored responses.
    private func forward(_ reason: HTTPCacheStatus.Forward) -> CacheForward {
        // The waiters of a shared exchange can use only the complete response to an unrestricted GET.
        let isShared = self.kind == .whole && self.call.method == .get
        let control = self.control
        let isRestricted = control.noStore || control.noCache || control.maxAge != nil || control.minFresh != nil
        return CacheForward(reason: reason, isShared: isShared && !isRestricted)
    }

    /// The parameters of a request to the server, if `hit` may not be used before the request.
    private func forward(
        _ reason: HTTPCacheStatus.Forward,
        validating hit: CacheHit,
        staleLimit: Duration
    ) -> CacheForward {
        var forward = self.forward(reason)
        let response = hit.response
        // Only for the complete content: a condition or a range of the caller is sent unchanged.
        if self.kind == .whole, !self.control.noStore, response.freshness.validator != nil {
            forward.storedToValidate = response
        }
        if self.call.method == .head, !self.control.noStore { forward.storedToCompare = response }
        forward.demandsServer = response.freshness.mustRevalidate
        guard !response.freshness.mustRevalidate, !response.isInvalidated, !self.control.noCache, !self.control.noStore
        else {
            return forward
        }
        let stale = Duration.zero - hit.timeToLive
        let granted = [response.freshness.limitSinceExpiry(response.freshness.staleIfError), self.control.staleIfError]
            .compactMap(\.self).max()
        forward.toleratesFailure = granted.map { $0 > .zero && stale <= $0 } ?? false
        if stale <= max(granted ?? .zero, staleLimit) { forward.fallback = hit }
        return forward
    }

    /// The resource of `reply`; after a redirection inside the transport, another resource than ``resource``.
    func resource(of reply: HTTPReply) -> String { reply.url.flatMap { HTTPResourceName($0)?.text } ?? self.resource }

    var isForRange: Bool { if case .range = self.kind { true } else { false } }

    /// Whether the request permits the storage of `reply` as the response to a later GET.
    ///
    /// A response to HEAD is not stored, but can update a stored response.
    func permitsStorage(of reply: HTTPReply) -> Bool {
        if self.call.method == .get { return self.kind != .other }
        // RFC 9110, section 9.3.3: the response to POST needs an explicit lifetime, and the URL of the
        // request in `Content-Location`.
        guard self.call.method == .post, (200...299).contains(reply.status) else { return false }
        guard HTTPCacheControl(reply.headers[.cacheControl]).maxAge != nil || reply.headers[.expires] != nil,
            let location = reply.headers[.contentLocation],
            let url = URLReference.url(location, relativeTo: reply.url ?? self.call.call.url)
        else { return false }
        return HTTPResourceName(url)?.text == self.resource
    }

    /// The ``ResponseCache/FlightName/variant`` of the request: the request's values of the fields that the
    /// first response of `stored` depends on; empty without such fields.
    func flightVariant(_ stored: [StoredResponse]) -> String {
        stored.first.map { self.selectingFields.text(of: Array($0.selectingValues.keys)) } ?? ""
    }
}
