import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct JournalFolderTests {
    @Test func `DK-04 no file name is derived from a key`() async throws {
        let scratch = Scratch()
        let store = scratch.store()
        let hostile = [
            "", ".", "..", "../../escape", "/etc/passwd", "a\u{0}b", "👩‍🚀", "é", "e\u{301}", "KEY", "key", "\n", "\"},{",
            "trash-1", "lock", "epoch.json", String(repeating: "n", count: 10_000), "\u{202e}", "CON", "a\\b", "%2e%2e",
        ]

        for (number, text) in hostile.enumerated() {
            try await store.save(
                [sample(text, number, domain: "d"), sample("k", number, domain: text)],
                durability: .relaxed
            )
        }

        for (number, text) in hostile.enumerated() {
            #expect(try await store.load(name(text, domain: "d")) == sample(text, number, domain: "d"))
            #expect(try await store.load(name("k", domain: text)) == sample("k", number, domain: text))
        }
        #expect(scratch.listing == ["epoch.json", "journal", "journal/00000001.jsonl", "lock"])
        #expect(try FileManager.default.contentsOfDirectory(atPath: scratch.folder.path) == ["store"])
    }

    @Test func `DK-01 every line of every file is JSON`() async throws {
        let scratch = Scratch()
        let store = scratch.store()
        try await store.save([sample("a\nb\u{0}"), sample(nil), sample("c")], durability: .full)
        try await store.remove([name("c")], durability: .full)
        try await store.removeAll(domain: "x\n", durability: .full)

        for file in [scratch.segment, scratch.session] {
            let lines = try Data(contentsOf: file).split(separator: 0x0a)
            #expect(lines.count == (file == scratch.session ? 1 : 12))
            for line in lines {
                #expect(throws: Never.self) { try JSONSerialization.jsonObject(with: line, options: .fragmentsAllowed) }
            }
        }
    }

    @Test func `DK-11 only the owner can access folders and files`() async throws {
        let scratch = Scratch()
        let store = scratch.store()
        try await store.save([sample("a")], durability: .full)
        try await store.raiseSessionEpoch(to: 1)
        _ = try await store.load(name("a"))

        for folder in [scratch.root, scratch.root.appending(component: "journal"), scratch.folder] {
            #expect(try scratch.mode(folder) == 0o700)
        }
        for file in [scratch.segment, scratch.session, scratch.root.appending(component: "lock")] {
            #expect(try scratch.mode(file) == 0o600)
        }
    }

    @Test func `DK-11 the folder is in the caches folder under a safe name`() throws {
        func path(_ environment: [String: String], _ bundle: String?, _ process: String) throws -> String {
            try MuxStoreLocation.standard(environment: environment, bundleIdentifier: bundle, processName: process).path
        }

        let home = ["HOME": "/home/me"]
        #expect(try path(home, nil, "tool").hasSuffix("/tool/MuxKit"))
        #expect(try path(home, "com.example.App", "App").hasSuffix("/com.example.App/MuxKit"))
        let caches = { MuxStoreLocation.xdg(.caches, $0) }
        #expect(caches(home)?.path == "/home/me/.cache")
        #expect(caches(["XDG_CACHE_HOME": "/var/c", "HOME": "/home/me"])?.path == "/var/c")
        #expect(caches(["XDG_CACHE_HOME": "relative", "HOME": "/home/me"])?.path == "/home/me/.cache")
        #expect(caches([:]) == nil && caches(["HOME": ""]) == nil)
        for name in ["", ".", "..", "../x", "a/b", "é", ".hidden", String(repeating: "n", count: 300), "a\u{0}b"] {
            let folder = MuxStoreLocation.folderName(for: name)
            #expect(!folder.isEmpty && folder.utf8.count <= 101 && !folder.hasPrefix("."))
            #expect(!folder.contains("/") && !folder.utf8.contains(0))
        }
    }

    @Test func `DK-11 the next opening removes the leftovers of a killed process and no other file`() async throws {
        let scratch = Scratch(isInspected: false)
        try await scratch.store().save([sample("a")], durability: .full)
        let files = FileManager.default
        let trash = scratch.root.appending(path: "trash-1/deep")
        try files.createDirectory(at: trash, withIntermediateDirectories: true)
        try Data("x".utf8).write(to: trash.appending(component: "y"))
        for leftover in ["epoch.json.1.tmp", "journal/00000001.jsonl.2.tmp", "tokens.json", "tokens.json.3.tmp"] {
            try Data("x".utf8).write(to: scratch.root.appending(path: leftover))
        }

        #expect(try await scratch.store().load(name("a")) == sample("a"))

        let own = ["epoch.json", "journal", "journal/00000001.jsonl", "lock"]
        #expect(scratch.listing == (own + ["tokens.json", "tokens.json.3.tmp"]).sorted())
    }

    @Test func `DK-06 the age and all other fields of an entry survive a relaunch`() async throws {
        let scratch = Scratch()
        var entry = sample("a")
        entry.fetchedAt = Date(timeIntervalSinceReferenceDate: 812_345_678.123_456_7)
        entry.timeToLive = .seconds(1) / 3
        entry.validator = "\"tag\""
        try await scratch.store().save([entry], durability: .full)

        #expect(try await scratch.store().load(name("a")) == entry)
    }
}
