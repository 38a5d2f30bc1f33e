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

/// What people read when something fails: a sentence that says what, why, and what would help.
@Suite(.timeLimit(.minutes(15)), .takesTurns, .endsAtRest)
struct ErrorTextTests {
    private struct Person: Codable, Sendable {
        struct Pet: Codable, Sendable { var name: String }

        var age: Int
        var pets: [Pet]
    }

    /// What a server says to people, for example by RFC 9457.
    private struct Problem: Codable, Sendable, LocalizedError {
        var detail: String
        var errorDescription: String? { self.detail }
    }

    private struct GetPerson: HTTPRequest {
        typealias Output = Person
        typealias ServerError = Problem

        var method: HTTPMethod { .get }

        var endPoint: HTTPEndPoint { HTTPEndPoint(host: "api.example.com", path: "/people/{id}/profile") }
        var pathValues: [String: String] { ["id": "hunter2"] }
        var queryItems: HTTPQuery { ["key": "hunter2"] }
        var headers: HTTPHeaders { ["X-Key": "hunter2"] }
    }

    /// An error whose texts for developers quote what is secret.
    private struct Careless: Error, CustomStringConvertible {
        var description: String { "hunter2" }
    }

    private enum Weather: Error {
        case storm
    }

    /// A request whose method and path are given.
    private struct Ask: HTTPRequest {
        typealias Output = Data
        typealias ServerError = Never

        var method: HTTPMethod = .get
        var endPoint = HTTPEndPoint(host: "api.example.com", path: "/notes/{id}")
        var pathValues: [String: String] = ["id": "hunter2"]
        var headers: HTTPHeaders = [:]
        var body: HTTPBody?
    }

    /// The error of a request whose exchange fails so.
    private func asking(_ ask: Ask = Ask(), _ error: any Error = Weather.storm) async -> any Error {
        await self.failure { try await HTTPClient(transport: ScriptedTransport([.failure(error)])).output(of: ask) }
    }

    /// The error of a request to a URL, which has no template, or below one.
    private func asking(at text: String, appending path: HTTPPath? = nil) async throws -> any Error {
        let url = try #require(URL(string: text))
        let place = try HTTPEndPoint(url)
        let ask = Ask(endPoint: path.map { place.appending($0) } ?? place, pathValues: [:])
        let transport = ScriptedTransport { _, _ in HTTPReply(status: 404) }
        return await self.failure { try await HTTPClient(transport: transport).output(of: ask) }
    }

    /// The error of an end point of this URL.
    private func refusal(of text: String) async throws -> any Error {
        let url = try #require(URL(string: text))
        return await self.failure { try HTTPEndPoint(url) }
    }

    private func tooMany(_ count: Int) -> RunnerError {
        .tooManyUpdates(count: count, elapsed: .nanoseconds(1_309_717), underlying: nil)
    }

    private func refusedAgain(_ count: Int) -> RunnerError {
        .tooManyUpdatesInWindow(count: count, window: .seconds(3_600), underlying: nil)
    }

    /// The error of a redirection.
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

    /// The error of a request to a server that answers so.
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

