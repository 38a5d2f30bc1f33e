import Foundation
package import MuxValkey
import NIOCore
import NIOPosix
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

    /// Starts an engine.
    ///
    /// - Parameters:
    ///   - program: The program of the engine.
    ///   - arguments: The options besides port and folder.
    ///   - certificates: The certificates of an engine that accepts encrypted connections only.
    /// - Throws: The reason of a failed start.
    package init(_ program: Program, _ arguments: [String] = [], certificates: Certificates? = nil) throws {
        self.program = program
        self.port = try Self.freePort()
        let ports = certificates == nil ? ["--port", "\(self.port)"] : ["--port", "0", "--tls-port", "\(self.port)"]
        self.arguments = ports + (certificates?.arguments ?? []) + arguments
        self.folder = FileManager.default.temporaryDirectory.appending(path: "mux-engine-\(UUID().uuidString)")
        self.process = Mutex(nil)
        try FileManager.default.createDirectory(at: self.folder, withIntermediateDirectories: true)
        try self.start()
    }

    deinit {
        self.kill()
        try? FileManager.default.removeItem(at: self.folder)
    }

    /// Starts the engine again, after ``kill()``.
    ///
    /// - Throws: The reason of a failed start.
    package func start() throws {
        let process = Process()
        process.executableURL = URL(filePath: self.program.path)
        process.arguments = ["--bind", "127.0.0.1", "--dir", self.folder.path, "--save", ""] + self.arguments
        process.standardOutput = FileHandle.nullDevice
        process.standardError = FileHandle.nullDevice
        try process.run()
        self.process.withLock { $0 = process }
    }

    /// Ends the engine at once, like a power failure.
    package func kill() {
        let process = self.process.withLock { process in
            defer { process = nil }
            return process
        }
        guard let process, process.isRunning else { return }
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

    /// A free port, with a free port 10,000 above it: engines of a cluster communicate on the second port.
    ///
    /// Both ports are below the range for outgoing connections (from 32,768 on Linux): such a connection
    /// could occupy a port during the restart of an engine.
    private static func freePort() throws -> Int {
        while true {
            let port = 10_240 + Self.ports.wrappingAdd(1, ordering: .relaxed).oldValue % 10_000
            let channels = [port, port + 10_000].map { port in
                try? ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
                    .bind(host: "127.0.0.1", port: port).wait()
            }
            for channel in channels { try? channel?.close().wait() }
            if channels.allSatisfy({ $0 != nil }) { return port }
        }
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

    /// The engine has ended without a command to do so, or its process cannot listen on its port.
    package struct Ended: Error {
        package let name: String
        package let port: Int
        /// The exit status, or the number of the signal.
        package let status: Int32?
    }

    /// Repeats a command until the reply is the expected reply.
    ///
    /// An engine does not report that it has started, or that it knows another engine.
    ///
    /// - Throws: ``Ended`` if no process runs; `CancellationError`.
    package func wait(for words: String..., until isReached: (Reply) -> Bool) async throws {
        while true {
            if let reply = try? await self.ask(words), isReached(reply) { return }
            let (isRunning, status) = self.process.withLock { process in
                let isRunning = process?.isRunning ?? false
                return (isRunning, isRunning ? nil : process?.terminationStatus)
            }
            guard isRunning else { throw Ended(name: self.program.name, port: self.port, status: status) }
            try await Task.sleep(for: .milliseconds(20))
        }
    }
}
