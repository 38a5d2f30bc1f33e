import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Every decoder of data on disk, on mutations of a corpus of hostile inputs and of the encoders' output.
///
/// `MUX_FUZZ=100` multiplies the number of inputs by 100; `MUX_SEED=7` starts with seed 7.
@Suite(.standard(minutes: 60))
struct DecoderFuzzTests {
    private let fuzz = FuzzRun()
    private let corpus: [[UInt8]]

    init() throws {
        let folder = try #require(Bundle.module.url(forResource: "Corpus", withExtension: nil))
        let files = try FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil)
        self.corpus = try files.sorted { $0.path < $1.path }.map { [UInt8](try Data(contentsOf: $0)) }
        self.fuzz.announce()
    }

    private func run(
        _ count: Int,
        _ what: String,
        _ written: [[UInt8]],
        _ body: ([UInt8], Comment) async throws -> Void
    ) async rethrows {
        let inputs = self.corpus + written + written + written
        let count = count * self.fuzz.factor
        for number in 0..<UInt64(count) {
            let seed = self.fuzz.seed &+ number
            var mutator = Mutator(seed: seed, words: Mutator.journalWords)
            let input = inputs.randomElement(using: &mutator) ?? []
            try await body(number < inputs.count ? inputs[Int(number)] : mutator.mutated(input), "MUX_SEED=\(seed)")
        }
        print("Q-06: \(count) inputs for \(what)")
    }

    @Test func `Q-06 the corpus is present`() {
        #expect(self.corpus.count >= 20)
    }

    @Test func `Q-06 decoders of records and of their parts neither trap nor hang`() async throws {
        let format = RecordCodec(store: 9)
        let record = try format.record(of: sample("a\n\"é", 5))
        let end = try #require(record.firstIndex(of: 0x0a))
        let rest = Array(record[ChecksummedLine.restOffset..<end])

        await self.run(4_000, "records", [record, Array(record[..<end]), rest]) { bytes, seed in
            _ = RecordCodec.parseHeader(bytes[...])
            _ = ChecksummedLine.open(bytes[...])
            _ = Hex.value(of: bytes)
            // With a correct checksum the same bytes reach later checks.
            for input in [bytes, ChecksummedLine.sealed(bytes) + record[end...], bytes + record] {
                guard let entry = format.entry(in: input) else { continue }
                #expect((try? format.record(of: entry)) != nil, seed)
            }
        }
    }

    @Test func `Q-06 decoders of session files and indexes neither trap nor hang`() async {
        let session = [UInt8](SessionFile(epoch: 5, store: 7).encoded)
        let anchor = IndexSnapshot.Anchor(store: 9, generation: 8, covered: 900, lastOffset: 850, lastStamp: 7)
        let row = JournalIndex.Location(digest: .init(domain: 1, key: 2), offset: 100, count: 90, epoch: 0)
        let index = IndexSnapshot(anchor: anchor, rows: [row, row]).encoded

        await self.run(4_000, "session files and indexes", [session, index]) { bytes, seed in
            _ = SessionFile.decode(Data(bytes))
            _ = SessionFile.decode(Data(ChecksummedLine.sealed(bytes)))
            for input in [bytes, ChecksummedLine.sealed(bytes) + index] {
                guard let found = IndexSnapshot(input) else { continue }
                #expect(found.rows.allSatisfy { $0.offset >= 0 && $0.byteCount > 0 }, seed)
            }
        }
    }

    @Test func `Q-06 a runner gets a session with any content of its token store`() async {
        let tokens = Array(Data(#"{"session":0,"refresh":"r","access":"a"}"#.utf8))
        await self.run(400, "stored tokens", [tokens]) { bytes, seed in
            let store = InMemoryTokenStore()
            await store.save(Data(bytes))
            let world = World()
            let runner = OAuthDependentRunner<String, String>(
                store: store,
                repository: world.repository,
                refreshAccess: { _ in OAuthRenewal(access: "new") },
                signIn: { OAuthSignIn(access: "new", refresh: "new") }
            )
            await #expect(throws: Never.self, "\(seed), \(String(decoding: bytes, as: UTF8.self))") {
                let access = try await runner.run { .output($0) }
                #expect(!access.isEmpty || bytes.count > 2, seed)
            }
        }
    }

    @Test func `Q-06 a store with hostile files finds old and new entries`() async throws {
        try await self.run(60, "folders", []) { bytes, seed in
            let scratch = Scratch(isInspected: false)
            let first = scratch.store()
            try await first.save([sample("kept", 1)], durability: .relaxed)
            var segment = [UInt8](try Data(contentsOf: scratch.segment))
            segment += bytes
            try Data(segment).write(to: scratch.segment)
            let store = scratch.store(indexFloor: 2)
            do {
                let kept = try await store.load(name("kept"))
                #expect(kept == sample("kept", 1), seed)
                try await store.save([sample("new", 2)], durability: .relaxed)
                #expect(try await scratch.store(indexFloor: 2).load(name("new")) == sample("new", 2), seed)
            } catch MuxStoreError.newerFormat {
                // The store does not change bytes that claim a later format version.
            }
        }
    }
}
