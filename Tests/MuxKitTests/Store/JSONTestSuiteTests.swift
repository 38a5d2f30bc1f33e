#if os(macOS) || os(Linux)
import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

private let archive = "json-test-suite/test_parsing.tar.gz"

/// Third-party JSON texts, valid and invalid, at each place where the library reads or stores JSON.
///
/// The texts of JSONTestSuite (https://github.com/nst/JSONTestSuite, `test_parsing`) are not part of this
/// repository: see ``SharedData``.
@Suite(.standard, .enabled(if: SharedData.has(archive), "not at hand"))
struct JSONTestSuiteTests {
    /// The texts, sorted by name.
    private func texts() async throws -> [(name: String, text: Data)] {
        let files = try await BlockingWork.run { Result { try SharedData.files(in: archive) } }.get()
        let texts = files.filter { $0.key.hasSuffix(".json") }.sorted { $0.key < $1.key }
        try #require(texts.count == 318)
        return texts.map { ($0.key, $0.value) }
    }

    private func entry(_ name: String, _ payload: Data) -> MuxStoredEntry {
        var entry = sample(name)
        entry.payload = payload
        return entry
    }

    @Test func `Q-13 a payload is loaded byte for byte, or its save is refused`() async throws {
        let texts = try await self.texts()
        let scratch = Scratch()
        let entries = texts.map { self.entry($0.name, $0.text) }
        let error = await #expect(throws: MuxStoreError.PartialSave.self) {
            try await scratch.store().save(entries, durability: .relaxed)
        }
        let refused = Set(error?.failures.compactMap(\.name.key) ?? [])
        let broken = texts.filter { $0.text.contains(0x0a) || $0.text.contains(0x0d) }
        #expect(refused == Set(broken.map(\.name)))
        #expect(error?.failures.allSatisfy { $0.error as? MuxStoreError == .lineBreakInPayload } ?? false)

        let store = scratch.store()
        for (name, text) in texts {
            let found = try await store.load(MuxStoreKey(domain: "users", key: name))
            #expect(found == (refused.contains(name) ? nil : self.entry(name, text)), "\(name)")
        }
        #expect(await store.statistics().damagedRecords == 0)
    }

    /// The result of decoding any JSON text.
    private enum Decoded: Codable, Sendable, Equatable {
        case fetched
        case text

        init(from decoder: any Decoder) throws {
            if var list = try? decoder.unkeyedContainer() {
                while !list.isAtEnd { _ = try list.decode(Decoded?.self) }
            } else if let object = try? decoder.container(keyedBy: AnyKey.self) {
                for key in object.allKeys { _ = try object.decodeIfPresent(Decoded.self, forKey: key) }
            }
            self = .text
        }

        func encode(to encoder: any Encoder) throws { try "text".encode(to: encoder) }
    }

    private struct AnyKey: CodingKey {
        let stringValue: String
        var intValue: Int? { nil }

        init?(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }

    @Test func `Q-13 a value that cannot be decoded is fetched and counted`() async throws {
        let texts = try await self.texts().filter { !$0.text.contains(0x0a) && !$0.text.contains(0x0d) }
        let store = MemoryStore()
        let entries = texts.map { self.entry($0.name, $0.text) }
        await store.save(entries, durability: .relaxed)
        let observer = CountingFailures(count: Locked(0))
        let repository = MuxRepository(store: store, observer: observer)
        let map = MultiplexerMap<String, Decoded>(
            cacheKey: "users",
            policy: MuxPolicy(timeToLive: .seconds(1 << 32)),
            repository: repository
        ) { _ in .fetched }

        var fetched = 0
        for (name, text) in texts {
            let isDecoded = (try? JSONDecoder().decode(Decoded.self, from: text)) != nil
            let value = try await map.request(key: name, .staleWhileRevalidate)
            #expect(value == (isDecoded ? .text : .fetched), "\(name)")
            if !isDecoded { fetched += 1 }
        }
        #expect(fetched > 100)
        #expect(observer.count.withLock { $0 } == fetched)
    }

    @Test func `Q-13 a text is not a record, with or without a correct checksum`() async throws {
        let format = RecordCodec(store: 9)
        let record = try format.record(of: sample("a"))
        let end = try #require(record.firstIndex(of: 0x0a))
        for (name, text) in try await self.texts() {
            let bytes = [UInt8](text)
            #expect(RecordCodec.parseHeader(bytes[...]) == nil, "\(name)")
            for record in [bytes + [0x0a], bytes + record[end...], ChecksummedLine.sealed(bytes) + record[end...]] {
                #expect(format.entry(in: record) == nil, "\(name)")
                #expect(format.entryWithoutPayload(in: record) == nil, "\(name)")
            }
            switch SessionFile.decode(text) {
            case .damaged: break
            case let content: Issue.record("\(name): \(content)")
            }
        }
    }

    @Test func `Q-13 a foreign text between two records of the journal affects neither record`() async throws {
        let scratch = Scratch()
        try await scratch.store().save([sample("a", 1)], durability: .relaxed)
        let first = try Data(contentsOf: scratch.segment)
        try await scratch.store().save([sample("b", 2)], durability: .relaxed)
        let second = try Data(contentsOf: scratch.segment).dropFirst(first.count)
        for (name, text) in try await self.texts() {
            for line in [text + Data([0x0a]), Data(ChecksummedLine.sealed([UInt8](text))) + Data("\nnull\n".utf8)] {
                try (first + line + second).write(to: scratch.segment)
                let store = scratch.store()
                #expect(try await store.load(MuxStoreKey(domain: "users", key: "a")) == sample("a", 1), "\(name)")
                #expect(try await store.load(MuxStoreKey(domain: "users", key: "b")) == sample("b", 2), "\(name)")
                let damaged = await store.statistics().damagedRecords
                #expect(damaged == 1 || (text.isEmpty && damaged == 0), "\(name): \(damaged)")
            }
        }
    }
}

/// Counts entries that could not be decoded.
private struct CountingFailures: MuxObserver {
    let count: Locked<Int>

    func observe(_ event: MuxEvent) {
        if event.kind == .loadFailed { self.count.withLock { $0 += 1 } }
    }
}
#endif
