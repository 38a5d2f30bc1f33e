import Foundation
import MuxKit
import MuxNetwork

// Declarations that the samples about requests, media and retries use and do not show.

struct GetProfile: HTTPRequest {
    var endpoint: HTTPEndpoint { .init(scheme: .https, host: "api.domain.com", path: "/profile") }
    var method: HTTPMethod { .get }
    typealias Output = Profile
}

struct GetUserInfo: HTTPRequest {
    var endpoint: HTTPEndpoint { .init(scheme: .https, host: "api.domain.com", path: "/user") }
    var method: HTTPMethod { .get }
    typealias Output = User
}

extension HTTPEndpoint {
    nonisolated static let photos = HTTPEndpoint(scheme: .https, host: "api.domain.com", path: "/photos")
}

struct Page: Codable, Sendable {}
struct Busy: Error {}

func fetchPage() async throws -> Page { Page() }
nonisolated func fetch(_ done: @escaping @Sendable (Result<Data, any Error>) -> Void) { done(.success(Data())) }
func show(_ value: some Any, after attempts: Int = 0) {}

extension API {
    func profile() async throws -> Profile { Profile() }
}

struct Browser: Sendable {
    func open(_ url: URL) async throws -> URL { url }
}

struct Server: Sendable {
    func renew(_ refresh: String) async throws -> OAuthRenewal<JSONWebToken, String> { throw Busy() }
    func askForPassword() async throws -> OAuthSignIn<JSONWebToken, String> { throw Busy() }
}

let browser = Browser()
let server = Server()

final class ProgressBar {
    var value = 0.0
}

@available(*, unavailable)
extension ProgressBar: Sendable {}