    /// The error of a token endpoint that answers so.
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
        let keyed = "The answer to GET /people/{id}/profile could not be read."
        return [
            (await self.failure(404, "{}"), "The server answered GET /people/{id}/profile with status 404 Not Found."),
            (
                await self.failure(409, #"{"detail":"This name is taken."}"#),
                "The server answered GET /people/{id}/profile with status 409 Conflict: This name is taken."
            ),
            (
                await self.decodingFailure(#"{"age":3,"pets":[{"name":"a"},{"nom":"b"}]}"#),
                "\(keyed) “name” is missing at pets[1]."
            ),
            (
                await self.decodingFailure(#"{"age":"hunter2","pets":[]}"#),
                "\(keyed) What is there is not of type Int at age."
            ),
            (await self.decodingFailure(#"{"age":null,"pets":[]}"#), "\(keyed) What is there is null at age."),
            (await self.decodingFailure("hunter2"), "\(keyed) It is not valid JSON."),
            (
                await self.failure(200, "<html>hunter2</html>", type: "text/html; charset=utf-8"),
                """
                \(keyed) It is not valid JSON. It is a web page, perhaps of a network that one has to sign in to.
                """
            ),
            (offline, "The server's name has no address. The device is offline."),
            (
                HTTPError.authentication(RunnerError.updateFailed(underlying: OAuthError.transport(offline))),
                """
                There are no credentials to send. The dependency could not be renewed: the update was refused. The sign-in server \
                could not be reached. The server's name has no address. The device is offline.
                """
            ),
            (HTTPError.transport(.timedOut(after: .seconds(20))), "The server did not answer within 20 seconds."),
            (
                HTTPError.transport(.unreachable(Careless())),
                "The server could not be reached. The cause is Careless."
            ),
            (
                HTTPError.transport(.unreachable(Weather.storm)),
                "The server could not be reached. The cause is Weather.storm."
            ),
            (
                HTTPError.preparation(.missingPathValue(name: "id")),
                "The path of the request lacks a value for “id”."
            ),
            (
                HTTPError.preparation(.encoding(self.unencodable)),
                "The request could not be encoded. A value of type Double cannot be encoded."
            ),
            (
                try await self.signInFailure(
                    400,
                    #"{"error":"invalid_grant","error_description":"Wrong name or password"}"#
                ),
                "The sign-in server refused (invalid_grant): Wrong name or password."
            ),
            (
                try await self.signInFailure(400, #"{"error":"invalid_grant","error_description":"no token hunter2"}"#),
                "The sign-in server refused (invalid_grant)."
            ),
            (
                try await self.signInFailure(200, #"{"token_type":"Bearer"}"#),
                "The sign-in server's answer, with status 200, makes no sense: its access_token is missing or not valid."
            ),
            (try await self.signInFailure(503, ""), "The sign-in server cannot answer now (status 503)."),
            (
                RunnerError.signInFailed(underlying: Problem(detail: "The password is wrong.")),
                "The sign-in failed. The password is wrong."
            ),
            (
                RunnerError.tokensNotStored(underlying: self.fileSystem(.write, .ENOSPC)),
                """
                The new tokens could not be stored. The file system could not write to a file: No space left on device. \
                Something has to be removed first.
                """
            ),
            (
                self.fileSystem(.open, .EACCES),
                """
                The file system could not open or create a file: Permission denied. The folder has to be one that this program \
                may write to.
                """
            ),
            (
                self.unsaved, "1 entry was not saved. The value to store contains a raw line break."
            ),
            (
                await self.gaveUp(offline),
                "Gave up after 3 attempts. The last error: The server's name has no address. The device is offline."
            ),
            (MuxError.timedOut(after: .seconds(60)), "The fetch did not end within 60 seconds."),
            (
                MuxError.wouldDeadlock, "The fetch waits for itself: it must not request what waits for it."
            ),
            (
                MuxError.repositoryMismatch,
                """
                The multiplexer, media or cache belongs to another repository than the token that it needs, so that a sign-out \
                would not reach both. Give both the same one.
                """
            ),
            (SilenceableError(offline), "The server's name has no address. The device is offline."),
            (
                CriticalError(Problem(detail: "The account is closed.")),
                "No further call can succeed. The account is closed."
            ),
            (
                MediaError.disk(self.fileSystem(.write, .EIO)),
                "The file system could not write to a file: Input/output error."
            ),
            (JSONWebToken.ParsingError.noClaims, "The token says nothing that can be read."),
        ]
    }

    private func situationsOfRequests() async throws -> [(error: any Error, text: String)] {
        let late = HTTPError.TransportFailure.timedOut(after: .milliseconds(19_999))
        let cut = HTTPError.truncated(expected: nil, received: 1)
        let plain = HTTPEndPoint(host: "api.example.com", path: "/notes/\("hunter2")")
        let bare = HTTPEndPoint(host: "api.example.com", path: "/\("hunter2")")
        let relative = try #require(URL(string: "/hunter2"))
        return [
            (await self.asking(Ask(), late), "GET /notes/{id} failed. The server did not answer within 20 seconds."),
            (await self.asking(Ask(), cut), "GET /notes/{id} failed. The answer ended early, after 1 byte."),
            (
                await self.asking(),
                "GET /notes/{id} failed. The server could not be reached. The cause is Weather.storm."
            ),
            (
                await self.asking(Ask(endPoint: plain, pathValues: [:]), late),
                "GET /notes/{} failed. The server did not answer within 20 seconds."
            ),
            (
                await self.asking(Ask(endPoint: bare, pathValues: [:]), late),
                "The server did not answer within 20 seconds."
            ),
            (
                await self.asking(Ask(pathValues: [:])),
                "GET /notes/{id} cannot be sent. The path of the request lacks a value for “id”."
            ),
            (
                await self.asking(Ask(pathValues: ["id": "1", "ib\u{202e}": "hunter2"])),
                "GET /notes/{id} cannot be sent. The path of the request has no place for the value of “ib\\u{202e}”."
            ),
            (
                await self.failure { try HTTPClient().call(for: Ask(pathValues: [:])) },
                "GET /notes/{id} cannot be sent. The path of the request lacks a value for “id”."
            ),
            (
                await self.asking(Ask(headers: ["X-A": "hunter2\n"])),
                """
                GET /notes/{id} cannot be sent. The header field “X-A” has a character that cannot be sent, in its name or \
                its value.
                """
            ),
            (
                await self.asking(Ask(headers: ["Host": "hunter2"])),
                """
                GET /notes/{id} cannot be sent. The request must not set the header field “Host”; the transport does.
                """
            ),
            (
                await self.asking(Ask(method: .post, body: .json(["x": Double.nan]))),
                "POST /notes/{id} cannot be sent. The request could not be encoded. A value of type Double cannot be encoded.",
            ),
            (await self.asking(Ask(method: "NOT ONE")), "The method of the request is not valid."),
            (
                try await self.asking(at: "https://api.example.com/hunter2?key=hunter2"),
                "The server answered a GET request with status 404 Not Found."
            ),
            (
                try await self.asking(at: "https://api.example.com/hunter2", appending: "/notes"),
                "The server answered GET /…/notes with status 404 Not Found."
            ),
            (
                try await self.asking(at: "https://api.example.com"),
                "The server answered GET / with status 404 Not Found."
            ),
            (
                try await self.refusal(of: "https://hunter2:hunter2@api.example.com/"),
                "The address of the request has the name of a user in it. Send names and passwords in a header field."
            ),
            (
                try await self.refusal(of: "/hunter2"),
                "The address of the request has no scheme: it has to begin with https:// and the name of a host."
            ),
            (
                await self.failure { try ValidatedCall(HTTPCall(url: relative)) },
                "The address of the request has no scheme: it has to begin with https:// and the name of a host."
            ),
            (try await self.refusal(of: "ftp://hunter2/"), "Only http and https can be requested, not ftp."),
            (try await self.refusal(of: "https:///hunter2"), "The address of the request has no host."),
        ]
    }

    private func situationsOfBodies() async throws -> [(error: any Error, text: String)] {
        let keyed = "The answer to GET /people/{id}/profile could not be read."
        return [
            (
                await self.decodingFailure(""),
                "\(keyed) The body is empty. Make the output an optional where the answer may be absent."
            ),
            (await self.decodingFailure(#"{"age":3,"pets":["#), "\(keyed) It is not valid JSON."),
            (await self.decodingFailure("[]"), "\(keyed) What is there is not an object."),
            (await self.decodingFailure("null"), "\(keyed) What is there is null."),
            (await self.decodingFailure(#"{"age":3,"pets":{}}"#), "\(keyed) What is there is not a list at pets."),
            (await self.decodingFailure(#"{"age":3,"pets":[null]}"#), "\(keyed) What is there is null at pets[0]."),
            (
                await self.decodingFailure(#"{"age":3,"pets":[7]}"#),
                "\(keyed) What is there is not an object at pets[0]."
            ),
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
            (RunnerError.timedOut(after: .seconds(5)), "There was no result within 5 seconds."),
            (
                RunnerError.updateTimedOut(after: .milliseconds(1_500)),
                "The dependency could not be renewed within 1.5 seconds."
            ),
            (
                OAuthError.unavailable(503, retryAfter: .nanoseconds(119_999_839_502)),
                "The sign-in server cannot answer now (status 503). It asks for a pause of 2 minutes."
            ),
            (
                try await self.redirected("?\(refused)", to: "app:/hunter2"),
                "The redirection leads to another address than the one of this sign-in."
            ),
            (try await self.redirected("?\(refused)&code=b"), "The redirection has a parameter more than once."),
            (
                try await self.redirected("?code=hunter2"),
                "The redirection does not say to which sign-in it belongs (state)."
            ),
            (
                try await self.redirected("?code=hunter2&state=hunter2"),
                "The redirection belongs to another sign-in: its state is not the one that was sent."
            ),
            (
                try await self.redirected("?error=access_denied&state=STATE", issuer: "https://login.example.com"),
                "The redirection does not name the issuer (iss)."
            ),
            (
                try await self.redirected("?\(refused)&iss=hunter2", issuer: "https://login.example.com"),
                "The redirection names another issuer (iss) than the one that was asked."
            ),
            (
                try await self.redirected("?error=%22hunter2&state=STATE"),
                "The error of the redirection is not a valid code."
            ),
            (try await self.redirected("?state=STATE"), "The redirection brings no code."),
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
            (LoopbackServer.Failure.alreadyRunning, "The loopback server is running already."),
            (FakeOAuthServer.Failure.unavailable, "The fake server is unavailable."),
            (ScriptEnded(call: 4), "The script has no outcome for call 4."),
            (ConformanceFailure(rule: "It keeps", detail: "it did not"), "It keeps: it did not."),
            (MemorySharedStore.Away(), "The shared store of the test is away."),
        ]
    }

    private func allSituations() async throws -> [(error: any Error, text: String)] {
        try await self.situations() + self.situationsOfRequests() + self.situationsOfBodies()
            + self.situationsOfSessions() + self.situationsOfTests()
    }

    @Test func `CO-25 an error says what failed, why, and what would help`() async throws {
        let situations = try await self.allSituations()
        #expect(situations.count >= 80)
        for (error, text) in situations {
            #expect(error.localizedDescription == text)
            #expect("\(error)" == text)
            #expect(ErrorText.sentence(of: error) == text)
        }
    }

    @Test func `CO-25 the keys of a dictionary are data, and in no text`() throws {
        let error = try #require(throws: DecodingError.self) {
            try JSONDecoder().decode([String: Person].self, from: Data(#"{"hunter2":{"age":"x","pets":[]}}"#.utf8))
        }
        #expect(ErrorText.sentence(of: error) == "What is there is not of type Int at ….age.")
    }

    @Test func `CO-25 of a decoder that is not known only what is certain is told`() {
        let context = DecodingError.Context(codingPath: [], debugDescription: "hunter2")
        let errors: [(DecodingError, String)] = [
            (.dataCorrupted(context), "What is there is not valid."),
            (.valueNotFound([Any].self, context), "A list is missing."),
            (.valueNotFound([String: Any].self, context), "An object is missing."),
            (.valueNotFound(Int.self, context), "A value of type Int is missing."),
            (.typeMismatch(Int.self, context), "What is there is not of type Int."),
        ]
        for (error, text) in errors { #expect(ErrorText.sentence(of: error) == text) }
    }

    @Test func `CO-25 what a server says is one line, and not endless`() async throws {
        let error = await self.failure(409, #"{"detail":" a\nb\u2028c\u202e "}"#)
        #expect(error.localizedDescription.hasSuffix(" with status 409 Conflict: a b c"))
        #expect(
            ErrorText.line("\u{646}\u{645}\u{6cc}\u{200c}\u{634}\u{648}\u{62f}")
                == "\u{646}\u{645}\u{6cc}\u{200c}\u{634}\u{648}\u{62f}"
        )
        let empty = await self.failure(409, #"{"detail":" "}"#)
        #expect(empty.localizedDescription.hasSuffix(" with status 409 Conflict."))
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
    func `CO-25 times are rounded for people`(time: Duration, text: String) {
        #expect(ErrorText.time(time) == text)
    }

    @Test func `CO-25 an end point is its template`() throws {
        let url = try #require(URL(string: "https://api.example.com:81/hunter2?key=hunter2"))
        var query = HTTPQuery()
        query.items = [.init("page", "hunter2")]
        let points = [
            (
                HTTPEndPoint(host: "api.example.com", path: "/users/{id}/\("hunter2")", query: query),
                "https://api.example.com/users/{id}/{}?page=…"
            ),
            (HTTPEndPoint(scheme: .http, host: "localhost:8080"), "http://localhost:8080/"),
            (try HTTPEndPoint(url), "https://api.example.com:81/…?key=…"),
            (try HTTPEndPoint(url).appending("/users"), "https://api.example.com:81/…/users?key=…"),
            (HTTPEndPoint(host: "a:hunter2@b", path: HTTPPath(segments: ["hunter2"])), "https://invalid host/{}"),
        ]
        for (point, text) in points {
            #expect("\(point)" == text)
            var dumped = ""
            dump(point, to: &dumped)
            #expect(!dumped.contains("hunter2") && !String(reflecting: point.path).contains("hunter2"))
            #expect(text.contains("\(point.path)"))
            // As a value in a path it would lose its own values.
            #expect(
                !((point as Any) is any CustomStringConvertible || (point.path as Any) is any CustomStringConvertible)
            )
        }
    }

    @Test func `CO-25 what could not be saved is told without its value`() async throws {
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

    @Test func `CO-25 an error of the system has its domain and code`() {
        let error = NSError(domain: "org.example", code: 311)
        #expect(ErrorText.sentence(of: error) == "The cause is org.example 311.")
    }

    @Test func `CO-25 notes for texts make no two calls different`() throws {
        let url = try #require(URL(string: "https://api.example.com/people/hunter2/profile?key=hunter2"))
        let call = try HTTPClient().call(for: GetPerson())
        var plain = HTTPCall(url: url, headers: call.headers, timeout: call.timeout)
        plain.deadline = call.deadline
        #expect(call == plain && call.hashValue == plain.hashValue)
    }

    @Test(arguments: ["1/x+y=hunter2", "1%2Fx%2By%3Dhunter2"])
    func `CO-25 a server that quotes a token is not quoted`(quotation: String) async throws {
        let transport = ScriptedTransport { _, _ in
            let body = #"{"error":"invalid_grant","error_description":"no token \#(quotation)"}"#
            return HTTPReply(status: 400, headers: [.contentType: "application/json"], body: Data(body.utf8))
        }
        let url = try #require(URL(string: "https://login.example.com/token"))
        let endpoint = OAuthTokenEndpoint(url: url, client: OAuthClient(id: "my-app"), transport: transport)
        let error = await self.failure { try await endpoint.refresh("1/x+y=hunter2") }
        #expect("\(error)" == "The sign-in server refused (invalid_grant).")
    }

    @Test func `CO-25 no text has a secret, or says nothing`() async throws {
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
