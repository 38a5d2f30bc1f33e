import Foundation
import MuxKit

/// Takes in one answer to a download: writes each piece where it belongs as soon as it is there.
///
/// Called on the transport's thread. One lock keeps a piece that is being written apart from ``close()``, after which
/// nothing is written any more: a transport may still deliver a piece while its cancelled caller has left.
final class MediaSink: HTTPSink {
    /// The answer makes another request necessary, or none at all.
    enum Redirected: Error {
        case askAgain
        case finish
    }

    private struct State: Sendable {
        var machine: DownloadStateMachine
        /// `nil` once the sink is closed.
        var file: OpenFile?
    }

    private let state: Locked<State>
    private let call: HTTPCall
    private let name: MediaName
    private let folder: MediaFolder
    private let check: @Sendable (DownloadStateMachine.Partial?) -> Bool

    /// Makes a sink for one exchange, or for several of which the earlier ones were refused.
    ///
    /// - Parameters:
    ///   - machine: What is known of the download.
    ///   - call: The request.
    ///   - file: The growing file.
    ///   - name: Its name.
    ///   - folder: Where it is.
    ///   - check: Receives how far the download is; says whether it still counts.
    init(
        _ machine: DownloadStateMachine,
        _ call: HTTPCall,
        _ file: OpenFile,
        _ name: MediaName,
        in folder: MediaFolder,
        check: @escaping @Sendable (DownloadStateMachine.Partial?) -> Bool
    ) {
        self.state = Locked(State(machine: machine, file: file))
        self.call = call
        self.name = name
        self.folder = folder
        self.check = check
    }

    func receive(head: HTTPReply) throws {
        try self.whole { state, file in
            switch state.machine.received(DownloadHead(head)) {
            case .append:
                try self.makeRoom(for: state.machine.partial)
                try self.report(state.machine.partial)
            case .restart:
                let partial = state.machine.partial
                let sidecar = partial.validator.map { MediaSidecar(validator: $0, total: partial.total) }
                try self.folder.restart(self.name, file, sidecar) { self.check(partial) }
                try self.makeRoom(for: partial)
            case .finish: throw Redirected.finish
            case .askAgain: throw Redirected.askAgain
            case .refuse: throw HTTPError.status(HTTPStatusError(HTTPResponse(request: self.call, reply: head)))
            case .fail(let contradiction): throw self.error(contradiction)
            }
        }
    }

    func receive(_ bytes: Data) throws {
        try self.whole { state, file in
            var rest = [UInt8](bytes)[...]
            if let contradiction = state.machine.receives(count: rest.count) { throw self.error(contradiction) }
            if state.machine.partial.total == nil { try self.folder.reserve(Int64(rest.count)) }
            while !rest.isEmpty {
                let count = try self.folder.append(rest, to: file)
                state.machine.appended(count: count)
                rest = rest.dropFirst(count)
            }
            try self.report(state.machine.partial)
        }
    }

    /// Waits for a piece that is being written, and writes no other.
    ///
    /// - Returns: What is known of the download now.
    func close() -> DownloadStateMachine {
        self.state.withLock { state in
            state.file = nil
            return state.machine
        }
    }

    private func whole(_ body: (inout State, OpenFile) throws -> Void) throws {
        let result = self.state.withLock { state -> Result<Void, any Error> in
            guard let file = state.file else { return .failure(CancellationError()) }
            return Result { try body(&state, file) }
        }
        do {
            try result.get()
        } catch let error as MuxStoreError {
            throw MediaError(error)
        }
    }

    private func makeRoom(for partial: DownloadStateMachine.Partial) throws {
        guard let total = partial.total else { return }
        try self.folder.reserve(total - partial.offset)
    }

    private func report(_ partial: DownloadStateMachine.Partial) throws {
        guard self.check(partial) else { throw MediaFolder.Fenced() }
    }

    private func error(_ contradiction: DownloadStateMachine.Contradiction) -> MediaError {
        switch contradiction {
        case .wrongRange, .tooMuch: .contradiction
        case .tooLarge: .tooLarge(limit: self.folder.limits.maximumFileBytes)
        }
    }
}

/// What is kept beside a growing file: what its bytes belong to.
///
/// How many bytes there are is said by the file itself, so the two cannot disagree.
struct MediaSidecar: Sendable, Equatable, Codable {
    /// The version of the format.
    private var mux = 1
    /// The strong validator of the representation.
    var validator: String
    /// How long the whole is, if the server has said.
    var total: Int64?

    init(validator: String, total: Int64?) {
        self.validator = validator
        self.total = total
    }

    /// Reads what was written; `nil` if it is damaged, of a later version, or of no use.
    init?(_ data: Data) {
        guard let sidecar = try? JSONDecoder().decode(MediaSidecar.self, from: data), sidecar.mux == 1,
            HTTPValidator.isStrongTag(sidecar.validator)
        else { return nil }
        self = sidecar
    }

    var encoded: Data {
        get throws { try JSONEncoder().encode(self) }
    }
}
