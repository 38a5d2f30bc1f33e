import Foundation
import MuxKit

extension StoredResponse {
    /// Whether the response has the directive `immutable`: RFC 8246.
    var isImmutable: Bool { HTTPCacheControl(self.headers[.cacheControl]).isImmutable }

    /// The strong entity tag, which identifies the bytes of the body; `nil` without a strong tag: RFC 9110,
    /// section 8.8.1.
    var strongTag: String? {
        guard case .entityTag(let tag)? = self.freshness.validator, HTTPValidator.isStrongTag(tag) else { return nil }
        return tag
    }

    /// Whether the body has a content coding: RFC 9110, section 8.4.
    var isEncoded: Bool { !self.headers.isIdentityCoded }

    /// Makes the response to store, before the body arrives; `nil` if the response may not be stored.
    ///
    /// - Parameters:
    ///   - reply: The head of the response.
    ///   - request: The request.
    ///   - isRest: Whether the cache, not the caller, has asked for a range: the rest of a stored part.
    ///   - arrival: The time of the response's arrival.
    ///   - delay: The time from the request to the response.
    ///   - heuristicLimit: The maximum heuristic lifetime, which is derived from `Last-Modified`.
    init?(
        _ reply: HTTPReply,
        to request: CacheableRequest,
        isRest: Bool = false,
        at arrival: Now,
        delay: Duration,
        heuristicLimit: Duration
    ) {
        guard !request.control.noStore, request.permitsStorage(of: reply),
            request.resource(of: reply) == request.resource
        else { return nil }
        // A 401 and a neutral response (``SupersedingResponse/isNeutral(_:)``) do not describe the resource,
        // and are not stored, even with a lifetime. Unlike a neutral response, a 401 replaces a stored
        // response: access to the resource has ended.
        guard reply.status != 401, !SupersedingResponse.isNeutral(reply), reply.status != 304,
            let names = Self.storedNames(reply.headers)
        else { return nil }
        var part: Part?
        if reply.status == 206 {
            guard isRest || request.isForRange,
                let range = reply.headers[.contentRange].flatMap({ ContentRange($0)?.inMemory })
            else { return nil }
            part = Part(first: range.places.lowerBound, total: range.total)
        }
        let freshness = HTTPFreshness.of(
            HTTPFreshness.Response(
                // A part has the lifetime of the complete response.
                status: part == nil ? HTTPStatus(reply.status) : .ok,
                headers: reply.headers,
                receivedAt: arrival.date,
                delay: delay
            ),
            heuristicLimit: heuristicLimit
        )
        // A server error without a lifetime would replace a response that can be used in place of the error
        // (RFC 9111, section 4.3.3): some web frameworks send `private` with each response.
        guard reply.status < 500 || (freshness.timeToLive ?? .zero) > .zero else { return nil }
        // A response that is not reusable, but has `must-revalidate` or `no-cache`, is stored without a body:
        // if the server is unreachable later, the result is status 504.
        let isReusable =
            freshness.validator != nil || (freshness.timeToLive ?? .zero) > .zero
            || (freshness.staleWhileRevalidate ?? .zero) > .zero || (freshness.staleIfError ?? .zero) > .zero
        guard freshness.isKept, isReusable || freshness.mustRevalidate else { return nil }
        self.status = reply.status
        self.headers = Self.storable(reply.headers)
        self.url = reply.url
        self.selectingValues = Self.selectingValues(of: names, in: request.selectingFields)
        self.isTransient = Self.areCredentials(names, of: request)
        self.freshness = freshness
        self.receivedAt = arrival.date
        self.received = arrival.moment
        self.part = part
        self.body = isReusable ? .memory(Data()) : .none
    }

