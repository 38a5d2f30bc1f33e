import MuxCompatibility
import MuxKit
import MuxNetwork

// Code of users of the older systems. Each line that ends with a comment must compile with a warning that
// contains the comment's text, and no other line may cause a warning.

func junction() async throws -> Int {
    let dependency = Dependency<Int>(configuration: .default)  // 'DependentRunner'
    return try await Task.inject(dependency: dependency) { number, _ in  // inject(dependency:_:refresh:)
        number == 3 ? .success(number) : .dependencyRequiresRefresh  // 'output(_:)'
    } refresh: { number, _ in
        (number ?? 0) + 1
    }
}

func result(_ number: Int) -> RunResult<Int> {
    number == 3 ? .output(number) : .dependencyRequiresRefresh  // 'badDependency'
}

func asyncMux(_ id: String) throws {
    let users = MultiRequester<String, Int>(onFetchMany: { ids in [:] })  // MultiplexerMap(onFetchMany:)
    _ = users
    throw SilencableError(CancellationError())  // 'SilenceableError'
}

func snippets() async throws -> (Int, Int) {
    let one = try await Task.retry { 1 }  // retry(_:operation:)
    let two = try await Task.retry(.immediate(maxAttempts: 2)) { 2 }  // retry(_:operation:)
    return (one, two)
}

struct UserGETRequest: HTTPRequest {
    var endpoint: HTTPEndpoint {
        HTTPEndpoint(
            host: .specific("api.domain.com"),  // 'init(_:)'
            path: "/me"
        )
    }
    var method: HTTPMethod { .GET }  // 'get'
}

let place: HTTPEndPoint = UserGETRequest().endpoint  // 'HTTPEndpoint'
let samePlace = UserGETRequest().endPoint  // 'endpoint'

let methods: [HTTPMethod] = [
    .HEAD,  // 'head'
    .POST,  // 'post'
    .PUT,  // 'put'
    .PATCH,  // 'patch'
    .DELETE,  // 'delete'
    .OPTIONS,  // 'options'
]

let key: HTTPHeaderKey = .contentType  // 'HTTPHeaders.Name'
let type: HTTPMimeType = .json  // 'HTTPMediaType'
let status: HTTPStatusCode = .ok  // 'HTTPStatus'
let parts = HTTPMultipartData()  // 'HTTPMultipart'
let configuration = NetworkSessionConfiguration()  // 'HTTPClient.Configuration'

func authenticate(with authenticator: some NetworkAuthentificator) {}  // 'HTTPAuthenticator'
func use(_ token: some TokenRepresentable) {}  // 'HTTPToken'
func isOver(_ error: any Error) -> Bool { error is NetworkSessionFailure }  // 'HTTPError'
