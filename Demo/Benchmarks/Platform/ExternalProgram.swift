import Foundation

/// An installed program.
struct ExternalProgram {
    let path: String

    /// `nil` if no folder of `PATH` contains the program.
    init?(_ name: String) {
        let folders = ProcessInfo.processInfo.environment["PATH", default: ""].split(separator: ":")
        let paths = folders.map { "\($0)/\(name)" }
        guard let path = paths.first(where: FileManager.default.isExecutableFile(atPath:)) else { return nil }
        self.path = path
    }

    /// Starts the program and discards its output.
    func start(_ arguments: [String]) throws -> Process {
        let process = Process()
        process.executableURL = URL(filePath: self.path)
        process.arguments = arguments
        process.standardOutput = FileHandle.nullDevice
        process.standardError = FileHandle.nullDevice
        try process.run()
        return process
    }

    /// Runs the program until it exits, and returns its output.
    func output(_ arguments: [String]) throws -> String {
        let process = Process()
        process.executableURL = URL(filePath: self.path)
        process.arguments = arguments
        let pipe = Pipe()
        process.standardOutput = pipe
        try process.run()
        let data = try pipe.fileHandleForReading.readToEnd() ?? Data()
        process.waitUntilExit()
        guard process.terminationStatus == 0 else {
            throw BenchmarkError.wrongResult("\(self.path): \(process.terminationStatus)")
        }
        return String(bytes: data, encoding: .utf8) ?? ""
    }

    /// Runs the program until it exits.
    func run(_ arguments: [String]) throws {
        let process = try self.start(arguments)
        process.waitUntilExit()
        guard process.terminationStatus == 0 else {
            throw BenchmarkError.wrongResult("\(self.path): \(process.terminationStatus)")
        }
    }
}

/// An nginx that serves a folder on loopback.
struct Nginx {
    private let process: Process
    private let folder: URL
    private let port: Int

    init?(_ program: ExternalProgram, _ parent: URL) throws {
        self.folder = parent.appending(path: "nginx")
        self.port = .random(in: 20_000..<40_000)
        try FileManager.default.createDirectory(
            at: self.folder.appending(path: "files"),
            withIntermediateDirectories: true
        )
        let path = self.folder.path
        let user = getuid() == 0 ? "user root;" : ""
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        let configuration = """
            daemon off;
            worker_processes 1;
            \(user)
            pid \(path)/pid;
            error_log \(path)/error.log;
            events { worker_connections 64; }
            http {
                access_log off;
                sendfile on;
                \(paths.map { "\($0)_temp_path \(path)/\($0);" }.joined(separator: "\n    "))
                types { video/mp4 mp4; }
                server { listen 127.0.0.1:\(self.port); root \(path)/files; }
            }
            """
        try Data(configuration.utf8).write(to: self.folder.appending(path: "nginx.conf"))
        guard let process = try? program.start(["-p", path, "-c", path + "/nginx.conf"]) else { return nil }
        self.process = process
    }

    /// Adds a file of `size` bytes.
    func add(_ name: String, _ size: Int) throws -> URL {
        let path = self.folder.appending(path: "files/" + name)
        try Data().write(to: path)
        let handle = try FileHandle(forWritingTo: path)
        var left = size
        let piece = Data((0..<1 << 20).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) })
        while left > 0 {
            try handle.write(contentsOf: piece.prefix(left))
            left -= min(left, piece.count)
        }
        try handle.close()
        guard let url = URL(string: "http://127.0.0.1:\(self.port)/\(name)") else {
            throw BenchmarkError.wrongResult(name)
        }
        return url
    }

    /// Whether nginx writes its process identifier within some seconds.
    func isUp() async throws -> Bool {
        for _ in 0..<100 {
            if let pid = try? Data(contentsOf: self.folder.appending(path: "pid")), !pid.isEmpty { return true }
            guard self.process.isRunning else { return false }
            try await Task.sleep(for: .milliseconds(50))
        }
        return false
    }

    func stop() {
        self.process.terminate()
        self.process.waitUntilExit()
    }
}
