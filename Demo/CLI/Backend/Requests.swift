import MuxNetwork

/// The error that the backend sends with a refusal: RFC 6749, section 5.2.
struct Problem: Decodable, Sendable {
    var error: String
}

/// Tokens as the backend sends them: RFC 6749, section 5.1.
struct Tokens: Decodable, Sendable {
    enum CodingKeys: String, CodingKey {
        case access = "access_token"
        case refresh = "refresh_token"
    }

    var access: String
    var refresh: String
}

/// Asks who the token belongs to: the shortest kind of request.
struct GetUserInfo: HTTPRequest {
    var endPoint: HTTPEndPoint
    var method: HTTPMethod { .get }
    typealias Output = App.Profile
}

/// Asks for a place, or for several in one request.
struct GetPlaces<Output: Decodable & Sendable>: HTTPRequest {
    var endPoint: HTTPEndPoint
    var method: HTTPMethod { .get }
}

/// Asks for tokens, and says what a refusal looks like.
struct PostForTokens: HTTPRequest {
    var endPoint: HTTPEndPoint
    var fields: HTTPQuery
    var method: HTTPMethod { .post }
    var body: HTTPBody? { .form(self.fields) }
    typealias Output = Tokens
    typealias ServerError = Problem
}
