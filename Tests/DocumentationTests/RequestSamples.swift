import Foundation
import MuxKit
import MuxNetwork

// The landing page of MuxNetwork, and its articles about requests and errors.

func webLandingPage(_ oauth: OAuthDependentRunner<JSONWebToken, String>) async throws {
    struct GetUser: HTTPRequest {
        var endpoint: HTTPEndpoint { .init(scheme: .https, host: "api.domain.com", path: "/users/{id}") }
        var method: HTTPMethod { .get }
        typealias Output = User
    }

    let client = HTTPClient(configuration: .default, authenticator: oauth)
    let (user, response) = try await client.execute(GetUser(), path: ["id": "42"])
    _ = (user, response)
}

struct GetUser: HTTPRequest {
    var endpoint: HTTPEndpoint { .init(scheme: .https, host: "api.domain.com", path: "/users/{id}") }
    var method: HTTPMethod { .get }
    typealias Output = User
}

func requestOfTwoMembers() async throws {
    let client = HTTPClient()
    let user = try await client.output(of: GetUser(), path: ["id": "a/b"])  // GET /users/a%2Fb
    _ = user
}

struct PostPhoto: HTTPRequest {
    var photo: Data
    var endpoint: HTTPEndpoint { .photos }
    var method: HTTPMethod { .post }
    var queryItems: HTTPQuery { ["album": "a+b & c"] }  // ?album=a%2Bb%20%26%20c
    var headers: HTTPHeaders { [.acceptLanguage: "uk"] }
    var timeout: Duration? { .seconds(60) }
    var body: HTTPBody? {
        let file = HTTPMultipart.File(name: "photo", fileName: "beach.jpg", contentType: .jpeg, data: self.photo)
        return .multipart(HTTPMultipart(fields: ["title": "Summer"], files: [file]))
    }
    typealias Output = Photo
}

struct GetPhoto: HTTPRequest {
    var endpoint: HTTPEndpoint { .photos }
    var method: HTTPMethod { .get }
    var mapper: HTTPMapper<Photo> { .json(dates: .millisecondsSince1970) }
}

func requestToTextOfRunTime(_ text: String, _ url: URL) throws {
    let path = HTTPPath(segments: text.split(separator: "/").map(String.init))  // "tea/green leaf" is /tea/green%20leaf
    let place = try HTTPEndpoint(url).appending(path)
    _ = place
}

func timeouts() {
    var configuration = HTTPClient.Configuration()
    configuration.transport.timeout = .seconds(10)  // of silence
    configuration.transport.deadline = .seconds(120)  // in all
    let client = HTTPClient(configuration: configuration)
    _ = client
}

func requestTriedAgain() {
    var configuration = HTTPClient.Configuration()
    configuration.retry = .web
    let client = HTTPClient(configuration: configuration)
    _ = client
}

struct SocketClosed: Error {}
struct UntrustedServer: Error {}

extension SocketClosed: ConnectivityError {}

extension UntrustedServer: ConnectivityError {
    var isConnectivityFailure: Bool { false }
}

extension HTTPClient {
    func fetchUserInfo() async throws -> User { try await self.output(of: GetUserInfo()) }
}

struct Problem: Decodable, Sendable {
    var title: String
}

extension GetUser {
    typealias ServerError = Problem
}

func serverError(_ client: HTTPClient) async throws {
    do {
        let user = try await client.output(of: GetUser(), path: ["id": "42"])
        show(user.name)
    } catch let error as HTTPError where error.status == .notFound {
        show((try? error.decode(Problem.self))?.title ?? "There is no such user.")
    } catch HTTPError.transport(let error, _) {
        show(error.localizedDescription)
    }
}

func errorBody(_ client: HTTPClient) async throws {
    do {
        let user: User = try await client.get("/users/42")
        show(user.name)
    } catch let error as HTTPError where error.status == .notFound {
        show(try error.decode(Problem.self).title)
    }
}

struct GetReport: HTTPRequest {
    var endpoint: HTTPEndpoint { .init(scheme: .https, host: "api.domain.com", path: "/report") }
    var method: HTTPMethod { .get }
    var mapper: HTTPMapper<Data> {
        .init(output: { $0.body }, serverError: { String(decoding: $0.body, as: UTF8.self) })
    }
}

struct GetAccount: MuxNetwork.HTTPRequest {
    var endpoint: HTTPEndpoint { .init(scheme: .https, host: "api.domain.com", path: "/me") }
    var method: HTTPMethod { .get }
    typealias Output = Profile
}
