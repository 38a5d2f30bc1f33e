import Foundation
import MuxKit

/// Fetches a resource for a multiplexer: RFC 9111, section 4.3.
///
/// A GET or HEAD request has a condition if the previous value has a validator and matches the request.
struct ConditionalFetch: Sendable {
    let client: HTTPClient

    /// Fetches the value, or validates the previous value `before`, if any.
    ///
    /// - Returns: The new or validated value, with its freshness.
    /// - Throws: ``HTTPError``, `MuxError.repositoryMismatch`, or `CancellationError`.
    func callAsFunction<Request: HTTPRequest>(
        _ request: Request,
        _ before: FetchedBefore<Request.Output>?
    ) async throws -> Fetched<Request.Output> {
        let isRead = Self.isRead(request)
        let fields = self.client.configuration.fields(of: request)
        let variant = before?.validator.map { HTTPVariant($0) }
        // A previous value is not used if this request differs in a field of the value's `Vary`.
        let before = variant?.isSelected(by: fields) ?? true ? before : nil
        let isReload = before.map { $0.age < $0.timeToLive } ?? false
        let headers = self.headers(of: request, fields, isReload: isReload)
        if isRead, let before, let variant, let validator = variant.validator {
            var conditional = headers
            conditional[validator.condition.name] = validator.condition.value
            let (response, delay) = try await self.response(to: request, conditional)
            guard response.status == .notModified else { return try self.fetched(request, fields, response, delay) }
            if !response.isRedirected, validator.isMet(by: response.headers) {
                return self.renewed(before, variant, request, fields, response, delay)
            }
            // RFC 9111, section 4.3.4: the 304 is for another version or another resource, so the value is
            // fetched without a condition.
        }
        let (response, delay) = try await self.response(to: request, headers)
        return try self.fetched(request, fields, response, delay)
    }

    private static func isRead(_ request: some HTTPRequest) -> Bool {
        request.method == .get || request.method == .head
    }

    /// The additional header fields of a fetch.
    ///
    /// A fetch despite a fresh value must reach the server: intermediate caches must not respond without
    /// validation (RFC 9111, section 5.2.1.4).
    private func headers(of request: some HTTPRequest, _ fields: HTTPHeaders, isReload: Bool) -> HTTPHeaders {
        guard isReload, Self.isRead(request), fields[.cacheControl] == nil else { return [:] }
        return [.cacheControl: "no-cache"]
    }

    /// Fetches many values with one request.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - isReload: Whether a cached value is still fresh: then the request must reach the server.
    /// - Returns: The values, each with the freshness of the response.
    /// - Throws: ``HTTPError``, `MuxError.repositoryMismatch`, or `CancellationError`.
    func values<Key, Value, Request: HTTPRequest>(
        of request: Request,
        isReload: Bool
    ) async throws -> [Key: Fetched<Value>] where Request.Output == [Key: Value] {
        let fields = self.client.configuration.fields(of: request)
        let headers = self.headers(of: request, fields, isReload: isReload)
        let (response, delay) = try await self.response(to: request, headers)
        let all = try self.fetched(request, fields, response, delay, areMany: true)
        return all.value.mapValues { value in
            Fetched(
                value,
                timeToLive: all.timeToLive,
                staleWhileRevalidate: all.staleWhileRevalidate,
                staleIfError: all.staleIfError,
                validator: all.validator,
                isKept: all.isKept
            )
        }
    }

    /// Whether a cached value with this validator matches the current `request`.
    func isSelected(_ validator: String, by request: some HTTPRequest) -> Bool {
        HTTPVariant(validator).isSelected(by: self.client.configuration.fields(of: request))
    }

    private func response(
        to request: some HTTPRequest,
        _ headers: HTTPHeaders
    ) async throws -> (HTTPResponse, delay: Duration) {
        let start = self.client.time.now
        let response = try await self.client.responseForCache(to: request, headers: headers)
        return (response, self.client.time.now.duration(since: start))
    }

