import Foundation

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// A process that ends all others when the coordinator has ended, however that was.
final class Guardian: Sendable {
    /// This program.
    static let program = URL(filePath: "/proc/self/exe").resolvingSymlinksInPath()

    private let input = Pipe()
    private let process = Process()

    init() throws {
        // Others must not have the end that is written to: then it would not close with the coordinator.
        _ = fcntl(self.input.fileHandleForWriting.fileDescriptor, F_SETFD, FD_CLOEXEC)
        self.process.executableURL = Self.program
        self.process.arguments = ["guard"]
        self.process.standardInput = self.input
        try self.process.run()
    }

    func started(_ id: Int32) { self.write("+\(id)\n") }

    func ended(_ id: Int32) { self.write("-\(id)\n") }

    private func write(_ text: String) { try? self.input.fileHandleForWriting.write(contentsOf: Data(text.utf8)) }

    /// Reads which processes have started and ended, until the other side ends; then ends those that are left.
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
