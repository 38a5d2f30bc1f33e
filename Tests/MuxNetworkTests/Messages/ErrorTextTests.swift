import Foundation
import MuxConformance
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// Error texts for users: sentences with the failure, its cause, and a remedy.
@Suite(.standard)
struct ErrorTextTests {
    private struct Person: Codable, Sendable {
        struct Pet: Codable, Sendable { var name: String }

        var age: Int
        var pets: [Pet]
    }

    /// A server's error text for users, for example by RFC 9457.
    private struct Problem: Codable, Sendable, LocalizedError {
        var detail: String
        var errorDescription: String? { self.detail }
    }

    private struct GetPerson: HTTPRequest {
        typealias Output = Person
        typealias ServerError = Problem

        var method: HTTPMethod { .get }

        var endpoint: HTTPEndpoint { HTTPEndpoint(host: "api.example.com", path: "/people/{id}/profile") }
        var pathValues: [String: String] { ["id": "hunter2"] }
        var queryItems: HTTPQuery { ["key": "hunter2"] }
        var headers: HTTPHeaders { ["X-Key": "hunter2"] }
    }

    /// An error whose description is a secret.
    private struct Careless: Error, CustomStringConvertible {
        var description: String { "hunter2" }
    }

    private enum Weather: Error {
        case storm
    }

    /// A request with a configurable method and path.
    private struct Ask: HTTPRequest {
        typealias Output = Data
        typealias ServerError = Never

        var method: HTTPMethod = .get
        var endpoint = HTTPEndpoint(host: "api.example.com", path: "/notes/{id}")
        var pathValues: [String: String] = ["id": "hunter2"]
        var headers: HTTPHeaders = [:]
        var body: HTTPBody?
    }

    /// The error of a request whose exchange fails with `error`.
    private func asking(_ ask: Ask = Ask(), _ error: any Error = Weather.storm) async -> any Error {
        await self.failure { try await HTTPClient(transport: ScriptedTransport([.failure(error)])).output(of: ask) }
    }

    /// The error of a request to a URL, which has no path template, or to `path` below the URL.
    private func asking(at text: String, appending path: HTTPPath? = nil) async throws -> any Error {
        let url = try #require(URL(string: text))
        let place = try HTTPEndpoint(url)
        let ask = Ask(endpoint: path.map { place.appending($0) } ?? place, pathValues: [:])
        let transport = ScriptedTransport { _, _ in HTTPReply(status: 404) }
        return await self.failure { try await HTTPClient(transport: transport).output(of: ask) }
    }

    /// The error of an end point with this URL.
    private func refusal(of text: String) async throws -> any Error {
        let url = try #require(URL(string: text))
        return await self.failure { try HTTPEndpoint(url) }
    }

    private func tooMany(_ count: Int) -> RunnerError {
        .tooManyUpdates(count: count, elapsed: .nanoseconds(1_309_717), underlying: nil)
    }

    private func refusedAgain(_ count: Int) -> RunnerError {
        .tooManyUpdatesInWindow(count: count, window: .seconds(3_600), underlying: nil)
    }

