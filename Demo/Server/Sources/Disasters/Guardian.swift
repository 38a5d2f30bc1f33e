import Foundation

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// A process that ends all other processes after any end of the coordinator, including a crash.
final class Guardian: Sendable {
    /// This program.
    static let program = URL(filePath: "/proc/self/exe").resolvingSymlinksInPath()

    private let input = Pipe()
    private let process = Process()

    init() throws {
        // Other processes must not inherit the write end of the pipe: the pipe would stay open after the
        // coordinator's end.
        _ = fcntl(self.input.fileHandleForWriting.fileDescriptor, F_SETFD, FD_CLOEXEC)
        self.process.executableURL = Self.program
        self.process.arguments = ["guard"]
        self.process.standardInput = self.input
        try self.process.run()
    }

    func started(_ id: Int32) { self.write("+\(id)\n") }

    func ended(_ id: Int32) { self.write("-\(id)\n") }

    private func write(_ text: String) { try? self.input.fileHandleForWriting.write(contentsOf: Data(text.utf8)) }

    /// Reads the starts and ends of processes until the coordinator ends; then ends the remaining processes.
    static func run() {
        signal(SIGINT, SIG_IGN)
        signal(SIGTERM, SIG_IGN)
        var running: Set<Int32> = []
        while let line = readLine() {
            guard let id = Int32(line.dropFirst()) else { continue }
            if line.hasPrefix("+") { running.insert(id) } else { running.remove(id) }
        }
        for id in running { kill(id, SIGKILL) }
    }
}
