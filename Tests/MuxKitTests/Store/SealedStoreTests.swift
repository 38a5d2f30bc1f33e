import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct SealedStoreTests {
    private func store(_ base: some MuxStore, _ key: UInt8 = 7) -> SealedStore {
        SealedStore(base, seal: ToySeal(key: key).seal, open: ToySeal(key: key).open)
    }

    private var secret: MuxStoredEntry {
        var entry = sample("k")
        entry.payload = Data("\"treasure\"".utf8)
        entry.validator = "\"coordinates\""
        return entry
    }

    @Test func `DK-08 neither value nor validator reaches the disk unsealed`() async throws {
        let scratch = Scratch()

        try await self.store(scratch.store()).save([self.secret], durability: .full)

        let text = String(decoding: try Data(contentsOf: scratch.segment), as: UTF8.self)
        #expect(!text.contains("treasure") && !text.contains("coordinates"))
        for line in text.split(separator: "\n") {
            #expect(throws: Never.self) {
                try JSONSerialization.jsonObject(with: Data(line.utf8), options: .fragmentsAllowed)
            }
        }
        #expect(try await self.store(scratch.store()).load(name("k")) == self.secret)
    }

    @Test func `DK-08 an entry that does not open is a counted miss until it is saved again`() async throws {
        let base = MemoryStore()
        try await self.store(base, 1).save([self.secret], durability: .full)
        let other = self.store(base, 2)

        #expect(try await other.load(name("k")) == nil)
        #expect(await other.statistics().unopened == 1)
        #expect(try await self.store(base, 1).load(name("k")) == self.secret)

        try await other.save([self.secret], durability: .full)
        #expect(try await other.load(name("k")) == self.secret)
        #expect(await other.statistics().unopened == 1)
    }

    @Test func `DK-08 a sealed value moved to another name does not open`() async throws {
        let base = MemoryStore()
        let store = self.store(base)
        try await store.save([self.secret], durability: .full)
        var moved = try #require(await base.load(name("k")))
        moved.name = name("other")
        await base.save([moved], durability: .full)

        #expect(try await store.load(name("other")) == nil)
        #expect(await store.statistics().unopened == 1)
    }

    @Test func `DK-08 tags outside the seal are not read`() async throws {
        let base = MemoryStore()
        let store = self.store(base)
        try await store.save([self.secret], durability: .full)
        var tagged = try #require(await base.load(name("k")))
        tagged.tags = ["clear text"]
        await base.save([tagged], durability: .full)

        #expect(try await store.load(name("k")) == self.secret)
    }

    @Test func `DK-08 any other payload in place of a sealed value is a miss`() async throws {
        let base = MemoryStore()
        let open = SealedStore(base, seal: { $0 }, open: { $0 })
        let sealed = ["{}", "{}\n1", "{\"domain\":\"users\",\"key\":\"k\"\n1", "", "\n", "{\"domain\":[\n"].map {
            "\"\(Data($0.utf8).base64EncodedString())\""
        }

        for text in ["", "\"", "null", "\"\"", "\"not base64\"", "{}", "\"AAAA"] + sealed {
            var entry = sample("k")
            entry.payload = Data(text.utf8)
            await base.save([entry], durability: .full)
            #expect(try await open.load(name("k")) == nil, "\(text)")
        }
    }

    @Test func `DK-08 CO-14 an entry that cannot be sealed is an error and affects no other entry`() async throws {
        let base = MemoryStore()
        let store = SealedStore(
            base,
            seal: { data in
                if data.count > 100 { throw ToySeal.Refused() }
                return data
            },
            open: { $0 }
        )
        var large = sample("large")
        large.payload = Data("\"\(String(repeating: "x", count: 200))\"".utf8)

        let error = await #expect(throws: MuxStoreError.PartialSave.self) {
            try await store.save([sample("a"), large], durability: .full)
        }

        #expect(error?.failures.map(\.name) == [large.name])
        #expect(error?.failures.first?.error is ToySeal.Refused)
        #expect(await base.load(large.name) == nil)
        #expect(try await store.load(name("a")) == sample("a"))
    }
}
