import Foundation
import MuxKit

/// Writes a response of a download, piece by piece, to the growing file: the file of an incomplete download.
///
/// The writes run on a thread of Dispatch. A lock serialises the writes and ``close()``; after ``close()`` no
/// byte is written, even if a custom transport delivers a piece after the cancellation.
final class MediaSink: HTTPSink {
    /// The reasons to end the exchange after the head of a response.
    enum EarlyEnd: Error {
        case askAgain
        case finish
    }

    private struct State: Sendable {
        var machine: DownloadStateMachine
        /// The growing file; `nil` after ``close()``.
        var file: OpenFile?
    }

    private let state: Locked<State>
    private let call: HTTPCall
    private let download: MediaDownload

    private var folder: MediaFolder { self.download.folder }

    /// Makes a sink for one exchange; a runner may repeat the exchange after an error status, such as 401.
    ///
    /// - Parameters:
    ///   - machine: The state of the download.
    ///   - call: The request.
    ///   - file: The growing file.
    ///   - download: The download of the file.
    init(_ machine: DownloadStateMachine, _ call: HTTPCall, _ file: OpenFile, of download: MediaDownload) {
        self.state = Locked(State(machine: machine, file: file))
        self.call = call
        self.download = download
    }

    func receive(head: HTTPReply) async throws { try await BlockingWork.run { try self.write(head) } }

    func receive(_ bytes: Data) async throws { try await BlockingWork.run { try self.write(bytes) } }

    private func write(_ head: HTTPReply) throws {
        try self.withOpenFile { state, file in
            let fields = DownloadHead(head)
            // Checked before the response replaces the part on disk.
            try self.requireAcceptable(head, fields)
            switch state.machine.received(fields) {
            case .append:
                try self.makeRoom(for: state.machine.partial)
                try self.requireCurrent(state.machine.partial)
            case .restart:
                let partial = state.machine.partial
                let sidecar = partial.validator.map { MediaSidecar(validator: $0, total: partial.total) }
                try self.folder.restart(self.download.name, file, sidecar) { self.download.updateProgress(partial) }
                try self.makeRoom(for: partial)
            case .finish: throw EarlyEnd.finish
            case .askAgain: throw EarlyEnd.askAgain
            case .refuse: throw HTTPError.status(HTTPError.StatusFailure(HTTPResponse(request: self.call, reply: head)))
            case .fail(let error): throw error
            }
        }
    }

    private func write(_ bytes: Data) throws {
        try self.withOpenFile { state, file in
            var rest = [UInt8](bytes)[...]
            if let error = state.machine.rejection(ofNext: rest.count) { throw error }
            try self.folder.requireLinked(file)
            if state.machine.partial.total == nil { try self.folder.reserve(Int64(rest.count)) }
            while !rest.isEmpty {
                let count = try self.folder.append(rest, to: file)
                state.machine.appended(count: count)
                rest = rest.dropFirst(count)
            }
            try self.requireCurrent(state.machine.partial)
        }
    }

    /// Waits for a running write; later pieces throw `CancellationError`.
    ///
    /// - Returns: The state of the download.
    func close() -> DownloadStateMachine {
        self.state.withLock { state in
            state.file = nil
            return state.machine
        }
    }

    private func withOpenFile(_ body: (inout State, OpenFile) throws -> Void) throws {
        do {
            try self.state.withLock { state in
                guard let file = state.file else { throw CancellationError() }
                try body(&state, file)
            }
        } catch let error as MuxStoreError {
            throw error.isMissing ? MediaFolder.Removed() : MediaError(error)
        }
    }

    /// Throws ``MediaError/wrongType(_:)`` or ``MediaError/tooSmall(minimum:)`` if the response does not
    /// contain an acceptable file.
    ///
    /// A partial response may omit `Content-Type` (RFC 9110, section 15.3.7).
    private func requireAcceptable(_ head: HTTPReply, _ fields: DownloadHead) throws {
        guard [200, 203, 206].contains(head.status) else { return }
        let field = head.headers[.contentType]
        if let accepts = self.download.accepts, head.status != 206 || field != nil {
            let type = field.flatMap { HTTPMediaType(rawValue: $0) }
            guard let type, accepts.contains(where: { $0.includes(type) }) else { throw MediaError.wrongType(type) }
        }
        guard head.status != 206, let length = fields.length else { return }
        let minimum = self.folder.limits.minimumFileBytes
        guard length >= minimum else { throw MediaError.tooSmall(minimum: minimum) }
    }

    private func makeRoom(for partial: DownloadStateMachine.Partial) throws {
        guard let total = partial.total else { return }
        try self.folder.reserve(total - partial.offset)
    }

    /// Updates the progress; throws ``MediaFolder/Fenced`` if the flight is no longer current.
    private func requireCurrent(_ partial: DownloadStateMachine.Partial) throws {
        guard self.download.updateProgress(partial) else { throw MediaFolder.Fenced() }
    }
}

/// The content of a sidecar: a small file that identifies the representation of the bytes in a growing file.
///
/// The sidecar does not contain the number of received bytes: the size of the growing file is this number, so
/// the two files cannot contradict each other.
struct MediaSidecar: Sendable, Equatable, Codable {
    /// The version of the format.
    private var mux = 1
    /// The strong validator of the representation.
    var validator: String
    /// The length of the representation; `nil` if unknown.
    var total: Int64?

    init(validator: String, total: Int64?) {
        self.validator = validator
        self.total = total
    }

    /// Decodes ``encoded``; `nil` if damaged, of another version, or without a strong validator.
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
