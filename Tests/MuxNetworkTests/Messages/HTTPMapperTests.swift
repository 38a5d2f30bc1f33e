import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct HTTPMapperTests {
    private struct User: Decodable, Sendable, Equatable {
        var name: String
        var born: Date?
    }

    /// A request that sets its mapper in a single line, with defaults for the other properties.
    private struct OneLine: HTTPRequest {
        var endpoint: HTTPEndpoint { .init(host: "h") }
        var method: HTTPMethod { .get }
        var mapper: HTTPMapper<User> { .json(errors: Problem.self, dates: .millisecondsSince1970) }
    }

    private struct Declared: HTTPRequest {
        var endpoint: HTTPEndpoint { .init(host: "h") }
        var method: HTTPMethod { .get }
        typealias Output = User
        typealias ServerError = Problem
    }

    private struct Bytes: HTTPRequest {
        var endpoint: HTTPEndpoint { .init(host: "h") }
        var method: HTTPMethod { .get }
        typealias Output = Data?
        typealias ServerError = Problem
    }

    private struct Command: HTTPCommand {
        var endpoint: HTTPEndpoint { .init(host: "h") }
        var method: HTTPMethod { .delete }
        typealias ServerError = Problem
    }

    private func client(_ reply: HTTPReply) -> HTTPClient {
        HTTPClient(transport: ScriptedTransport([], thereafter: reply))
    }

    @Test func `I01 a success is decoded as the type of the output`() async throws {
        let user = try await self.client(.json(#"{"name":"A","born":"1970-01-01T00:00:05"}"#)).output(of: Declared())

        #expect(user == User(name: "A", born: Date(timeIntervalSince1970: 5)))
        let empty = await #expect(throws: HTTPError.self) { try await self.client(.json("")).output(of: Declared()) }
        guard case .decoding(let error)? = empty else {
            Issue.record("not a decoding error")
            return
        }
        #expect(error.response.status == 200 && error.underlying is DecodingError)
    }

    @Test func `I02 a failure is decoded as the server's error and keeps status and body`() async throws {
        let text = #"{"code":7,"message":"no"}"#

        let thrown = await #expect(throws: HTTPError.self) {
            try await self.client(.json(text, status: 400)).execute(Declared())
        }

        let error = try #require(thrown)
        #expect(error.status == .badRequest)
        #expect(error.mapped(as: Problem.self) == Problem(code: 7, message: "no"))
        #expect(error.mapped(as: String.self) == nil)
        guard case .status(let failure) = error else {
            Issue.record("not a status error")
            return
        }
        #expect(failure.response.body == Data(text.utf8) && failure.decodingError == nil)
        #expect(failure.response.contentType == .json)
    }

    @Test func `I02 commands and raw data have typed errors too`() async throws {
        let client = self.client(.json(#"{"code":7,"message":"no"}"#, status: 409))

        let first = await #expect(throws: HTTPError.self) { try await client.execute(Command()) }
        #expect(first?.mapped(as: Problem.self)?.code == 7)
        let text = Ask<String, Problem>(mapper: .text(errors: Problem.self))
        let second = await #expect(throws: HTTPError.self) { try await client.execute(text) }
        #expect(second?.mapped(as: Problem.self)?.code == 7)
        let raw = Ask<Data, Problem>(mapper: .data(errors: Problem.self))
        let third = await #expect(throws: HTTPError.self) { try await client.execute(raw) }
        #expect(third?.mapped(as: Problem.self)?.code == 7)
        let none = await #expect(throws: HTTPError.self) { try await client.execute(Ask()) }
        guard case .status(let failure)? = none else {
            Issue.record("not a status error")
            return
        }
        #expect(failure.serverError == nil && failure.decodingError == nil)
    }

    @Test func `I03 an HTML page is a status error with the decoding error as a detail`() async throws {
        let page = HTTPReply(status: 502, headers: ["Content-Type": "text/html"], body: Data("<h1>Bad</h1>".utf8))

        let thrown = await #expect(throws: HTTPError.self) { try await self.client(page).execute(Declared()) }

        guard case .status(let failure)? = thrown else {
            Issue.record("not a status error")
            return
        }
        #expect(failure.status == .badGateway && failure.serverError == nil)
        #expect(failure.decodingError is DecodingError)
        #expect(failure.response.body == page.body && failure.response.contentType == .html)
    }

    @Test func `I04 a request chooses its mapper in a single line`() async throws {
        let user = try await self.client(.json(#"{"name":"A","born":5000}"#)).output(of: OneLine())

        #expect(user == User(name: "A", born: Date(timeIntervalSince1970: 5)))
        let error = await #expect(throws: HTTPError.self) {
            try await self.client(.json(#"{"code":1,"message":""}"#, status: 500)).execute(OneLine())
        }
        #expect(error?.mapped(as: Problem.self)?.code == 1)
    }

    @Test func `I04 a mapper can consist of two functions and can be extended`() async throws {
        let length = HTTPMapper<Int>(output: { $0.body.count }, serverError: { $0.status.code })
        let doubled = Ask<Int, Never>(mapper: length.map { $0 * 2 })

        #expect(try await self.client(HTTPReply(status: 200, body: Data([1, 2]))).output(of: doubled) == 4)
        let error = await #expect(throws: HTTPError.self) {
            try await self.client(HTTPReply(status: 500)).execute(doubled)
        }
        #expect(error?.mapped(as: Int.self) == 500)
        let text = Ask<String, Never>(mapper: .text())
        #expect(try await self.client(HTTPReply(status: 200, body: Data("ü".utf8))).output(of: text) == "ü")
        let snake = Ask<[String: Int], Never>(mapper: .json { JSONDecoder() })
        #expect(try await self.client(.json(#"{"a":1}"#)).output(of: snake) == ["a": 1])
    }

    @Test func `I06 an empty response is a success for a command and for an optional output`() async throws {
        let empty = self.client(HTTPReply(status: 204))

        try await empty.execute(Command())
        #expect(try await empty.output(of: Ask(User?.self, errors: Never.self)) == nil)
        #expect(try await empty.output(of: Ask()) == Data())
        #expect(try await self.client(.json("null")).output(of: Ask([Int]?.self, errors: Never.self)) == nil)
        #expect(try await self.client(.json("[1]")).output(of: Ask([Int]?.self, errors: Never.self)) == [1])
        await #expect(throws: HTTPError.self) { try await empty.output(of: Ask([Int].self, errors: Never.self)) }
    }

    @Test func `I06 an optional body is not decoded, and is nil if empty`() async throws {
        let full = self.client(HTTPReply(status: 200, body: Data("abc".utf8)))
        #expect(try await full.output(of: Bytes()) == Data("abc".utf8))
        #expect(try await self.client(HTTPReply(status: 204)).output(of: Bytes()) == nil)
        let refused = self.client(.json(#"{"code":7,"message":"no"}"#, status: 409))
        let error = await #expect(throws: HTTPError.self) { try await refused.output(of: Bytes()) }
        #expect(error?.mapped(as: Problem.self)?.code == 7)
    }

    @Test(arguments: [
        (200, true), (201, true), (206, true), (299, true), (199, false), (300, false), (304, false), (404, false),
    ])
    func `I07 every status from 200 to 299 is a success`(code: Int, isSuccess: Bool) async throws {
        let result = try? await self.client(HTTPReply(status: code)).execute(Ask())

        #expect((result != nil) == isSuccess)
        #expect(result == nil || result?.response.status.code == code)
    }

    @Test func `I07 a request chooses its success statuses`() async throws {
        let ask = Ask { $0.successStatuses = 404...404 }

        #expect(try await self.client(HTTPReply(status: 404)).execute(ask).response.status == .notFound)
        await #expect(throws: HTTPError.self) { try await self.client(HTTPReply(status: 200)).execute(ask) }
    }

    @Test func `I08 a response contains the request, status, message, headers and data`() async throws {
        let url = URL(string: "http://elsewhere/")
        let reply = HTTPReply(status: 201, headers: ["X-A": "1", "ETag": "e"], body: Data("x".utf8), url: url)

        let response = try await self.client(reply).execute(Ask { $0.queryItems = ["q": "1"] }).response

        #expect(response.request.url.absoluteString == "http://host/?q=1" && response.request.method == "GET")
        #expect(response.status == .created && response.message == "Created")
        #expect(response.headers["x-a"] == "1" && response.headers[.eTag] == "e")
        #expect(response.body == Data("x".utf8) && response.url == url && response.contentType == nil)
        #expect("\(response)" == "status 201, 1 bytes")
    }

    @Test func `I08 the response is available regardless of its status`() async throws {
        let response = try await self.client(HTTPReply(status: 304)).response(to: Ask())

        #expect(response.status == .notModified)
    }

    @Test func `I09 each kind of error is produced by its cause`() async {
        struct Broken: Error {}
        let failing = HTTPClient(transport: ScriptedTransport([.failure(Broken()), .failure(HTTPError.notHTTP)]))
        let runner = DependentRunner<String> { _ in throw Broken() }
        let locked = HTTPClient(transport: ScriptedTransport([]), authenticator: runner)
        func kind(_ body: () async throws -> Void) async -> String {
            do {
                try await body()
                return "none"
            } catch let error as HTTPError {
                return switch error {
                case .preparation: "preparation"
                case .transport(.unreachable(let cause), _): "transport \(cause is Broken)"
                case .transport: "transport"
                case .status: "status"
                case .decoding: "decoding"
                case .authentication(let cause): "authentication \(cause is Broken)"
                @unknown default: "unknown"
                }
            } catch {
                return "\(type(of: error))"
            }
        }

        #expect(await kind { _ = try await failing.execute(Ask { $0.endpoint.host = "" }) } == "preparation")
        #expect(await kind { _ = try await failing.execute(Ask()) } == "transport true")
        #expect(await kind { _ = try await failing.execute(Ask()) } == "transport")
        #expect(await kind { _ = try await self.client(HTTPReply(status: 500)).execute(Ask()) } == "status")
        #expect(await kind { _ = try await self.client(.json("x")).execute(Declared()) } == "decoding")
        #expect(await kind { _ = try await locked.execute(Ask()) } == "authentication true")
    }

    @Test func `I09 a cancellation is a CancellationError regardless of the transport's error`() async {
        let number = NSError(domain: NSURLErrorDomain, code: -999)
        for error: any Error in [CancellationError(), number] {
            let client = HTTPClient(transport: ScriptedTransport([.failure(error)]))
            await #expect(throws: CancellationError.self) { try await client.execute(Ask()) }
            let runner = DependentRunner<String> { _ in throw error }
            let locked = HTTPClient(transport: ScriptedTransport([]), authenticator: runner)
            // The update was cancelled, but not its callers.
            await #expect {
                try await locked.execute(Ask())
            } throws: { error in
                guard case .authentication(MuxError.fetchCancelled)? = error as? HTTPError else { return false }
                return true
            }
        }
    }

    @Test func `I09 errors tell connectivity failures and refused tokens apart`() {
        let offline = URLError(.notConnectedToInternet)
        let connectivity: [(HTTPError, Bool)] = [
            (.transport(.unreachable(offline)), true), (.transport(.timedOut(after: .seconds(1))), true),
            (.authentication(offline), true), (.authentication(HTTPError.transport(.unreachable(offline))), true),
            (.authentication(RunnerError.signedOut), false), (.transport(.notHTTP), false),
            (.preparation(.invalidURL), false), (.transport(.unreachable(CancellationError())), false),
            (.transport(.truncated(expected: 2, received: 1)), true),
            (.transport(.truncated(expected: nil, received: 1)), true), (.transport(.notResolved(offline)), true),
            (.transport(.notConnected(offline)), true), (.transport(.closedWithoutResponse(offline)), true),
            (.transport(.deadlineExceeded(after: .seconds(1))), true),
            (.transport(.insecureConnection(offline)), false), (.transport(.damagedContent(coding: "gzip")), false),
            (.transport(.headTooLarge(limit: 1)), false),
        ]
        for (error, isConnectivity) in connectivity {
            #expect(error.isConnectivityFailure == isConnectivity, "\(error)")
            #expect(!error.isBadDependency)
        }
        for code in [400, 401, 403, 407, 500] {
            let response = HTTPResponse(request: HTTPCall(url: URL(filePath: "/")), status: HTTPStatus(code))
            #expect(HTTPError.status(HTTPError.StatusFailure(response)).isBadDependency == (code == 401))
        }
    }

    @Test func `I10 no description contains a secret`() throws {
        struct Talkative: Error, CustomStringConvertible {
            var description: String { "SECRET" }
        }
        let secret = Data("SECRET".utf8)
        let url = try #require(URL(string: "http://host/a?token=SECRET"))
        let call = HTTPCall(url: url, headers: ["Authorization": "SECRET"], body: .data(secret))
        let response = HTTPResponse(request: call, status: 400, headers: [.setCookie: "SECRET"], body: secret, url: url)
        let failure = HTTPError.StatusFailure(response, serverError: "SECRET", decodingError: Talkative())
        let file = HTTPMultipart.File(name: "SECRET", fileName: "SECRET", data: secret)
        let values: [any Sendable] = [
            HTTPError.status(failure), failure, HTTPError.transport(.unreachable(Talkative())),
            HTTPError.TransportFailure.unreachable(Talkative()), HTTPError.transport(.notResolved(Talkative())),
            HTTPError.transport(.notConnected(Talkative())), HTTPError.transport(.insecureConnection(Talkative())),
            HTTPError.transport(.closedWithoutResponse(Talkative())), HTTPCall.Body.data(secret),
            HTTPError.DecodingFailure(response, underlying: Talkative()),
            HTTPError.decoding(HTTPError.DecodingFailure(response, underlying: Talkative())),
            HTTPError.preparation(.encoding(Talkative())), HTTPError.PreparationFailure.encoding(Talkative()),
            HTTPError.authentication(Talkative()), response, call,
            HTTPReply(
                status: 200,
                headers: ["Set-Cookie": "SECRET"],
                body: secret,
                trailers: ["T": "SECRET"],
                url: url
            ),
            HTTPMultipart(fields: ["a": "SECRET"], files: [file]), file, HTTPQuery(parsing: "a=SECRET"),
            HTTPHost("u:SECRET@h"), HTTPCredentials.bearer("SECRET"),
        ]

        for value in values {
            var dumped = ""
            dump(value, to: &dumped)
            let texts = [
                "\(value)", String(reflecting: value), dumped, (value as? any Error)?.localizedDescription ?? "",
            ]
            for text in texts {
                #expect(!text.contains("SECRET") && !text.contains("83"), "\(text)")
            }
        }
    }
}

extension HTTPError {
    /// The value that the mapper of the request has decoded.
    fileprivate func mapped<ServerError>(as type: ServerError.Type) -> ServerError? {
        guard case .status(let error) = self else { return nil }
        return error.serverError as? ServerError
    }
}
