import Foundation
import NIOCore
import Synchronization

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// An error that ends a round early.
struct Trouble: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) { self.description = description }
}

/// The coordinator's side of a ``Machine``.
final class RemoteMachine: Sendable {
    private struct State {
        var connection: LineConnection?
        var waiting: [Int: CheckedContinuation<[String], any Error>] = [:]
        var last = 0
        var hasEnded = false
    }

    let number: Int
    private let process: Process
    private let guardian: Guardian
    private let state = Mutex(State())

    /// Starts the process.
    init(
        _ number: Int,
        control: Int,
        engines: [Int],
        prefix: String,
        _ guardian: Guardian
    ) throws {
        self.number = number
        self.guardian = guardian
        self.process = Process()
        self.process.executableURL = Guardian.program
        self.process.arguments = [
            "machine", "--number", "\(number)", "--port", "\(control)",
            "--engines", engines.map { "\($0)" }.joined(separator: ","), "--prefix", prefix,
        ]
        try self.process.run()
        guardian.started(self.process.processIdentifier)
    }

    deinit { self.kill() }

    /// Ends the process at once.
    func kill() {
        if self.process.isRunning {
            Self.send(SIGKILL, self.process.processIdentifier)
            self.process.waitUntilExit()
            self.guardian.ended(self.process.processIdentifier)
        }
        self.disconnected()
    }

    /// Stops or continues the process.
    func stop(_ isStopped: Bool) { Self.send(isStopped ? SIGSTOP : SIGCONT, self.process.processIdentifier) }

    private static func send(_ signal: Int32, _ id: Int32) {
        #if canImport(Glibc)
        _ = Glibc.kill(id, signal)
        #else
        _ = Darwin.kill(id, signal)
        #endif
    }

    // MARK: - Lines

    func connected(_ connection: LineConnection) {
        self.state.withLock { $0.connection = connection }
        connection.ended.whenComplete { [weak self] _ in self?.disconnected() }
    }

    private func disconnected() {
        let waiting = self.state.withLock { state in
            defer { state.waiting = [:] }
            state.hasEnded = true
            return state.waiting.values
        }
        for reply in waiting { reply.resume(throwing: Trouble("machine \(self.number) has ended")) }
    }

    func waitUntilConnected() async throws {
        while self.state.withLock({ $0.connection }) == nil {
            guard self.process.isRunning else { throw Trouble("machine \(self.number) does not start") }
            try await Task.sleep(for: .milliseconds(10))
        }
    }

    /// A reply to ``ask(_:_:)``.
    func answered(_ number: Int, _ words: [String]) {
        self.state.withLock { $0.waiting.removeValue(forKey: number) }?.resume(returning: words)
    }

    func send(_ line: String) { self.state.withLock { $0.connection }?.send(line) }

    /// Sends a command to the machine, and waits for the reply.
    ///
    /// - Parameters:
    ///   - command: The first word.
    ///   - arguments: The words after the command's number.
    /// - Returns: The words of the reply.
    /// - Throws: ``Trouble`` if the process has ended.
    func ask(_ command: String, _ arguments: String = "") async throws -> [String] {
        try await withCheckedThrowingContinuation { continuation in
            let (connection, number) = self.state.withLock { state -> (LineConnection?, Int) in
                guard !state.hasEnded, let connection = state.connection else { return (nil, 0) }
                state.last += 1
                state.waiting[state.last] = continuation
                return (connection, state.last)
            }
            guard let connection else {
                return continuation.resume(throwing: Trouble("machine \(self.number) is not there"))
            }
            connection.send("\(command) \(number) \(arguments)")
        }
    }
}
