#if os(Linux)
import Foundation
import MuxConformance
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// A transport over another client.
@Suite(.standard(.waiting))
struct AdapterTests {
    private static let hasCommand = ["/usr/bin/curl", "/usr/local/bin/curl"].contains {
        FileManager.default.isExecutableFile(atPath: $0)
    }

    @Test(
        .enabled(if: Self.hasCommand, "there is no curl command"),
        .onlyInWholeRuns
    )
    func `TR-11 an adapter over another client keeps the rules of a transport`() async throws {
        try await HTTPTransportConformance.run(within: .busyMachine * 4) { options in
            ExchangeTransport.curlCommand(options)
        }
    }

    @Test func `TR-11 a response before the end of a request body counts although the reader is cancelled`()
        async throws
    {
        let transport = ExchangeTransport { call, sink in
            guard case .stream(let pieces)? = call.body else { return [:] }
            async let _: Void = {
                for try await _ in pieces {}
            }()
            try await sink.receive(head: HTTPReply(status: 413))
            return [:]
        }
        let gate = Gate<Data>()
        let body = HTTPCall.BodyStream(length: 5) {
            AsyncThrowingStream { try await gate.pass() }
        }
        let url = try #require(URL(string: "http://127.0.0.1/"))
        let reply = try await transport.send(HTTPCall(method: "POST", url: url, body: .stream(body)))
        #expect(reply.status == 413)
    }

    @Test func `TR-11 an adapter over another client is at most 60 lines`() throws {
        let folder = URL(filePath: #filePath).deletingLastPathComponent()
        let file = folder.appending(component: "CurlCommandTransport.swift")
        let lines = try String(contentsOf: file, encoding: .utf8).split(separator: "\n").filter { line in
            let text = line.drop { $0 == " " }
            return !text.isEmpty && !text.hasPrefix("//") && !text.hasPrefix("#") && !text.hasPrefix("import ")
        }
        #expect((20...60).contains(lines.count), "\(lines.count)")
    }
}
#endif
