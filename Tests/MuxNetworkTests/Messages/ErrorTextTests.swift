import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// What people read when something fails: a sentence that says what, why, and what would help.
@Suite(.timeLimit(.minutes(15)), .takesTurns)
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
            (await self.decodingFailure(#"{"age":null,"pets":[]}"#), "\(keyed) A value of type Int is missing at age."),
            (await self.decodingFailure("hunter2"), "\(keyed) What is there is not valid."),
            (
                await self.failure(200, "<html>hunter2</html>", type: "text/html; charset=utf-8"),
                """
                \(keyed) What is there is not valid. It is a web page, perhaps of a network that one has to sign in to.
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
            (HTTPError.transport(.timedOut(after: .seconds(20))), "The server did not answer within 20.0 seconds."),
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
                #"The path of the request lacks a value for "id"."#
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
            (MuxError.timedOut(after: .seconds(60)), "The fetch did not end within 60.0 seconds."),
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

    @Test func `CO-25 an error says what failed, why, and what would help`() async throws {
        let situations = try await self.situations()
        #expect(situations.count >= 25)
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
        for (error, _) in try await self.situations() {
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
