import Foundation
import MuxKit

/// Fetches a resource for a multiplexer, conditionally where it has a value: RFC 9111, section 4.3.
struct HTTPFetch: Sendable {
    let client: HTTPClient

    /// Fetches the value, or validates `before`.
    ///
    /// - Returns: The value, with its freshness.
    /// - Throws: ``HTTPError``, or `CancellationError`.
    func callAsFunction<Request: HTTPRequest>(
        _ request: Request,
        _ before: FetchedBefore<Request.Output>?
    ) async throws -> Fetched<Request.Output> {
        let isAsked = request.method == .get || request.method == .head
        if isAsked, let before, let validator = before.validator.flatMap({ HTTPValidator($0) }) {
            let condition = validator.condition
            let (response, delay) = try await self.response(to: request, [condition.name: condition.value])
            guard response.status == .notModified else { return try self.fetched(request, response, delay) }
            if validator.isMet(by: response.headers) { return self.renewed(before, request, response, delay) }
            // RFC 9111, section 4.3.4: the 304 is about another version.
        }
        let (response, delay) = try await self.response(to: request, [:])
        return try self.fetched(request, response, delay)
    }

    private func response(
        to request: some HTTPRequest,
        _ headers: HTTPHeaders
    ) async throws -> (HTTPResponse, delay: Duration) {
        let start = self.client.time.now
        let response = try await self.client.response(to: request, headers: headers)
        return (response, self.client.time.now.duration(since: start))
    }

    private func fetched<Request: HTTPRequest>(
        _ request: Request,
        _ response: HTTPResponse,
        _ delay: Duration
    ) throws -> Fetched<Request.Output> {
        guard request.successStatuses.contains(response.status) else {
            throw HTTPError.status(request.mapper.failure(of: response))
        }
        let freshness = self.freshness(request, response, delay)
        let isAsked = freshness.validator != nil && self.client.configuration.validatesWithoutLifetime
        let timeToLive = freshness.timeToLive ?? (isAsked ? .zero : nil)
        return Fetched(
            try request.mapper.output(of: response),
            timeToLive: timeToLive,
            staleWhileRevalidate: freshness.staleWhileRevalidate,
            staleIfError: freshness.staleIfError,
            validator: freshness.validator?.text,
            isKept: freshness.isKept
        )
    }

    /// RFC 9111, section 4.3.4: the fields of the 304 replace those of before; the others stay.
    private func renewed<Request: HTTPRequest>(
        _ before: FetchedBefore<Request.Output>,
        _ request: Request,
        _ response: HTTPResponse,
        _ delay: Duration
    ) -> Fetched<Request.Output> {
        let saysAnything = response.headers[.cacheControl] != nil || response.headers[.expires] != nil
        var freshness = saysAnything ? self.freshness(request, response, delay) : HTTPFreshness()
        if response.headers[.cacheControl] == nil {
            // The directives of before still hold, such as `no-cache`, whatever `Expires` says.
            freshness.timeToLive = min(freshness.timeToLive ?? before.timeToLive, before.timeToLive)
            freshness.staleWhileRevalidate = before.stale.whileRevalidate
            freshness.staleIfError = before.stale.ifError
        }
        var fetched = before.notModified(
            timeToLive: freshness.timeToLive,
            staleWhileRevalidate: freshness.staleWhileRevalidate,
            staleIfError: freshness.staleIfError,
            validator: freshness.validator?.text
        )
        fetched.isKept = freshness.isKept
        return fetched
    }

    private func freshness(
        _ request: some HTTPRequest,
        _ response: HTTPResponse,
        _ delay: Duration
    ) -> HTTPFreshness {
        let answer = HTTPFreshness.Answer(
            method: request.method,
            status: response.status,
            headers: response.headers,
            receivedAt: self.client.configuration.wallTime(),
            delay: delay
        )
        return .of(answer, heuristicLimit: self.client.configuration.heuristicLimit)
    }
}