    private func fetched<Request: HTTPRequest>(
        _ request: Request,
        _ fields: HTTPHeaders,
        _ response: HTTPResponse,
        _ delay: Duration,
        areMany: Bool = false
    ) throws -> Fetched<Request.Output> {
        guard request.successStatuses.contains(response.status) else {
            throw HTTPError.status(request.mapper.failure(of: response))
        }
        var freshness = self.freshness(request, response, delay)
        if response.isRedirected {
            // The rules are for the target of this redirection; the next redirection may lead elsewhere.
            freshness.timeToLive = .zero
            freshness.validator = nil
            freshness.staleWhileRevalidate = freshness.staleWhileRevalidate.map { _ in Duration.zero }
        }
        let timeToLive = self.timeToLive(freshness, areMany ? nil : freshness.validator)
        // RFC 9110, section 13.1.2: a server would refuse a conditional POST, rather than respond with a 304.
        // The validator of a response with many values identifies no single value.
        let validator = request.method == .post || areMany ? nil : freshness.validator
        let variant = HTTPVariant(validator, varying: self.names(response), in: fields)
        return Fetched(
            try request.mapper.output(of: response),
            timeToLive: timeToLive,
            staleWhileRevalidate: freshness.staleWhileRevalidate,
            staleIfError: freshness.staleIfError,
            validator: variant.text,
            isKept: freshness.isKept && !variant.dependsOnCredentials(in: fields, of: self.client.chain.transport)
        )
    }

    /// Renews the previous value: RFC 9111, section 4.3.4.
    ///
    /// `Cache-Control` and `Vary` of the 304 replace the previous fields. `Expires` without `Cache-Control`
    /// can only shorten the previous lifetime. If both fields are missing, the previous lifetime remains.
    private func renewed<Request: HTTPRequest>(
        _ before: FetchedBefore<Request.Output>,
        _ variant: HTTPVariant,
        _ request: Request,
        _ fields: HTTPHeaders,
        _ response: HTTPResponse,
        _ delay: Duration
    ) -> Fetched<Request.Output> {
        var response = response
        // A 304 may omit unchanged fields: the heuristic lifetime depends on the previous `Last-Modified`. If
        // the validator is an entity tag, the previous `Last-Modified` is unknown, and a 304 with a
        // `Cache-Control` without a lifetime ends the heuristic lifetime.
        if case .lastModified(let text)? = variant.validator, response.headers[.lastModified] == nil {
            response.headers[.lastModified] = text
        }
        let saysAnything = response.headers[.cacheControl] != nil || response.headers[.expires] != nil
        var freshness = saysAnything ? self.freshness(request, response, delay) : HTTPFreshness()
        if response.headers[.cacheControl] == nil {
            // The previous directives, such as `no-cache`, still apply. Only their lifetime is stored, so the
            // lifetime is the minimum of the previous and the new lifetime.
            freshness.timeToLive = min(freshness.timeToLive ?? before.timeToLive, before.timeToLive)
            freshness.staleWhileRevalidate = before.stale.whileRevalidate
            freshness.staleIfError = before.stale.ifError
        }
        let names = response.headers[.vary] == nil ? variant.names : self.names(response)
        // RFC 9111, section 4.3.4: a strong tag does not replace a weak tag.
        let isUpdated = variant.validator?.isUpdated(by: response.headers) ?? true
        let validator = isUpdated ? freshness.validator ?? variant.validator : variant.validator
        let renewed = HTTPVariant(validator, varying: names, in: fields)
        var fetched = before.notModified(
            timeToLive: self.timeToLive(freshness, validator),
            staleWhileRevalidate: freshness.staleWhileRevalidate,
            staleIfError: freshness.staleIfError,
            validator: renewed.text
        )
        fetched.isKept = freshness.isKept && !renewed.dependsOnCredentials(in: fields, of: self.client.chain.transport)
        return fetched
    }

    /// The lifetime of a value: zero for a validator without a lifetime, if the configuration requires the
    /// validation of such a value; `nil` for the policy's lifetime.
    private func timeToLive(_ freshness: HTTPFreshness, _ validator: HTTPValidator?) -> Duration? {
        let isAsked = validator != nil && self.client.configuration.validatesWithoutLifetime
        return freshness.timeToLive ?? (isAsked ? .zero : nil)
    }

    private func names(_ response: HTTPResponse) -> [HTTPHeaders.Name] {
        // `nil` for `*` or an invalid name: each use then requires validation in any case.
        StoredResponse.selectingNames(response.headers) ?? []
    }

    private func freshness(
        _ request: some HTTPRequest,
        _ response: HTTPResponse,
        _ delay: Duration
    ) -> HTTPFreshness {
        // RFC 9110, section 9.3.3: a response to POST may be cached. By caching a POST, the app declares a
        // query, so the rules of GET apply.
        let isQuery = request.method == .post
        let received = HTTPFreshness.Response(
            method: isQuery ? .get : request.method,
            status: response.status,
            headers: response.headers,
            receivedAt: self.client.configuration.wallTime(),
            delay: delay
        )
        return .of(received, heuristicLimit: self.client.configuration.heuristicLimit)
    }
}
