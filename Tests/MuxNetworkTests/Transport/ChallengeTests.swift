import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@testable import MuxNetwork

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

@Suite(.standard)
struct ChallengeTests {
    @Test(arguments: [
        NSURLAuthenticationMethodDefault, NSURLAuthenticationMethodHTTPBasic, NSURLAuthenticationMethodHTTPDigest,
        NSURLAuthenticationMethodHTMLForm, NSURLAuthenticationMethodNegotiate, NSURLAuthenticationMethodNTLM,
    ])
    func `CO-32 a challenge for a password is rejected and the 401 response keeps its body`(method: String) {
        #expect(URLSession.AuthChallengeDisposition(to: method, supportsRejection: true) == .rejectProtectionSpace)
        #expect(
            URLSession.AuthChallengeDisposition(to: method, supportsRejection: false)
                == .cancelAuthenticationChallenge
        )
    }

    @Test(arguments: [
        "NSURLAuthenticationMethodClientCertificate", "NSURLAuthenticationMethodServerTrust",
        "NSURLAuthenticationMethodOAuth", "",
    ])
    func `CO-32 the system handles the challenges for certificates and server trust`(method: String) {
        for goesOn in [true, false] {
            #expect(
                URLSession.AuthChallengeDisposition(to: method, supportsRejection: goesOn) == .performDefaultHandling
            )
        }
    }

    @Test(arguments: ["Basic realm=\"r\"", "Digest realm=\"r\", nonce=\"n\"", "Bearer", "Negotiate", "NTLM"])
    func `CO-32 a 401 is a response regardless of its challenge`(challenge: String) async throws {
        let server = LoopbackServer { _ in
            LoopbackServer.Response(status: 401, headers: ["WWW-Authenticate": challenge], body: Data("no".utf8))
        }
        let url = try server.start()

        let reply = try await URLSessionTransport().send(HTTPCall(url: url))

        #expect(reply.status == 401 && reply.headers["WWW-Authenticate"] == challenge)
        await server.stop()
    }

    @Test func `CO-32 a media folder is marked before the first write, and a failed mark is ignored`() async throws {
        let fileSystem = RecordingFileSystem { _, call in
            call.operation == .mark ? .refuse(POSIXFileSystem.ioError) : nil
        }
        let world = try MediaWorld()
        try await world.run { (world) async throws in
            let file = try await world.media(fileSystem: fileSystem).request(url: world.url)

            #expect(try Data(contentsOf: file) == world.file.content)
            let operations = fileSystem.calls.map(\.operation)
            let mark = try #require(operations.firstIndex(of: .mark))
            #expect(try mark < #require(operations.firstIndex(of: .write)))
        }
    }
}