    /// The error of a redirection with this query.
    private func redirected(_ query: String, issuer: String? = nil, to place: String = "app:/in") async throws
        -> any Error
    {
        let endpoint = try #require(URL(string: "https://login.example.com/authorize"))
        let authorization = try #require(
            OAuthAuthorization(
                endpoint: endpoint,
                issuer: issuer,
                client: OAuthClient(id: "app"),
                redirectURI: "app:/in"
            )
        )
        let url = try #require(URL(string: place + query.replacing("STATE", with: authorization.state)))
        return await self.failure { try authorization.code(from: url) }
    }

    /// The error of a request to a server that sends this response.
    private func failure(_ status: Int, _ body: String, type: String = "application/json") async -> any Error {
        let transport = ScriptedTransport { _, _ in
            HTTPReply(status: status, headers: [.contentType: type], body: Data(body.utf8))
        }
        return await self.failure { try await HTTPClient(transport: transport).output(of: GetPerson()) }
    }

    private func failure<Output>(_ work: () async throws -> Output) async -> any Error {
        do {
            _ = try await work()
            return Careless()
        } catch {
            return error
        }
    }

    /// The error of a token endpoint that sends this response.
    private func signInFailure(_ status: Int, _ body: String) async throws -> any Error {
        let transport = ScriptedTransport { _, _ in
            HTTPReply(status: status, headers: [.contentType: "application/json"], body: Data(body.utf8))
        }
        let url = try #require(URL(string: "https://login.example.com/token"))
        let endpoint = OAuthTokenEndpoint(url: url, client: OAuthClient(id: "app"), transport: transport)
        return await self.failure { try await endpoint.refresh("hunter2") }
    }

    private func decodingFailure(_ text: String) async -> any Error { await self.failure(200, text) }

    private func fileSystem(_ operation: MuxStoreError.FileOperation, _ code: POSIXError.Code) -> MuxStoreError {
        .fileSystem(operation, code: code.rawValue)
    }

    private func gaveUp(_ error: any Error) async -> any Error {
        await self.failure { try await retry(RetryPolicy(backoff: .immediate)) { _ -> Int in throw error } }
    }

    private var unencodable: any Error {
        EncodingError.invalidValue(Double.nan, .init(codingPath: [], debugDescription: "hunter2"))
    }

    private var unsaved: any Error {
        let failure = MuxStoreError.PartialSave.Failure(
            name: MuxStoreKey(domain: "hunter2"),
            error: MuxStoreError.lineBreakInPayload
        )
        return MuxStoreError.PartialSave([failure])
    }

    private func situations() async throws -> [(error: any Error, text: String)] {
        let offline = HTTPError.transport(.notResolved(URLError(.notConnectedToInternet)))
        return [
            (offline, "The host name could not be resolved. The device is offline."),
            (
                HTTPError.authentication(RunnerError.updateFailed(underlying: OAuthError.transport(offline))),
                """
                No credentials are available. The dependency could not be renewed: the update was refused. The request to the \
                sign-in server failed. The host name could not be resolved. The device is offline.
                """
            ),
            (HTTPError.transport(.timedOut(after: .seconds(20))), "The server did not respond within 20 seconds."),
            (
                HTTPError.transport(.unreachable(Careless())),
                "The communication with the server failed. The cause is Careless."
            ),
            (
                HTTPError.transport(.unreachable(Weather.storm)),
                "The communication with the server failed. The cause is Weather.storm."
            ),
            (
                HTTPError.preparation(.missingPathValue(name: "id")),
                "The placeholder “id” of the path has no value."
            ),
            (
                HTTPError.preparation(.encoding(self.unencodable)),
                "The body of the request could not be encoded. A value of type Double cannot be encoded."
            ),
            (
                try await self.signInFailure(
                    400,
                    #"{"error":"invalid_grant","error_description":"Wrong name or password"}"#
                ),
                "The sign-in server refused the request (invalid_grant): Wrong name or password."
            ),
            (
                try await self.signInFailure(400, #"{"error":"invalid_grant","error_description":"no token hunter2"}"#),
                "The sign-in server refused the request (invalid_grant)."
            ),
            (
                try await self.signInFailure(200, #"{"token_type":"Bearer"}"#),
                "The response of the sign-in server (status 200) is not valid: the field access_token is missing or not valid."
            ),
            (try await self.signInFailure(503, ""), "The sign-in server is unavailable (status 503)."),
            (
                RunnerError.signInFailed(underlying: Problem(detail: "The password is wrong.")),
                "The sign-in failed. The password is wrong."
            ),
            (
                RunnerError.tokensNotStored(underlying: self.fileSystem(.write, .ENOSPC)),
                """
                The new tokens could not be stored. The file system could not write to a file: No space left on device. \
                Remove other files first.
                """
            ),
            (
                self.fileSystem(.open, .EACCES),
                """
                The file system could not open or create a file: Permission denied. Use a folder that is writable for this \
                program.
                """
            ),
            (
                self.unsaved, "1 entry was not saved. The value to store contains a raw line break."
            ),
            (
                await self.gaveUp(offline),
                "Gave up after 3 attempts. The last error: The host name could not be resolved. The device is offline."
            ),
            (MuxError.timedOut(after: .seconds(60)), "The fetch did not end within 60 seconds."),
            (
                MuxError.wouldDeadlock,
                "The fetch waits for itself. A fetch must not request a value that waits for the fetch."
            ),
            (
                MuxError.repositoryMismatch,
                """
                The multiplexer, media or cache has another repository than the token, so a sign-out would not reach both. \
                Use the same repository for both.
                """
            ),
            (SilenceableError(offline), "The host name could not be resolved. The device is offline."),
            (
                CriticalError(Problem(detail: "The account is closed.")),
                "No further call can succeed. The account is closed."
            ),
            (
                MediaError.disk(self.fileSystem(.write, .EIO)),
                "The file system could not write to a file: Input/output error."
            ),
            (JSONWebToken.ParsingError.noClaims, "The claims of the token are not a JSON object."),
        ]
    }

    private func situationsOfRequests() async throws -> [(error: any Error, text: String)] {
        let late = HTTPError.TransportFailure.timedOut(after: .milliseconds(19_999))
        let cut = HTTPError.truncated(expected: nil, received: 1)
        let plain = HTTPEndpoint(host: "api.example.com", path: "/notes/\("hunter2")")
        let bare = HTTPEndpoint(host: "api.example.com", path: "/\("hunter2")")
        let signed = try #require(URL(string: "https://hunter2:hunter2@api.example.com/hunter2"))
        let failed = "GET api.example.com/notes/{id} failed."
        let unsent = "GET api.example.com/notes/{id} cannot be sent."
        return [
            (await self.asking(Ask(), late), "\(failed) The server did not respond within 20 seconds."),
            (await self.asking(Ask(), cut), "\(failed) The response ended early, after 1 byte."),
            (
                await self.asking(Ask(), HTTPError.truncated(expected: 9, received: 5)),
                "\(failed) The response is incomplete: 5 of 9 bytes."
            ),
            (await self.asking(), "\(failed) The communication with the server failed. The cause is Weather.storm."),
            (
                await self.asking(Ask(), HTTPError.unreachable(HTTPError.unreachable(Weather.storm))),
                "\(failed) The communication with the server failed. The cause is Weather.storm."
            ),
            (
                await self.asking(Ask(), HTTPError.redirectRefused(.tooMany(limit: 10))),
                "\(failed) The redirection was refused: the number of redirections exceeds 10."
            ),
            (
                await self.asking(Ask(), HTTPError.transport(.serverBusy(retryAfter: .seconds(120)))),
                "\(failed) The server is busy. Try again after 2 minutes."
            ),
            (
                await self.asking(Ask(endpoint: plain, pathValues: [:]), late),
                "GET api.example.com/notes/{} failed. The server did not respond within 20 seconds."
            ),
            (
                await self.asking(Ask(endpoint: bare, pathValues: [:]), late),
                "GET api.example.com failed. The server did not respond within 20 seconds."
            ),
            (await self.asking(Ask(pathValues: [:])), "\(unsent) The placeholder “id” of the path has no value."),
            (
                await self.asking(Ask(pathValues: ["id": "1", "ib\u{202e}": "hunter2"])),
                "\(unsent) The path of the request has no placeholder “ib\\u{202e}”."
            ),
            (
                await self.failure { try HTTPClient().call(for: Ask(pathValues: [:])) },
                "\(unsent) The placeholder “id” of the path has no value."
            ),
            (
                await self.asking(Ask(headers: ["X-A": "hunter2\n"])),
                "\(unsent) The header field “X-A” has an invalid character in the name or the value."
            ),
            (
                await self.asking(Ask(headers: ["Host": "hunter2"])),
                "\(unsent) The request must not set the header field “Host”; the transport sets the field."
            ),
            (
                await self.asking(Ask(method: .post, body: .json(["x": Double.nan]))),
                """
                POST api.example.com/notes/{id} cannot be sent. The body of the request could not be encoded. A value of type \
                Double cannot be encoded.
                """
            ),
            (
                await self.asking(Ask(method: "NOT ONE")),
                "The request to api.example.com/notes/{id} cannot be sent. The method of the request is not valid."
            ),
            (
                await self.failure { let _: Data = try await HTTPClient().get(signed) },
                """
                GET api.example.com cannot be sent. The URL of the request contains user information. Send user names and \
                passwords in a header field.
                """
            ),
            (
                try await self.asking(at: "https://api.example.com/hunter2?key=hunter2"),
                "The response to GET api.example.com has status 404 Not Found."
            ),
            (
                try await self.asking(at: "https://api.example.com:8443/hunter2", appending: "/notes"),
                "The response to GET api.example.com:8443/…/notes has status 404 Not Found."
            ),
            (
                try await self.asking(at: "https://api.example.com"),
                "The response to GET api.example.com/ has status 404 Not Found."
            ),
            (
                await self.failure(404, "{}"),
                "The response to GET api.example.com/people/{id}/profile has status 404 Not Found."
            ),
            (
                await self.failure(409, #"{"detail":"This name is taken."}"#),
                "The response to GET api.example.com/people/{id}/profile has status 409 Conflict: This name is taken."
            ),
        ]
    }

    /// Errors of requests by other parts of the library than `HTTPClient.output(of:)`.
    private func situationsOfCallers() async throws -> [(error: any Error, text: String)] {
        let late = HTTPError.TransportFailure.timedOut(after: .seconds(20))
        let client = HTTPClient(transport: ScriptedTransport([], thereafter: HTTPReply(status: 503)))
        let unavailable = "The response to GET api.example.com/notes/{id} has status 503 Service Unavailable."
        let url = try #require(URL(string: "https://hunter.example.com/hunter2?key=hunter2"))
        let login = try #require(URL(string: "https://login.example.com/hunter2"))
        let silent = ExchangeTransport { _, _ in throw late }
        let endpoint = OAuthTokenEndpoint(url: login, client: OAuthClient(id: "app"), transport: silent)
        let repository = MuxRepository(store: MemoryStore())
        return [
            (await self.failure { try await client.multiplexer(repository: repository, Ask()).request() }, unavailable),
            (
                await self.failure {
                    try await client.multiplexerMap(repository: repository) { Ask(pathValues: ["id": $0]) }
                        .request(key: "hunter2")
                },
                unavailable
            ),
            (
                await self.failure {
                    try await retry(RetryPolicy(backoff: .immediate)) { try await client.output(of: Ask()) }
                },
                "Gave up after 3 attempts. The last error: \(unavailable)"
            ),
            (
                await self.failure { try await silent.send(HTTPCall(url: url)) },
                "GET hunter.example.com failed. The server did not respond within 20 seconds."
            ),
            (
                await self.failure {
                    try await silent.stream(HTTPCall(method: "HEAD", url: url), into: HTTPBuffer(limit: 1))
                },
                "HEAD hunter.example.com failed. The server did not respond within 20 seconds."
            ),
            (
                await self.failure { try await endpoint.refresh("hunter2") },
                """
                The request to the sign-in server failed. POST login.example.com failed. The server did not respond within \
                20 seconds.
                """
            ),
        ]
    }

    /// Errors of a request for a file.
    private func situationsOfMedia() async throws -> [(error: any Error, text: String)] {
        let url = try #require(URL(string: "https://hunter2@media.example.com:8443/films/1.mp4?key=hunter2#hunter2"))
        let plain = try #require(URL(string: "https://media.example.com:8443/films/1.mp4?key=hunter2#hunter2"))
        let late = HTTPError.timedOut(after: .seconds(20))
        let body = HTTPReply(status: 200, headers: [.contentLength: "1"], body: Data("x".utf8))
        var page = body
        page.headers[.contentType] = "text/html"
        let failed = "GET media.example.com:8443/films/1.mp4 failed."
        return [
            (
                await self.fetching(plain, .success(HTTPReply(status: 404))),
                "The response to GET media.example.com:8443/films/1.mp4 has status 404 Not Found."
            ),
            (await self.fetching(plain, .failure(late)), "\(failed) The server did not respond within 20 seconds."),
            (
                await self.fetching(plain, .failure(Weather.storm)),
                "\(failed) The communication with the server failed. The cause is Weather.storm."
            ),
            (
                await self.fetching(plain, .success(body), sha256: String(repeating: "0", count: 64)),
                "\(failed) The digest of the file differs from the expected digest."
            ),
            (
                await self.fetching(plain, .success(page), accepts: [.jpeg]),
                "\(failed) The response is of the unexpected type text/html."
            ),
            (
                await self.fetching(url, .success(body)),
                """
                GET media.example.com:8443/films/1.mp4 cannot be sent. The URL of the request contains user information. Send \
                user names and passwords in a header field.
                """
            ),
        ]
    }

    /// The error of a request for a file with one response.
    private func fetching(
        _ url: URL,
        _ outcome: Result<HTTPReply, any Error>,
        sha256: String? = nil,
        accepts: [HTTPMediaType]? = nil
    ) async -> any Error {
        let folder = FileManager.default.temporaryDirectory.appending(component: "MuxMedia-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: folder) }
        let media = AsyncMedia(
            directory: folder,
            transport: ScriptedTransport { call, _ in
                _ = try ValidatedCall(call)
                return try outcome.get()
            },
            accepts: accepts,
            retry: .never,
            budget: nil,
            durability: .relaxed,
            repository: MuxRepository(store: MemoryStore())
        )
        return await self.failure { try await media.request(url: url, sha256: sha256) }
    }

    /// Errors without a request, or of a request without a valid host.
    private func situationsOfURLs() async throws -> [(error: any Error, text: String)] {
        let relative = try #require(URL(string: "/hunter2"))
        let noScheme = "The URL of the request has no scheme. A URL begins with https:// and the name of a host."
        let noUser =
            "The URL of the request contains user information. Send user names and passwords in a header field."
        return [
            (try await self.refusal(of: "https://hunter2:hunter2@api.example.com/"), noUser),
            (
                await self.asking(Ask(endpoint: HTTPEndpoint(host: "hunter2@api.example.com", path: "/notes/{id}"))),
                "GET /notes/{id} cannot be sent. \(noUser)"
            ),
            (try await self.refusal(of: "/hunter2"), noScheme),
            (await self.failure { try ValidatedCall(HTTPCall(url: relative)) }, noScheme),
            (
                try await self.refusal(of: "ftp://hunter2/"),
                "The scheme of the URL is ftp; only http and https are supported."
            ),
            (try await self.refusal(of: "https:///hunter2"), "The URL of the request has no host."),
        ]
    }

    /// Errors inside errors of the same kind.
    private func nestedSituations() async -> [(error: any Error, text: String)] {
        let refused = RunnerError.updateFailed(underlying: RunnerError.updateFailed(underlying: Weather.storm))
        let renewal = "The dependency could not be renewed: the update was refused."
        return [
            (refused, "\(renewal) The cause is Weather.storm."),
            (
                HTTPError.authentication(RunnerError.updateFailed(underlying: HTTPError.authentication(refused))),
                "No credentials are available. \(renewal) The cause is Weather.storm."
            ),
            (
                CriticalError(CriticalError(Weather.storm)),
                "No further call can succeed. The cause is Weather.storm."
            ),
            (
                await self.gaveUp(await self.gaveUp(Weather.storm)),
                "Gave up after 3 attempts. The last error: The cause is Weather.storm."
            ),
            (
                HTTPError.transport(.notConnected(URLError(.cannotConnectToHost))),
                "The connection to the server could not be established."
            ),
        ]
    }

    private func situationsOfBodies() async throws -> [(error: any Error, text: String)] {
        let keyed = "The response to GET api.example.com/people/{id}/profile could not be decoded."
        return [
            (
                await self.decodingFailure(#"{"age":3,"pets":[{"name":"a"},{"nom":"b"}]}"#),
                "\(keyed) “name” is missing at pets[1]."
            ),
            (
                await self.decodingFailure(#"{"age":"hunter2","pets":[]}"#),
                "\(keyed) The value at age is not of type Int."
            ),
            (await self.decodingFailure(#"{"age":null,"pets":[]}"#), "\(keyed) The value at age is null."),
            (await self.decodingFailure("hunter2"), "\(keyed) The data is not valid JSON."),
            (
                await self.failure(200, "<html>hunter2</html>", type: "text/html; charset=utf-8"),
                """
                \(keyed) The data is not valid JSON. The response is a web page, perhaps of a network that requires a sign-in.
                """
            ),
            (
                await self.decodingFailure(""),
                "\(keyed) The body is empty. If the body may be absent, make the output an optional."
            ),
            (await self.decodingFailure(#"{"age":3,"pets":["#), "\(keyed) The data is not valid JSON."),
            (await self.decodingFailure("[]"), "\(keyed) The value is not an object."),
            (await self.decodingFailure("null"), "\(keyed) The value is null."),
            (await self.decodingFailure(#"{"age":3,"pets":{}}"#), "\(keyed) The value at pets is not an array."),
            (await self.decodingFailure(#"{"age":3,"pets":[null]}"#), "\(keyed) The value at pets[0] is null."),
            (await self.decodingFailure(#"{"age":3,"pets":[7]}"#), "\(keyed) The value at pets[0] is not an object."),
        ]
    }

    private func situationsOfSessions() async throws -> [(error: any Error, text: String)] {
        let refused = "code=hunter2&state=STATE"
        return [
            (RunnerError.signInFailed(underlying: CancellationError()), "The sign-in was cancelled."),
            (HTTPError.authentication(RunnerError.signedOut), "The session ended."),
            (HTTPError.authentication(MuxError.sessionEnded), "The session ended before the value arrived."),
            (self.tooMany(1), "The task refused the dependency again after 1 update in 1 ms."),
            (self.tooMany(2), "The task refused the dependency again after 2 updates in 1 ms."),
            (self.refusedAgain(1), "The dependency was refused again after 1 update within 1 hour."),
            (RunnerError.timedOut(after: .seconds(5)), "The call did not end within 5 seconds."),
            (
                RunnerError.updateTimedOut(after: .milliseconds(1_500)),
                "The dependency could not be renewed within 1.5 seconds."
            ),
            (
                OAuthError.unavailable(503, retryAfter: .nanoseconds(119_999_839_502)),
                "The sign-in server is unavailable (status 503). Try again after 2 minutes."
            ),
            (
                try await self.redirected("?\(refused)", to: "app:/hunter2"),
                "The redirection leads to another URL than the redirect URI."
            ),
            (try await self.redirected("?\(refused)&code=b"), "A parameter of the redirection is repeated."),
            (
                try await self.redirected("?code=hunter2"),
                "The redirection has no parameter state."
            ),
            (
                try await self.redirected("?code=hunter2&state=hunter2"),
                "The redirection belongs to another sign-in: the parameter state differs."
            ),
            (
                try await self.redirected("?error=access_denied&state=STATE", issuer: "https://login.example.com"),
                "The redirection has no issuer (parameter iss)."
            ),
            (
                try await self.redirected("?\(refused)&iss=hunter2", issuer: "https://login.example.com"),
                "The issuer of the redirection (parameter iss) differs from the expected issuer."
            ),
            (
                try await self.redirected("?error=%22hunter2&state=STATE"),
                "The error code of the redirection is not valid."
            ),
            (try await self.redirected("?state=STATE"), "The redirection has no authorization code."),
            (BadDependency(), "The dependency was refused."),
        ]
    }

    private func situationsOfTests() -> [(error: any Error, text: String)] {
        [
            (
                LoopbackServer.Failure.cannotListen(code: POSIXError.Code.EADDRINUSE.rawValue, port: 38_291),
                "The loopback server cannot listen. Port 38291 is in use."
            ),
            (
                LoopbackServer.Failure.cannotListen(code: POSIXError.Code.EACCES.rawValue, port: 80),
                "The loopback server cannot listen on port 80. Permission denied."
            ),
            (
                LoopbackServer.Failure.cannotListen(code: POSIXError.Code.EMFILE.rawValue),
                "The loopback server cannot listen. Too many open files."
            ),
            (LoopbackServer.Failure.alreadyRunning, "The loopback server is running, or has not stopped yet."),
            (FakeOAuthServer.Failure.unavailable, "The fake server is unavailable."),
            (ScriptEnded(call: 4), "The script has no outcome for call 4."),
            (ConformanceFailure(rule: "It keeps", detail: "it did not"), "It keeps: it did not."),
            (MemorySharedStore.Away(), "The shared store of the test is disconnected."),
        ]
    }

    private func allSituations() async throws -> [(error: any Error, text: String)] {
        try await self.allRequests() + self.situations() + self.situationsOfURLs() + self.nestedSituations()
            + self.situationsOfSessions() + self.situationsOfTests()
    }

    /// The errors of requests to a valid host.
    private func allRequests() async throws -> [(error: any Error, text: String)] {
        try await self.situationsOfRequests() + self.situationsOfCallers() + self.situationsOfMedia()
            + self.situationsOfBodies()
    }

    @Test func `CO-25 an error text contains the failure, the cause and the remedy`() async throws {
        let situations = try await self.allSituations()
        #expect(situations.count >= 100)
        for (error, text) in situations {
            #expect(error.localizedDescription == text)
            #expect("\(error)" == text)
            #expect(ErrorText.sentence(of: error) == text)
        }
    }

    @Test func `CS-08 no text contains a sentence twice, and each text of a request contains its host`() async throws {
        for (error, _) in try await self.allSituations() {
            let sentences = "\(error) ".components(separatedBy: ". ")
            #expect(Set(sentences).count == sentences.count, "\(error)")
        }
        for (error, _) in try await self.allRequests() {
            // The host occurs once, behind the method and before the path template.
            let name = try Regex(#"(GET|HEAD|POST|request to) \w+\.example\.com(:8443)?(/\S*)? "#)
            #expect(error.localizedDescription.matches(of: name).count == 1, "\(error)")
            #expect(error.localizedDescription.ranges(of: "example.com").count == 1, "\(error)")
        }
    }

    @Test(arguments: [("http://[::1]:8080/hunter2", "[::1]:8080"), ("https://10.0.0.1/", "10.0.0.1/")])
    func `CS-08 an IP address in the name of a request is written as in the URL`(url: String, name: String) async throws
    {
        let error = try await self.asking(at: url)
        #expect("\(error)" == "The response to GET \(name) has status 404 Not Found.")
    }

    @Test func `CO-25 the keys of a dictionary are data, and no error text contains a key`() throws {
        let error = try #require(throws: DecodingError.self) {
            try JSONDecoder().decode([String: Person].self, from: Data(#"{"hunter2":{"age":"x","pets":[]}}"#.utf8))
        }
        #expect(ErrorText.sentence(of: error) == "The value at ….age is not of type Int.")
    }

    @Test func `CO-25 the text for an error of an unknown decoder contains only certain facts`() {
        let context = DecodingError.Context(codingPath: [], debugDescription: "hunter2")
        let errors: [(DecodingError, String)] = [
            (.dataCorrupted(context), "The value is not valid."),
            (.valueNotFound([Any].self, context), "An array is missing."),
            (.valueNotFound([String: Any].self, context), "An object is missing."),
            (.valueNotFound(Int.self, context), "A value of type Int is missing."),
            (.typeMismatch(Int.self, context), "The value is not of type Int."),
        ]
        for (error, text) in errors { #expect(ErrorText.sentence(of: error) == text) }
    }

    @Test func `CO-25 a server's error text is a single line of limited length`() async throws {
        let error = await self.failure(409, #"{"detail":" a\nb\u2028c\u202e "}"#)
        #expect(error.localizedDescription.hasSuffix(" has status 409 Conflict: a b c"))
        #expect(
            ErrorText.line("\u{646}\u{645}\u{6cc}\u{200c}\u{634}\u{648}\u{62f}")
                == "\u{646}\u{645}\u{6cc}\u{200c}\u{634}\u{648}\u{62f}"
        )
        let empty = await self.failure(409, #"{"detail":" "}"#)
        #expect(empty.localizedDescription.hasSuffix(" has status 409 Conflict."))
        let long = await self.failure(409, #"{"detail":"\#(String(repeating: "x", count: 9_000))"}"#)
        #expect(long.localizedDescription.count < 400)
    }

    @Test(
        arguments: [
            (.zero, "0 seconds"), (.nanoseconds(1), "less than 1 ms"), (.nanoseconds(1_309_717), "1 ms"),
            (.milliseconds(250), "250 ms"), (.nanoseconds(999_600_000), "1 second"), (.seconds(1), "1 second"),
            (.milliseconds(1_500), "1.5 seconds"), (.milliseconds(9_949), "9.9 seconds"),
            (.milliseconds(9_960), "10 seconds"), (.seconds(20), "20 seconds"), (.seconds(60), "60 seconds"),
            (.seconds(90), "90 seconds"), (.nanoseconds(119_999_839_502), "2 minutes"), (.seconds(150), "150 seconds"),
            (.seconds(600), "10 minutes"), (.seconds(3_600), "1 hour"), (.seconds(7_200), "2 hours"),
            (.seconds(9_000), "2.5 hours"), (.seconds(86_400), "24 hours"), (.seconds(172_800), "2 days"),
            (.seconds(-3), "-3 seconds"), (.seconds(Int64.max), "106751991167300.6 days"),
        ] as [(Duration, String)]
    )
    func `CO-25 durations are rounded for users`(time: Duration, text: String) {
        #expect(ErrorText.time(time) == text)
    }

    @Test func `CO-25 the description of an end point is its template`() throws {
        let url = try #require(URL(string: "https://api.example.com:81/hunter2?key=hunter2"))
        var query = HTTPQuery()
        query.items = [.init("page", "hunter2")]
        let points = [
            (
                HTTPEndpoint(host: "api.example.com", path: "/users/{id}/\("hunter2")", query: query),
                "https://api.example.com/users/{id}/{}?page=…"
            ),
            (HTTPEndpoint(scheme: .http, host: "localhost:8080"), "http://localhost:8080/"),
            (try HTTPEndpoint(url), "https://api.example.com:81/…?key=…"),
            (try HTTPEndpoint(url).appending("/users"), "https://api.example.com:81/…/users?key=…"),
            (HTTPEndpoint(host: "a:hunter2@b", path: HTTPPath(segments: ["hunter2"])), "https://invalid host/{}"),
            (HTTPEndpoint(path: "/users", query: query), "/users?page=…"),
        ]
        for (point, text) in points {
            #expect("\(point)" == text)
            var dumped = ""
            dump(point, to: &dumped)
            #expect(!dumped.contains("hunter2") && !String(reflecting: point.path).contains("hunter2"))
            #expect(text.contains("\(point.path)"))
            // With a conformance to `CustomStringConvertible`, an end point could be interpolated into a
            // path and would lose its values.
            #expect(
                !((point as Any) is any CustomStringConvertible || (point.path as Any) is any CustomStringConvertible)
            )
        }
    }

    @Test func `CO-25 the report of a failed save does not contain the value`() async throws {
        let repository = MuxRepository(store: MemoryStore())
        let map = MultiplexerMap<String, Double>(cacheKey: "Map", repository: repository) { _ in 1 }
        #expect(await "\(repository.saveAll())" == "nothing to save")
        map.store(.nan, key: "hunter2")
        map.store(1, key: "other")

        let report = await repository.saveAll()

        let failure = try #require(report.failed.first)
        #expect("\(failure)".hasPrefix("A value of type Double cannot be encoded"))
        #expect("\(report)" == "1 saved, 1 failed: \(failure)")
        #expect("\(report.failed)" == "[\(failure)]")
        var dumped = "\(failure) \(report)"
        dump(report, to: &dumped)
        dump(failure, to: &dumped)
        #expect(!dumped.contains("hunter2") && !dumped.contains("nan"))
    }

    @Test func `CO-25 the text of a system error contains the domain and the code`() {
        let error = NSError(domain: "org.example", code: 311)
        #expect(ErrorText.sentence(of: error) == "The cause is org.example 311.")
    }

    @Test func `CO-25 the request name for error texts does not affect the equality of calls`() throws {
        let url = try #require(URL(string: "https://api.example.com/people/hunter2/profile?key=hunter2"))
        let call = try HTTPClient().call(for: GetPerson())
        var plain = HTTPCall(url: url, headers: call.headers, timeout: call.timeout)
        plain.deadline = call.deadline
        #expect(call == plain && call.hashValue == plain.hashValue)
    }

    @Test(arguments: ["1/x+y=hunter2", "1%2Fx%2By%3Dhunter2"])
    func `CO-25 a server's text that quotes a token is left out`(quotation: String) async throws {
        let transport = ScriptedTransport { _, _ in
            let body = #"{"error":"invalid_grant","error_description":"no token \#(quotation)"}"#
            return HTTPReply(status: 400, headers: [.contentType: "application/json"], body: Data(body.utf8))
        }
        let url = try #require(URL(string: "https://login.example.com/token"))
        let endpoint = OAuthTokenEndpoint(url: url, client: OAuthClient(id: "my-app"), transport: transport)
        let error = await self.failure { try await endpoint.refresh("1/x+y=hunter2") }
        #expect("\(error)" == "The sign-in server refused the request (invalid_grant).")
    }

    @Test func `CO-25 no error text contains a secret, and no error text is meaningless`() async throws {
        for (error, _) in try await self.allSituations() {
            var dumped = ""
            dump(error, to: &dumped)
            for text in [error.localizedDescription, "\(error)", String(reflecting: error), dumped] {
                #expect(!text.contains("hunter2"), "\(text)")
            }
            let text = error.localizedDescription
            #expect(text.hasSuffix(".") && text.first?.isUppercase ?? false || text.first?.isNumber ?? false, "\(text)")
            #expect(!text.contains("couldn’t be completed") && !text.contains("could not be completed"), "\(text)")
            let hasCode = text.contains { $0 == ")" } && text.contains("Error ")
            #expect(!hasCode, "\(text)")
        }
    }
}
