import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// The environment of a test of media: a file on a server, a folder, and a repository with counted events.
final class MediaWorld: Sendable {
    let file: LoopbackServer.File
    let server: LoopbackServer
    let url: URL
    let folder: URL
    let events = EventTally()
    let repository: MuxRepository
    let clock = VirtualClock()
    /// The faults of the next responses, in order.
    let faults: Locked<[LoopbackServer.File.Fault]>

    /// Starts the server.
    ///
    /// - Parameters:
    ///   - file: The served file.
    ///   - faults: The faults of the first responses.
    ///   - folder: The folder of the media. The default is a new folder.
    ///   - store: The store of the repository.
    ///   - answer: Returns the response to a request, or `nil` for the response of the file.
    /// - Throws: ``LoopbackServer/Failure``.
    init(
        _ file: LoopbackServer.File = LoopbackServer.File(size: 300_000),
        faults: [LoopbackServer.File.Fault] = [],
        folder: URL? = nil,
        store: any MuxStore = MemoryStore(),
        answer: (@Sendable (LoopbackServer.Request) async -> LoopbackServer.Response?)? = nil
    ) throws {
        let faults = Locked(faults)
        self.file = file
        self.faults = faults
        let respond: @Sendable (LoopbackServer.Request) -> LoopbackServer.Response = { request in
            let fault = faults.withLock { $0.isEmpty ? nil : $0.removeFirst() }
            return file.response(to: request, fault: fault)
        }
        self.server = LoopbackServer(immediate: answer == nil ? respond : nil) { request in
            await answer?(request) ?? respond(request)
        }
        self.url = try self.server.start().appending(path: "picture.jpg")
        self.folder =
            folder ?? FileManager.default.temporaryDirectory.appending(component: "MuxMedia-\(UUID().uuidString)")
        self.repository = MuxRepository(store: store, observer: self.events)
    }

    /// Media that keep their files in the folder.
    func media(
        transport: (any HTTPTransport)? = nil,
        limits: AsyncMedia.Limits = .init(),
        accepts: [HTTPMediaType]? = nil,
        key: (@Sendable (URL) -> String)? = nil,
        durability: MuxDurability = .relaxed,
        fileSystem: any FileSystem = POSIXFileSystem()
    ) -> AsyncMedia {
        let transport = transport ?? SystemTransport(clock: self.clock)
        return AsyncMedia(
            directory: self.folder,
            limits: limits,
            accepts: accepts,
            key: key,
            durability: durability,
            repository: self.repository,
            fileSystem: fileSystem
        ) { call, sink in
            _ = try await transport.exchange(call, into: sink)
        }
    }

    /// The names of all files below the folder.
    var names: [String] {
        let files = FileManager.default.enumerator(at: self.folder, includingPropertiesForKeys: [.isRegularFileKey])
        return (files?.compactMap { $0 as? URL } ?? []).filter { !$0.hasDirectoryPath }.map(\.lastPathComponent)
            .filter { $0 != "session" }.sorted()
    }

    /// The number of bytes of all media files, complete or partial.
    var totalSize: Int64 {
        let folder = self.folder.appending(path: "media")
        return self.names.reduce(0) { sum, name in
            let attributes = try? FileManager.default.attributesOfItem(atPath: folder.appending(component: name).path)
            return sum + ((attributes?[.size] as? NSNumber)?.int64Value ?? 0)
        }
    }

    /// The number of bytes of the partial file.
    var partialSize: Int64 {
        let path = self.folder.appending(path: "media").appending(component: MediaName(self.url).partial).path
        let attributes = try? FileManager.default.attributesOfItem(atPath: path)
        return (attributes?[.size] as? NSNumber)?.int64Value ?? 0
    }

    /// Stops the server and removes the folder, and the store next to the folder.
    func close() async {
        await self.server.stop()
        try? FileManager.default.removeItem(at: self.folder)
        try? FileManager.default.removeItem(atPath: self.folder.path + ".store")
    }

    /// Runs `body`, then ``close()``.
    func run(_ body: (MediaWorld) async throws -> Void) async throws {
        let result: Result<Void, any Error>
        do { result = .success(try await body(self)) } catch { result = .failure(error) }
        await self.close()
        try result.get()
    }
}

extension LoopbackServer.Response {
    /// The response with another header field.
    func adding(_ name: String, _ value: String) -> Self {
        guard case .head(let status, let headers)? = self.steps.first else { return self }
        var response = self
        response.steps[0] = .head(status: status, headers: headers + [(name, value)])
        return response
    }
}

extension AsyncMedia {
    /// Checks the invariants of media without running work.
    nonisolated func expectAtRest(_ location: SourceLocation = #_sourceLocation) async {
        let occupancy = await settledOccupancy { self.occupancy }
        #expect(occupancy.waiters == 0, "callers still wait", sourceLocation: location)
        #expect(occupancy.tasks == 0, "tasks still run", sourceLocation: location)
        #expect(occupancy.keys == 0, "flights are still known", sourceLocation: location)
        #expect(self.downloadSlots.waiting == 0, "downloads still wait", sourceLocation: location)
    }
}

extension MediaWorld {
    /// The URL of file `number` of the server.
    func url(_ number: Int) -> URL { self.server.url.appending(path: "\(number).jpg") }
}

extension AsyncMedia.Limits {
    /// The default limits with changes.
    init(_ change: (inout AsyncMedia.Limits) -> Void) {
        self.init()
        change(&self)
    }
}
