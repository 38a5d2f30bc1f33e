import Foundation
package import MuxValkey
import NIOCore
import Synchronization

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// An engine on loopback, in a separate folder; the engine ends with the object.
package final class Engine: Sendable {
    /// A program of an engine.
    package struct Program: Sendable {
        package let path: String

        /// The last parts of the path.
        package var name: String { self.path.split(separator: "/").suffix(3).joined(separator: "/") }

        /// Whether the program was built with TLS: then its bytes mention OpenSSL.
        package var canEncrypt: Bool {
            guard let bytes = try? Data(contentsOf: URL(filePath: self.path), options: .mappedIfSafe) else {
                return false
            }
            return bytes.range(of: Data("SSL_CTX_new".utf8)) != nil
        }
    }

    /// The programs in `.engines`, which the script `engines` fills, and the programs in the search path.
    package static let programs: [Program] = {
        let own = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../.engines/lib")
            .standardized
        let files = FileManager.default.enumerator(atPath: own.path)?.compactMap { $0 as? String } ?? []
        let paths =
            files.map { own.appending(path: $0).path }
            + (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":").flatMap { folder in
                ["valkey-server", "redis-server"].map { "\(folder)/\($0)" }
            }
        var known: Set<String> = []
        return paths.sorted()
            .filter { $0.hasSuffix("valkey-server") || $0.hasSuffix("redis-server") }
            .filter { FileManager.default.isExecutableFile(atPath: $0) }
            // The search path may contain a folder twice, under different names.
            .filter { known.insert(URL(filePath: $0).resolvingSymlinksInPath().path).inserted }
            .map { Program(path: $0) }
    }()

    /// The message for a machine without programs.
    package static let missing = "There is no engine: Demo/Server/engines installs some."

    package let port: Int
    private let program: Program
    private let folder: URL
    private let arguments: [String]
    private let process: Mutex<Process?>

    /// Starts an engine, and waits until it accepts connections.
    ///
    /// - Parameters:
    ///   - program: The program of the engine.
    ///   - arguments: The options besides port and folder.
    ///   - certificates: The certificates of an engine that accepts encrypted connections only.
    /// - Throws: ``Ended`` after the last attempt; `CancellationError`; the reason of a failed start.
    package init(_ program: Program, _ arguments: [String] = [], certificates: Certificates? = nil) async throws {
        let folder = FileManager.default.temporaryDirectory.appending(path: "mux-engine-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        var attempt = 1
        while true {
            let port = Self.nextPort()
            let ports = certificates == nil ? ["--port", "\(port)"] : ["--port", "0", "--tls-port", "\(port)"]
            let all = ports + (certificates?.arguments ?? []) + arguments
            do {
                self.process = Mutex(try await Self.launch(program, in: folder, all))
                (self.program, self.port, self.folder, self.arguments) = (program, port, folder, all)
                return
            } catch let error as Ended where attempt < 5 {
                // Another process may have the port.
                FileHandle.standardError.write(Data("\(error)\n".utf8))
                attempt += 1
            } catch {
                try? FileManager.default.removeItem(at: folder)
                throw error
            }
        }
    }

    deinit {
        self.kill()
        try? FileManager.default.removeItem(at: self.folder)
    }

    /// Starts the engine again, after ``kill()``, and waits until it accepts connections.
    ///
    /// - Throws: ``Ended``; `CancellationError`; the reason of a failed start.
    package func start() async throws {
        var attempt = 1
        while true {
            do {
                let process = try await Self.launch(self.program, in: self.folder, self.arguments)
                return self.process.withLock { $0 = process }
            } catch is Ended where attempt < 5 {
                // Another process may have the port for a short time.
                attempt += 1
                try await Task.sleep(for: .milliseconds(200))
            }
        }
    }

    /// The time limit of a start, in seconds.
    private static let startLimit = 60.0

    /// Starts a process, and waits for its message that it accepts connections.
    private static func launch(_ program: Program, in folder: URL, _ arguments: [String]) async throws -> Process {
        let process = Process()
        process.executableURL = URL(filePath: program.path)
        process.arguments = ["--bind", "127.0.0.1", "--dir", folder.path, "--save", ""] + arguments
        let pipe = Pipe()
        process.standardOutput = pipe
        process.standardError = FileHandle.nullDevice
        let (output, continuation) = AsyncStream.makeStream(of: Data.self)
        // Also reads the later messages: the engine waits for the reader of a full pipe.
        pipe.fileHandleForReading.readabilityHandler = { handle in
            let data = handle.availableData
            continuation.yield(data)
            guard data.isEmpty else { return }
            handle.readabilityHandler = nil
            continuation.finish()
        }
        let finish: @Sendable (DispatchTime) -> Void = { time in
            DispatchQueue.global().asyncAfter(deadline: time) { continuation.finish() }
        }
        // A process that started at the same time may have inherited the pipe, and keeps it open. The last
        // messages arrive before the end of the short wait.
        process.terminationHandler = { _ in finish(.now() + 0.2) }
        try process.run()
        finish(.now() + Self.startLimit)
        var messages = Data()
        for await part in output {
            messages += part
            if messages.range(of: Data("Ready to accept connections".utf8)) != nil { return process }
        }
        Self.end(process)
        try Task.checkCancellation()
        throw Ended(program: program.name, messages: String(decoding: messages.suffix(1_000), as: UTF8.self))
    }

    /// Ends the engine at once, like a power failure.
    package func kill() {
        let process = self.process.withLock { process in
            defer { process = nil }
            return process
        }
        if let process { Self.end(process) }
    }

    private static func end(_ process: Process) {
        guard process.isRunning else { return }
        Self.send(SIGKILL, process.processIdentifier)
        process.waitUntilExit()
    }

    /// Stops or continues the engine.
    package func pause(_ isPaused: Bool) {
        let id = self.process.withLock { $0?.processIdentifier }
        if let id { Self.send(isPaused ? SIGSTOP : SIGCONT, id) }
    }

    private static func send(_ signal: Int32, _ id: Int32) {
        #if canImport(Glibc)
        _ = Glibc.kill(id, signal)
        #else
        _ = Darwin.kill(id, signal)
        #endif
    }

    /// Counts the tried ports, from a random start.
    ///
    /// Engines of a process that start at the same time get different ports; engines of different processes
    /// usually do.
    private static let ports = Atomic(Int.random(in: 0..<10_000))

    /// The next port to try.
    ///
    /// Engines of a cluster also use the port 10,000 above it. Both ports are below the range for outgoing
    /// connections (from 32,768 on Linux): such a connection could occupy a port during the restart of an
    /// engine.
    private static func nextPort() -> Int {
        10_240 + Self.ports.wrappingAdd(1, ordering: .relaxed).oldValue % 10_000
    }

    /// The address of the engine.
    package var address: MuxValkey.Address { .init(host: "127.0.0.1", port: self.port) }

    /// Sends a command to the engine, without the store.
    ///
    /// - Returns: The reply, which may be a failure.
    /// - Throws: ``ValkeyError`` without a reply.
    @discardableResult
    package func ask(_ words: String...) async throws -> Reply { try await self.ask(words) }

    /// Sends a command to the engine, without the store.
    ///
    /// - Returns: The reply, which may be a failure.
    /// - Throws: ``ValkeyError`` without a reply.
    @discardableResult
    package func ask(_ words: [String]) async throws -> Reply {
        var configuration = MuxValkey.Configuration(addresses: [self.address], prefix: "")
        configuration.connectTimeout = .seconds(30)
        configuration.heartbeat = .seconds(30)
        let connection = try await Connection.open(self.address, configuration) { _ in }
        defer { connection.close() }
        _ = try await connection.reply(to: "HELLO", "3")
        return try await connection.send(words.map { ByteBuffer(string: $0) }).get()
    }

    /// The process of an engine has ended without a command to do so, perhaps because its port is in use.
    package struct Ended: Error {
        package let program: String
        /// The last messages of the process.
        package let messages: String
    }

    /// Repeats a command until the reply is the expected reply.
    ///
    /// An engine does not report that it knows another engine.
    ///
    /// - Throws: ``Ended``; `CancellationError`.
    package func wait(for words: String..., until isReached: (Reply) -> Bool) async throws {
        while true {
            if let reply = try? await self.ask(words), isReached(reply) { return }
            let isRunning = self.process.withLock { $0?.isRunning ?? false }
            guard isRunning else { throw Ended(program: self.program.name, messages: "The process ended later.") }
            try await Task.sleep(for: .milliseconds(20))
        }
    }
}
