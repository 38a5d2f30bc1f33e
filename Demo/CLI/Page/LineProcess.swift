import Foundation
import MuxTesting

/// A child process of the demo, which reports by lines of its output.
final class LineProcess: Sendable {
    let ended = Gate<Void>()
    let pid: Int32
    private let input: FileHandle

    /// Starts the demo with the given arguments.
    ///
    /// - Parameters:
    ///   - arguments: The arguments.
    ///   - received: Called with each line, and with `nil` after the last line.
    ///   - end: Called with the process identifier at the end of the process.
    /// - Throws: The error of the start.
    init(
        _ arguments: [String],
        received: @escaping @Sendable (String?) -> Void,
        end: @escaping @Sendable (Int32) -> Void
    ) throws {
        let process = Process()
        process.executableURL = Bundle.main.executableURL ?? URL(filePath: CommandLine.arguments[0])
        process.arguments = arguments
        let (input, output) = (Pipe(), Pipe())
        process.standardInput = input
        process.standardOutput = output
        let ended = self.ended
        process.terminationHandler = { process in
            end(process.processIdentifier)
            ended.openForGood(returning: ())
        }
        try process.run()
        self.pid = process.processIdentifier
        self.input = input.fileHandleForWriting
        Thread.detachNewThread {
            var text = Data()
            while case let bytes = output.fileHandleForReading.availableData, !bytes.isEmpty {
                text += bytes
                while let end = text.firstIndex(of: 0x0A) {
                    let line = String(decoding: text[..<end], as: UTF8.self)
                    text = Data(text[text.index(after: end)...])
                    received(line)
                }
            }
            received(nil)
        }
    }

    /// Sends a line to the process.
    func send(_ line: String) throws { try self.input.write(contentsOf: Data("\(line)\n".utf8)) }

    /// Ends the input of the process.
    func endInput() { try? self.input.close() }

    /// Writes a line to the standard output of this process, which is a child.
    static func say(_ line: String) throws {
        try FileHandle.standardOutput.write(contentsOf: Data("\(line)\n".utf8))
    }
}
