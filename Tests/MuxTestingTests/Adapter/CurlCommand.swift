#if os(Linux)
import Foundation
import MuxKit

/// The `curl` command as an HTTP client: a process for each request, which follows no redirections and has no
/// limits.
///
/// Unread data delays the server. A call blocks a separate thread; a cancellation of its task ends the
/// process.
final class CurlCommand: Sendable {
    /// The process ended with a status other than 0.
    struct Failed: Error {
        var status: Int32
    }

    struct Head: Sendable {
        var status: Int
        var fields: [(name: String, value: String)]
    }

    enum Body: Sendable {
        case none
        /// Read completely before the request is sent.
        case whole
        /// Sent while its pieces are read; chunked without a length.
        case pieces(length: Int?)
    }

    private let process = Process()
    private let (input, output, errors) = (Pipe(), Pipe(), Pipe())
    /// The unread text of the head and of the trailers.
    private let text = Locked("")

    init(_ method: String, _ url: URL, _ fields: [(name: String, value: String)], _ body: Body, usesProxies: Bool)
        throws
    {
        var arguments = [
            "curl", "-q", "-sN", "--no-progress-meter", "--http1.1", "--globoff", "--path-as-is", "-D", "/dev/stderr",
            "-X", method,
        ]
        let names = Set(fields.map { $0.name.lowercased() })
        for field in fields {
            let isEmpty = field.value.allSatisfy(\.isWhitespace)
            arguments += ["-H", isEmpty ? "\(field.name);" : "\(field.name): \(field.value)"]
        }
        for name in ["Accept", "Expect", "Content-Type"] where !names.contains(name.lowercased()) {
            arguments += ["-H", "\(name):"]
        }
        switch body {
        case .none where method == "HEAD": arguments += ["--head", "--output", "/dev/null"]
        case .none where ["POST", "PUT", "PATCH"].contains(method): arguments += ["--data-binary", ""]
        case .none: break
        case .whole: arguments += ["--data-binary", "@-"]
        case .pieces(let length?):
            arguments += ["-H", "Transfer-Encoding:", "-H", "Content-Length: \(length)", "-T", "."]
        case .pieces(nil): arguments += ["-T", "."]
        }
        if !usesProxies { arguments += ["--noproxy", "*"] }
        self.process.executableURL = URL(filePath: "/usr/bin/env")
        self.process.arguments = arguments + [url.absoluteString]
        self.process.standardInput = self.input
        self.process.standardOutput = self.output
        self.process.standardError = self.errors
        try self.process.run()
    }

    /// Ends a running process; `SIGKILL`, because processes of Foundation may block any other signal.
    func cancel() {
        if self.process.isRunning { kill(self.process.processIdentifier, SIGKILL) }
    }

    /// Sends a piece of the body.
    ///
    /// - Returns: `false` if the process takes no more.
    func write(_ piece: Data) async -> Bool {
        await self.blocking { (try? $0.input.fileHandleForWriting.write(contentsOf: piece)) != nil }
    }

    func endBody() { try? self.input.fileHandleForWriting.close() }

    /// Reads the head of the response; skips interim responses.
    func head() async throws -> Head {
        while true {
            while let end = self.text.withLock({ $0.range(of: "\n\n") }) {
                let lines = self.text.withLock { text -> [String] in
                    defer { text = String(text[end.upperBound...]) }
                    return text[..<end.lowerBound].components(separatedBy: "\n")
                }
                let status = lines[0].split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0
                if status >= 200 || status == 101 { return Head(status: status, fields: Self.fields(lines)) }
            }
            guard await self.readText() else {
                // The command does not fail after half a head.
                let status = await self.status()
                throw Failed(status: status == 0 ? 52 : status)
            }
        }
    }

    /// Reads a piece of the response's body; `nil` at the end.
    func next() async throws -> Data? {
        let bytes = await self.blocking { $0.output.fileHandleForReading.availableData }
        guard bytes.isEmpty else { return bytes }
        let status = await self.status()
        guard status == 0 else { throw Failed(status: status) }
        return nil
    }

    /// Reads the fields after the body.
    func trailers() async -> [(name: String, value: String)] {
        while await self.readText() {}
        return Self.fields(self.text.withLock(\.self).components(separatedBy: "\n"))
    }

    private func readText() async -> Bool {
        let bytes = await self.blocking { $0.errors.fileHandleForReading.availableData }
        let text = String(data: bytes, encoding: .utf8) ?? String(data: bytes, encoding: .isoLatin1) ?? ""
        self.text.withLock { $0 += text.unicodeScalars.filter { $0 != "\r" }.map(String.init).joined() }
        return !bytes.isEmpty
    }

    private static func fields(_ lines: [String]) -> [(name: String, value: String)] {
        lines.compactMap { line in
            guard !line.hasPrefix("HTTP/"), let colon = line.firstIndex(of: ":") else { return nil }
            return (String(line[..<colon]), line[line.index(after: colon)...].trimmingCharacters(in: .whitespaces))
        }
    }

    private func status() async -> Int32 {
        await self.blocking { command in
            command.process.waitUntilExit()
            return command.process.terminationStatus
        }
    }

    private func blocking<Value: Sendable>(_ work: @escaping @Sendable (CurlCommand) -> Value) async -> Value {
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                Thread.detachNewThread {
                    // Without SIGPIPE a write to an ended process fails and does not end this process.
                    var signals = sigset_t()
                    sigaddset(&signals, SIGPIPE)
                    pthread_sigmask(SIG_BLOCK, &signals, nil)
                    continuation.resume(returning: work(self))
                }
            }
        } onCancel: {
            self.cancel()
        }
    }
}
#endif
