public import Foundation
import MuxKit

/// Requests in one line, named after their method.
extension HTTPClient {
    /// Sends a GET request and returns its output: `let user: User = try await client.get(url)`.
    ///
    /// - Parameters:
    ///   - url: An absolute `http` or `https` URL of your server: the request carries the client's header
    ///     fields and the authenticator's token, as any request of the client.
    ///   - type: The type of the output, if the call does not determine the type.
    ///   - headers: Header fields of the request.
    /// - Returns: The body as `Data`, or decoded from JSON.
    /// - Throws: ``HTTPError``, `MuxError.repositoryMismatch` (see ``CachingTransport``), or
    ///   `CancellationError`.
    public func get<Output: Decodable & Sendable>(
        _ url: URL,
        as type: Output.Type = Output.self,
        headers: HTTPHeaders = [:]
    ) async throws -> Output {
        let endpoint: HTTPEndpoint
        do throws(HTTPError.PreparationFailure) {
            endpoint = try HTTPEndpoint(url)
        } catch {
            throw HTTPError.preparation(error).naming(HTTPCall(url: url).name)
        }
        return try await self.output(of: PlainRequest<Output>(method: .get, endpoint: endpoint, headers: headers))
    }

    /// Sends a GET request below the client's base URL: `let user: User = try await client.get("/users/42")`.
    ///
    /// - Parameters:
    ///   - path: The path below ``HTTPClient/baseURL``.
    ///   - type: The type of the output, if the call does not determine the type.
    ///   - query: The query parameters, after the parameters of the base URL.
    ///   - headers: Header fields of the request.
    /// - Returns: The body as `Data`, or decoded from JSON.
    /// - Throws: ``HTTPError``, `MuxError.repositoryMismatch` (see ``CachingTransport``), or
    ///   `CancellationError`.
    public func get<Output: Decodable & Sendable>(
        _ path: HTTPPath,
        as type: Output.Type = Output.self,
        query: HTTPQuery = [],
        headers: HTTPHeaders = [:]
    ) async throws -> Output {
        try await self.output(of: PlainRequest(.get, path, query, headers))
    }

    /// Sends a POST request with a JSON body below the client's base URL, and returns its output:
    /// `let user: User = try await client.post("/users", body: draft)`.
    ///
    /// - Parameters:
    ///   - path: The path below ``HTTPClient/baseURL``.
    ///   - body: The value to send, encoded as the JSON of ``HTTPBody``. For encoded bytes, or an
    ///     object with values of different types, send an ``HTTPRequest``.
    ///   - type: The type of the output, if the call does not determine the type.
    ///   - query: The query parameters, after the parameters of the base URL.
    ///   - headers: Header fields of the request.
    /// - Returns: The body of the response as `Data`, or decoded from JSON.
    /// - Throws: ``HTTPError``, `MuxError.repositoryMismatch` (see ``CachingTransport``), or
    ///   `CancellationError`.
    public func post<Output: Decodable & Sendable>(
        _ path: HTTPPath,
        body: some Encodable & Sendable,
        as type: Output.Type = Output.self,
        query: HTTPQuery = [],
        headers: HTTPHeaders = [:]
    ) async throws -> Output {
        try await self.output(of: PlainRequest(.post, path, query, headers, .json(body)))
    }

    /// Sends a POST request with a JSON body below the client's base URL, and ignores the body of the
    /// response: `try await client.post("/likes", body: like)`.
    ///
    /// - Parameters:
    ///   - path: The path below ``HTTPClient/baseURL``.
    ///   - body: The value to send, encoded as the JSON of ``HTTPBody``. For encoded bytes, or an
    ///     object with values of different types, send an ``HTTPRequest``.
    ///   - query: The query parameters, after the parameters of the base URL.
    ///   - headers: Header fields of the request.
    /// - Throws: The errors of ``post(_:body:as:query:headers:)``.
    public func post(
        _ path: HTTPPath,
        body: some Encodable & Sendable,
        query: HTTPQuery = [],
        headers: HTTPHeaders = [:]
    ) async throws {
        _ = try await self.post(path, body: body, as: Data.self, query: query, headers: headers)
    }

    /// Sends a PUT request as ``post(_:body:as:query:headers:)``:
    /// `let user: User = try await client.put("/users/42", body: user)`.
    ///
    /// - Throws: The errors of ``post(_:body:as:query:headers:)``.
    public func put<Output: Decodable & Sendable>(
        _ path: HTTPPath,
        body: some Encodable & Sendable,
        as type: Output.Type = Output.self,
        query: HTTPQuery = [],
        headers: HTTPHeaders = [:]
    ) async throws -> Output {
        try await self.output(of: PlainRequest(.put, path, query, headers, .json(body)))
    }

    /// Sends a PUT request as ``post(_:body:query:headers:)``, and ignores the body of the response.
    ///
    /// - Throws: The errors of ``post(_:body:as:query:headers:)``.
    public func put(
        _ path: HTTPPath,
        body: some Encodable & Sendable,
        query: HTTPQuery = [],
        headers: HTTPHeaders = [:]
    ) async throws {
        _ = try await self.put(path, body: body, as: Data.self, query: query, headers: headers)
    }

    /// Sends a PATCH request as ``post(_:body:as:query:headers:)``:
    /// `let user: User = try await client.patch("/users/42", body: ["name": name])`.
    ///
    /// - Throws: The errors of ``post(_:body:as:query:headers:)``.
    public func patch<Output: Decodable & Sendable>(
        _ path: HTTPPath,
        body: some Encodable & Sendable,
        as type: Output.Type = Output.self,
        query: HTTPQuery = [],
        headers: HTTPHeaders = [:]
    ) async throws -> Output {
        try await self.output(of: PlainRequest(.patch, path, query, headers, .json(body)))
    }

    /// Sends a PATCH request as ``post(_:body:query:headers:)``, and ignores the body of the response.
    ///
    /// - Throws: The errors of ``post(_:body:as:query:headers:)``.
    public func patch(
        _ path: HTTPPath,
        body: some Encodable & Sendable,
        query: HTTPQuery = [],
        headers: HTTPHeaders = [:]
    ) async throws {
        _ = try await self.patch(path, body: body, as: Data.self, query: query, headers: headers)
    }

    /// Sends a DELETE request without a body below the client's base URL, and ignores the body of the
    /// response: `try await client.delete("/users/42")`.
    ///
    /// - Parameters:
    ///   - path: The path below ``HTTPClient/baseURL``.
    ///   - query: The query parameters, after the parameters of the base URL.
    ///   - headers: Header fields of the request.
    /// - Throws: The errors of ``post(_:body:as:query:headers:)``.
    public func delete(_ path: HTTPPath, query: HTTPQuery = [], headers: HTTPHeaders = [:]) async throws {
        _ = try await self.output(of: PlainRequest<Data>(.delete, path, query, headers))
    }
}

/// The request of functions with a URL or a path, such as ``HTTPClient/get(_:as:headers:)``.
struct PlainRequest<Output: Decodable & Sendable>: HTTPRequest {
    let method: HTTPMethod
    let endpoint: HTTPEndpoint
    let headers: HTTPHeaders
    var body: HTTPBody?
}

extension PlainRequest {
    /// A request below the client's base URL.
    init(
        _ method: HTTPMethod,
        _ path: HTTPPath,
        _ query: HTTPQuery,
        _ headers: HTTPHeaders = [:],
        _ body: HTTPBody? = nil
    ) {
        self.init(method: method, endpoint: HTTPEndpoint(path: path, query: query), headers: headers, body: body)
    }
}
