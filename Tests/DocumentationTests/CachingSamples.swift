import Foundation
import MuxKit
import MuxNetwork

// The articles about cached requests and media.

func cachedRequests(_ client: HTTPClient) async throws {
    struct GetUser: HTTPRequest {
        var id: String
        var endpoint: HTTPEndpoint { .init(scheme: .https, host: "api.domain.com", path: "/users/{id}") }
        var method: HTTPMethod { .get }
        var pathValues: [String: String] { ["id": self.id] }
        typealias Output = User
    }

    let profile = client.multiplexer(cacheKey: "Profile", GetProfile()).register()
    let users = client.multiplexerMap(cacheKey: "Users") { id in GetUser(id: id) }.register()

    let me = try await profile.request()
    let alice = try await users.request(key: "alice")
    _ = (me, alice)
}

func wholeAnswers() async throws {
    let client = HTTPClient(transport: .caching())
    let response = try await client.response(to: GetProfile())
    print(response.cacheStatus?.isHit ?? false)
}

func wholeAnswersOnDisk() {
    var options = CachingTransport.Configuration()
    options.cacheKey = "HTTP"
    options.diskLimit = 100 << 20
    let client = HTTPClient(transport: .caching(options: options))
    _ = client
}

func viewers(_ account: String, _ oauth: OAuthDependentRunner<JSONWebToken, String>) {
    var configuration = HTTPClient.Configuration()
    configuration.viewer = account
    let client = HTTPClient(configuration: configuration, authenticator: oauth)
    _ = client
}

func media(_ photo: URL, _ bar: ProgressBar) async throws {
    let file = try await AsyncMedia.shared.request(url: photo)
    for try await progress in AsyncMedia.shared.progress(of: photo) { bar.value = progress.fraction ?? 0 }
    let have = AsyncMedia.shared.cachedValue(url: photo)
    _ = (file, have)
}

func mediaWithSignedURLs(_ signedURL: URL) async throws {
    var limits = AsyncMedia.Limits()
    limits.minimumFileBytes = 100
    let photos = AsyncMedia(limits: limits, accepts: [.anyImage], key: { $0.path() })
    let file = try await photos.request(url: signedURL)
    _ = file
}

func mediaWithSignIn(_ oauth: OAuthDependentRunner<OAuthTokens.AccessToken, String>) {
    let media = AsyncMedia(dependency: oauth) { call, token in
        guard call.url.host() == "media.example.com" else { return }
        call.headers["Authorization"] = "Bearer \(token.value)"
    }
    _ = media
}