    /// The stored response, updated by a 304 or by a response to HEAD: RFC 9111, sections 3.2, 4.3.4 and
    /// 4.3.5.
    func validated(
        by reply: HTTPReply,
        for request: CacheableRequest,
        at arrival: Now,
        delay: Duration,
        heuristicLimit: Duration
    ) -> StoredResponse {
        var updated = self
        updated.headers = Self.updated(self.headers, by: reply.headers)
        // The fields for the age come from the new response: the previous `Age` is no longer valid.
        if reply.headers[.age] == nil { updated.headers[.age] = nil }
        // RFC 9110, section 6.6.1: the date of a response without `Date` is the time of the arrival.
        if reply.headers[.date] == nil { updated.headers[.date] = nil }
        updated.freshness = .of(
            HTTPFreshness.Response(
                status: self.part == nil ? HTTPStatus(self.status) : .ok,
                headers: updated.headers,
                receivedAt: arrival.date,
                delay: delay
            ),
            heuristicLimit: heuristicLimit
        )
        if let names = Self.storedNames(updated.headers) {
            updated.selectingValues = Self.selectingValues(of: names, in: request.selectingFields)
            updated.isTransient = Self.areCredentials(names, of: request)
            // A response that depends on credentials has no file.
            if updated.isTransient, updated.fileName != nil { updated.freshness.isKept = false }
        } else {
            updated.freshness.isKept = false
        }
        updated.isInvalidated = false
        updated.receivedAt = arrival.date
        updated.received = arrival.moment
        return updated
    }

    /// Whether a response to HEAD describes this content: RFC 9111, section 4.3.5.
    func isDescribed(by reply: HTTPReply) -> Bool {
        guard reply.status == (self.part == nil ? self.status : 200) else { return false }
        if let part, let total = part.total,
            let length = reply.headers[.contentLength].flatMap({ HTTPGrammar.number($0) }),
            length != total
        {
            return false
        }
        let isLengthOpen = self.headers[.contentEncoding] != nil || self.part != nil
        return [HTTPHeaders.Name.eTag, .lastModified, .contentLength].allSatisfy { name in
            guard let value = reply.headers[name], !(isLengthOpen && name == .contentLength) else { return true }
            return self.headers[name].map { HTTPGrammar.trimmed($0) == HTTPGrammar.trimmed(value) }
                ?? (name == .contentLength)
        }
    }

    /// The header fields of a response from the cache, with the current `Age`: RFC 9111, section 5.1.
    func headers(age: Duration) -> HTTPHeaders {
        var headers = self.headers
        headers[.age] = String(max(0, age.components.seconds))
        return headers
    }

    /// Combines this part and `other` to one response: RFC 9111, section 3.4.
    ///
    /// `other` is the newer part: the fields of `other` replace the fields of this part, as in
    /// ``updated(_:by:)``.
    ///
    /// - Returns: The response; `nil` unless both responses are parts of one version (equal strong tags, one
    ///   known total length), adjacent or overlapping, in memory, without a content coding, and together at
    ///   most `limit` bytes long.
    func combined(with other: StoredResponse, limit: Int) -> StoredResponse? {
        guard self.count <= limit - other.count, let part, let otherPart = other.part, let tag = self.strongTag,
            tag == other.strongTag, !self.isEncoded, !other.isEncoded,
            case .memory(let own) = self.body, case .memory(let new) = other.body,
            let total = otherPart.total ?? part.total,
            part.total == nil || otherPart.total == nil || part.total == total
        else { return nil }
        let pieces = [(part.first, own), (otherPart.first, new)].sorted { $0.0 < $1.0 }
        let (start, end) = (pieces[0].0, pieces[0].0 + pieces[0].1.count)
        guard pieces[1].0 <= end else { return nil }
        let body = pieces[0].1 + pieces[1].1.dropFirst(end - pieces[1].0)
        var combined = other
        combined.headers = Self.updated(self.headers, by: other.headers)
        combined.body = .memory(body)
        combined.count = body.count
        combined.part = start == 0 && body.count >= total ? nil : Part(first: start, total: total)
        if combined.part == nil { combined.status = 200 }
        combined.headers[.contentRange] = combined.part.map {
            "bytes \($0.first)-\($0.first + body.count - 1)/\(total)"
        }
        combined.headers[.contentLength] = String(body.count)
        return combined
    }
}
