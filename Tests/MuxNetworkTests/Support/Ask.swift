import Foundation
import MuxNetwork

/// A request whose parts are all configurable.
struct Ask<Output: Sendable, ServerError: Decodable & Sendable>: HTTPRequest {
    var endpoint = HTTPEndpoint(scheme: .http, host: "host")
    var method = HTTPMethod.get
    var pathValues: [String: String] = [:]
    var queryItems: HTTPQuery = []
    var headers: HTTPHeaders = [:]
    var usesPrivateHeaders = false
    var idempotencyKey: String?
    var body: HTTPBody?
    var timeout: Duration?
    var successStatuses: ClosedRange<HTTPStatus> = 200...299
    var mapper: HTTPMapper<Output>
}

extension Ask where Output == Data, ServerError == Never {
    init(_ change: (inout Self) -> Void = { _ in }) {
        self.init(mapper: .data())
        change(&self)
    }
}

extension Ask where Output: Decodable {
    init(_ type: Output.Type, errors: ServerError.Type, _ change: (inout Self) -> Void = { _ in }) {
        self.init(mapper: .json(errors: errors))
        change(&self)
    }
}

/// The error that servers send in these tests.
struct Problem: Codable, Sendable, Hashable {
    var code: Int
    var message: String
}

extension HTTPReply {
    static func json(_ text: String, status: Int = 200) -> HTTPReply {
        HTTPReply(status: status, headers: ["Content-Type": "application/json"], body: Data(text.utf8))
    }
}
