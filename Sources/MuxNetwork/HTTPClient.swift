public import Foundation

/// Fetches and sends JSON below one base URL: the smallest typed layer over a transport.
///
/// ```swift
/// let client = HTTPClient(baseURL: url)
/// let me = try await client.get("me", bearer: token, as: Profile.self)
/// ```
///
/// **After a failure.** Nothing is remembered and nothing is repeated; the next call stands for itself.
public struct HTTPClient: Sendable {
    /// What every path is appended to.
    public var baseURL: URL

    private let transport: any HTTPTransport

    /// A client for the server at `baseURL`.
    ///
    /// - Parameters:
    ///   - baseURL: An absolute `http` or `https` URL without a query.
    ///   - transport: What sends the requests; by default a ``URLSessionTransport`` of its own.
    public init(baseURL: URL, transport: any HTTPTransport = URLSessionTransport()) {
        self.baseURL = baseURL
        self.transport = transport
    }

    /// Fetches a value.
    ///
    /// - Parameters:
    ///   - path: The place below the base URL.
    ///   - bearer: An access token, if the server wants one.
    ///   - type: What the answer is decoded as.
    /// - Returns: The decoded answer.
    /// - Throws: ``HTTPError``, or `CancellationError`.
    public func get<Output: Decodable>(
        _ path: HTTPPath,
        bearer: String? = nil,
        as type: Output.Type = Output.self
    ) async throws -> Output {
        try await self.decode(type, from: self.send(self.call("GET", path, bearer: bearer)))
    }

    /// Sends a value and fetches one.
    ///
    /// - Parameters:
    ///   - path: The place below the base URL.
    ///   - body: What is sent, encoded as JSON.
    ///   - bearer: An access token, if the server wants one.
    ///   - type: What the answer is decoded as.
    /// - Returns: The decoded answer.
    /// - Throws: ``HTTPError``, or `CancellationError`.
    public func post<Output: Decodable>(
        _ path: HTTPPath,
        json body: some Encodable,
        bearer: String? = nil,
        as type: Output.Type = Output.self
    ) async throws -> Output {
        var call = try self.call("POST", path, bearer: bearer)
        do {
            call.body = try JSONEncoder().encode(body)
        } catch {
            throw HTTPError.preparation(.encoding(error))
        }
        call.headers["Content-Type"] = "application/json"
        return try await self.decode(type, from: self.send(call))
    }

    private func call(_ method: String, _ path: HTTPPath, bearer: String?) throws(HTTPError) -> HTTPCall {
        guard let path = path.encoded, self.baseURL.query() == nil, self.baseURL.fragment() == nil else {
            throw .invalidURL
        }
        var base = self.baseURL.absoluteString
        while base.hasSuffix("/") { base.removeLast() }
        guard let url = URL(string: "\(base)/\(path)") else { throw .invalidURL }
        var call = HTTPCall(method: method, url: url, headers: ["Accept": "application/json"])
        if let bearer { call.headers["Authorization"] = "Bearer \(bearer)" }
        return call
    }

    private func send(_ call: HTTPCall) async throws -> HTTPReply {
        let reply = try await self.transport.send(call)
        guard (200...299).contains(reply.status) else {
            throw HTTPError.status(HTTPStatusError(HTTPResponse(request: call, reply: reply)))
        }
        return reply
    }

    private func decode<Output: Decodable>(_ type: Output.Type, from reply: HTTPReply) throws(HTTPError) -> Output {
        do {
            return try JSONDecoder().decode(type, from: reply.body)
        } catch {
            throw .decoding(
                HTTPDecodingError(HTTPResponse(request: HTTPCall(url: self.baseURL), reply: reply), underlying: error)
            )
        }
    }
}
