import Foundation
import MuxNetwork
import Testing

/// A program of this package that serves on loopback.
final class RunningProgram: Sendable {
    private let process = Process()
    private let output = Pipe()
    private let base: URL

    /// Starts the program, and waits until it listens.
    ///
    /// - Throws: The reason of a failed start.
    init(_ name: String, _ arguments: [String]) throws {
        let folder = URL(filePath: CommandLine.arguments[0]).deletingLastPathComponent()
        self.process.executableURL = folder.appending(component: name)
        self.process.arguments = arguments
        self.process.standardOutput = self.output
        self.process.standardError = FileHandle.nullDevice
        try self.process.run()
        var text = ""
        while !text.hasSuffix("\n") {
            let bytes = self.output.fileHandleForReading.availableData
            guard !bytes.isEmpty else { throw CocoaError(.fileReadUnknown) }
            text += String(decoding: bytes, as: UTF8.self)
        }
        let address = try #require(text.firstMatch(of: /127\.0\.0\.1:\d+/)?.output)
        self.base = try #require(URL(string: "http://\(address)"))
    }

    deinit { if self.process.isRunning { kill(self.process.processIdentifier, SIGKILL) } }

    func get(_ path: String, _ method: String = "GET") async throws -> (status: Int, text: String) {
        let url = try #require(URL(string: path, relativeTo: self.base)?.absoluteURL)
        var call = HTTPCall(method: method, url: url)
        // Like a page served by the program.
        if method != "GET" { call.headers["Origin"] = self.base.absoluteString }
        let reply = try await SystemTransport().send(call)
        return (reply.status, String(decoding: reply.body, as: UTF8.self))
    }

    func figure(_ name: String) async throws -> Int {
        let line = try await self.get("/metrics").text.split(separator: "\n").first { $0.hasPrefix(name + " ") }
        return try #require(line.flatMap { Int($0.dropFirst(name.count + 1)) })
    }

    /// Sends SIGTERM, and waits for the end.
    func terminate() -> Int32 {
        kill(self.process.processIdentifier, SIGTERM)
        self.process.waitUntilExit()
        return self.process.terminationStatus
    }
}
