import Foundation
import MuxKit

/// A store as a user might write: a property list for each entry, with a number as the file's name.
actor FolderOfFilesStore: MuxStore {
    private struct Span: Codable {
        var seconds: Int64
        var attoseconds: Int64

        init(_ duration: Duration) { (self.seconds, self.attoseconds) = duration.components }

        var duration: Duration {
            Duration(secondsComponent: self.seconds, attosecondsComponent: self.attoseconds)
        }
    }

    private struct File: Codable {
        var schemaVersion: Int
        var sessionEpoch: UInt64
        var fetchedAt: Date
        var timeToLive: Span
        var staleWhileRevalidate: Span?
        var staleIfError: Span?
        var validator: Data?
        var refreshNumber: UInt64?
        var tags: [Data]
        var tagNumber: UInt64?
        var payload: Data
    }

    private let folder: URL
    private var names: [MuxStoreKey: Int] = [:]
    private var files = 0
    private var epoch: UInt64 = 0

    init(folder: URL) { self.folder = folder }

    private func url(_ number: Int) -> URL { self.folder.appending(component: "\(number).plist") }

    func sessionEpoch() -> UInt64 { self.epoch }

    func raiseSessionEpoch(to epoch: UInt64) { self.epoch = max(self.epoch, epoch) }

    func load(_ name: MuxStoreKey) throws -> MuxStoredEntry? {
        guard let number = self.names[name] else { return nil }
        let file = try PropertyListDecoder().decode(File.self, from: Data(contentsOf: self.url(number)))
        guard file.sessionEpoch >= self.epoch else { return nil }
        return MuxStoredEntry(
            name: name,
            schemaVersion: file.schemaVersion,
            sessionEpoch: file.sessionEpoch,
            fetchedAt: file.fetchedAt,
            timeToLive: file.timeToLive.duration,
            validator: file.validator.map { String(decoding: $0, as: UTF8.self) },
            staleWhileRevalidate: file.staleWhileRevalidate?.duration,
            staleIfError: file.staleIfError?.duration,
            refreshNumber: file.refreshNumber,
            tags: file.tags.map { String(decoding: $0, as: UTF8.self) },
            tagNumber: file.tagNumber,
            payload: file.payload
        )
    }

    func save(_ entries: [MuxStoredEntry], durability: MuxDurability) throws {
        try FileManager.default.createDirectory(at: self.folder, withIntermediateDirectories: true)
        let encoder = PropertyListEncoder()
        encoder.outputFormat = .binary
        for entry in entries where entry.sessionEpoch >= self.epoch {
            let file = File(
                schemaVersion: entry.schemaVersion,
                sessionEpoch: entry.sessionEpoch,
                fetchedAt: entry.fetchedAt,
                timeToLive: Span(entry.timeToLive),
                staleWhileRevalidate: entry.staleWhileRevalidate.map(Span.init),
                staleIfError: entry.staleIfError.map(Span.init),
                validator: entry.validator.map { Data($0.utf8) },
                refreshNumber: entry.refreshNumber,
                tags: entry.tags.map { Data($0.utf8) },
                tagNumber: entry.tagNumber,
                payload: entry.payload
            )
            let number = self.names[entry.name] ?? self.files
            self.files = max(self.files, number + 1)
            try encoder.encode(file).write(to: self.url(number), options: .atomic)
            self.names[entry.name] = number
        }
    }

    func remove(_ names: [MuxStoreKey], durability: MuxDurability) throws {
        for name in names { try self.forget { $0 == name } }
    }

    func removeAll(domain: String, durability: MuxDurability) throws {
        try self.forget { $0.domain.utf8.elementsEqual(domain.utf8) }
    }

    func removeEverything() throws { try self.forget { _ in true } }

    private func forget(_ isMeant: (MuxStoreKey) -> Bool) throws {
        for (name, number) in self.names where isMeant(name) {
            try FileManager.default.removeItem(at: self.url(number))
            self.names[name] = nil
        }
    }

    func statistics() -> JournalStore.Statistics { JournalStore.Statistics() }
}
