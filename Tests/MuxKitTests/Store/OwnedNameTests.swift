import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// Files and folders belong to exactly one name.
@Suite(.standard)
struct OwnedNameTests {
    /// Two texts with the same 64-bit FNV-1a hash; a common suffix keeps the hashes equal.
    private static let pair = ("8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ")

    private let folder = TemporaryFolder()

    /// A name whose digest is the same for all texts.
    private static func collided(_ kind: OwnedName.Kind, _ text: String) -> OwnedName {
        OwnedName(kind, [text]) { _ in [UInt8](repeating: 7, count: 32) }
    }

    private func tokens(_ name: String) -> ProtectedFileTokenStore {
        ProtectedFileTokenStore(
            Self.collided(.tokens, name),
            Self.collided(.lease, name),
            directory: self.folder.url,
            fileSystem: POSIXFileSystem()
        )
    }

    private func lease(_ name: String) -> FileLease {
        FileLease(
            Self.collided(.lease, name),
            in: StoreFolder(self.folder.url),
            fileSystem: POSIXFileSystem(),
            problems: StorageProblems()
        )
    }

    @Test func `AC-02 10000 pairs of texts with equal 64-bit hashes have distinct names`() {
        #expect(FNV.hash(Self.pair.0.utf8) == FNV.hash(Self.pair.1.utf8))
        for kind in OwnedName.Kind.allCases {
            var names: Set<String> = []
            var equalHashes = 0
            let count = repetitions(10_000)
            for number in 0..<count {
                let (a, b) = (Self.pair.0 + String(number), Self.pair.1 + String(number))
                equalHashes += FNV.hash(a.utf8) == FNV.hash(b.utf8) ? 1 : 0
                names.insert(OwnedName(kind, [a]).fileName)
                names.insert(OwnedName(kind, [b]).fileName)
            }
            #expect(equalHashes == count)
            #expect(names.count == 2 * count)
            #expect(names.allSatisfy { $0.utf8.count == kind.rawValue.utf8.count + 65 })
        }
    }

    @Test func `PT-01 a folder beside the home folder is not inside the home folder`() {
        #expect(StoreFolder.place(of: "/home/anna/a", home: "/home/anna/") == "home:/a")
        #expect(StoreFolder.place(of: "/home/anna", home: "/home/anna") == "home:")
        #expect(StoreFolder.place(of: "/home/annabel/a", home: "/home/anna") == "path:/home/annabel/a")
    }

    @Test func `AC-02 different fields, kinds and Unicode forms give different names`() {
        let names = [
            OwnedName(.tokens, ["ab", "c"]), OwnedName(.tokens, ["a", "bc"]), OwnedName(.tokens, ["abc"]),
            OwnedName(.tokens, ["abc", ""]), OwnedName(.tokens, []), OwnedName(.tokens, [""]),
            OwnedName(.lease, ["abc"]),
            OwnedName(.tokens, ["\u{e9}"]), OwnedName(.tokens, ["e\u{301}"]), OwnedName(.tokens, ["ABC"]),
        ]
        #expect(Set(names.map(\.fileName)).count == names.count)
        #expect(!OwnedName(.tokens, ["\u{e9}"]).matches(["e\u{301}"]))
    }

    @Test func `AC-02 two accounts whose names have the same hash share no tokens`() async throws {
        defer { self.folder.remove() }
        for number in 0..<50 {
            let stores = [Self.pair.0, Self.pair.1].map { name in
                ProtectedFileTokenStore(named: name + String(number), directory: self.folder.url)
            }
            try await stores[0].save(Data("alice \(number)".utf8))
            #expect(try await stores[1].load() == nil)
            try await stores[1].save(Data("mallory \(number)".utf8))
            try await stores[1].remove()
            #expect(try await stores[0].load() == Data("alice \(number)".utf8))
        }
    }

    @Test func `AC-02 a token file of another name is neither used nor changed nor removed`() async throws {
        defer { self.folder.remove() }
        let (alice, mallory) = (self.tokens("alice"), self.tokens("mallory"))
        try await alice.save(Data("secret".utf8))
        let before = self.folder.contents()

        await #expect(throws: MuxStoreError.otherName) { try await mallory.load() }
        await #expect(throws: MuxStoreError.otherName) { try await mallory.save(Data("other".utf8)) }
        await #expect(throws: MuxStoreError.otherName) { try await mallory.remove() }

        #expect(self.folder.contents() == before)
        #expect(try await alice.load() == Data("secret".utf8))
    }

    @Test func `AC-02 a token file copied to another name is not used, and the runner reports the reason`() async throws
    {
        defer { self.folder.remove() }
        let alice = ProtectedFileTokenStore(named: "alice", directory: self.folder.url)
        let mallory = ProtectedFileTokenStore(named: "mallory", directory: self.folder.url)
        try await alice.save(Data("secret".utf8))
        try await mallory.save(Data("own".utf8))
        let tokens = self.folder.url.appending(component: "tokens")
        let files = [OwnedName(.tokens, ["alice"]), OwnedName(.tokens, ["mallory"])].map { name in
            tokens.appending(component: name.fileName)
        }
        try FileManager.default.removeItem(at: files[1])
        try FileManager.default.copyItem(at: files[0], to: files[1])

        let events = EventTally()
        let runner = OAuthDependentRunner<String, String>(
            store: mallory,
            repository: MuxRepository(store: MemoryStore(), observer: events),
            refreshAccess: { OAuthRenewal(access: $0) },
            signIn: { OAuthSignIn(refresh: "new") }
        )
        let error = await #expect(throws: RunnerError.self) { try await runner.run { .output($0) } }
        #expect(error?.code == .tokensUnreadable)
        await events.wait(for: .storageFailed)
        #expect(try Data(contentsOf: files[1]) == Data(contentsOf: files[0]))
    }

    @Test func `AC-02 a save under the same name replaces a damaged token file`() async throws {
        defer { self.folder.remove() }
        let store = ProtectedFileTokenStore(named: "alice", directory: self.folder.url)
        try await store.save(Data("one".utf8))
        let file = self.folder.url.appending(path: "tokens/" + OwnedName(.tokens, ["alice"]).fileName)
        for content in ["", "\n", "{}\nx", #"{"mux":1}"#, #"{"mux":1,"name":"alice"}"# + "\nx"] {
            try Data(content.utf8).write(to: file)
            #expect(try await store.load() == Data(), "\(content)")
            try await store.save(Data("two".utf8))
            #expect(try await store.load() == Data("two".utf8))
        }
        try Data(#"{"mux":2,"name":["alice"]}"#.utf8 + [0x0a]).write(to: file)
        await #expect(throws: MuxStoreError.newerFormat) { try await store.load() }
    }

    @Test func `AC-02 files of the previous format are neither read nor removed`() async throws {
        defer { self.folder.remove() }
        let tokens = self.folder.url.appending(component: "tokens")
        try FileManager.default.createDirectory(
            at: tokens,
            withIntermediateDirectories: true,
            attributes: [.posixPermissions: 0o700]
        )
        let digest = Hex.text(of: FNV.hash("session".utf8))
        let former = ["tokens-\(digest)", "tokens-\(digest).lock", "lease-\(digest)"].map {
            tokens.appending(component: $0)
        }
        for file in former { try Data("former".utf8).write(to: file) }

        let store = ProtectedFileTokenStore(named: "session", directory: self.folder.url)
        #expect(try await store.load() == nil)
        try await store.save(Data("new".utf8))
        #expect(try await store.lease?.take(as: "a", for: .seconds(1)).owner == "a")
        try await store.remove()

        for file in former { #expect(try Data(contentsOf: file) == Data("former".utf8)) }
    }

    @Test func `AC-02 a lease of another name is not taken, extended or given back`() async throws {
        defer { self.folder.remove() }
        let (alice, mallory) = (self.lease("alice"), self.lease("mallory"))
        let term = try await alice.take(as: "alice", for: .seconds(60))
        let before = self.folder.contents()

        await #expect(throws: MuxStoreError.otherName) { try await mallory.take(as: "alice", for: .seconds(60)) }
        await #expect(throws: MuxStoreError.otherName) { try await mallory.giveBack(term) }

        #expect(self.folder.contents() == before)
        #expect(try await alice.take(as: "bob", for: .seconds(1)).owner == "alice")
    }

    // MARK: - Folders

    @Test func `AC-02 a folder of another name is neither claimed nor removed`() throws {
        defer { self.folder.remove() }
        let problems = StorageProblems()
        let (alice, mallory) = (Self.collided(.media, "alice"), Self.collided(.media, "mallory"))
        let root = StoreFolder(self.folder.url)
        let folders = [alice, mallory].map { root.appending($0.fileName, owner: $0) }
        let files = folders.map { CheckedFileSystem(POSIXFileSystem(), for: $0, problems: problems) }

        #expect(try !folders[0].isPresent(files[0]))
        try folders[0].claim(files[0])
        try folders[0].claim(files[0])
        let before = self.folder.contents()
        #expect(throws: MuxStoreError.otherName) { try folders[1].claim(files[1]) }
        #expect(throws: MuxStoreError.otherName) { try folders[1].isPresent(files[1]) }

        #expect(try folders[0].isPresent(files[0]))
        #expect(self.folder.contents() == before)
        // The system has removed the file, or a process was killed before it wrote the file.
        try FileManager.default.removeItem(atPath: FilePath.join(folders[0].path, OwnedName.folderFile))
        try folders[0].claim(files[0])
        #expect(throws: MuxStoreError.otherName) { try folders[1].claim(files[1]) }
    }

    @Test func `AC-02 a folder in the home folder and a folder elsewhere never share a place`() {
        let home = "/home/al"
        let places = [
            "/home/al", "/home/al/x", "/x", "/home/alice/x", "/ice/x", "/", "/home/al/~/x", "/home/al/home/al/x",
            "/home/al/\u{e9}", "/home/al/e\u{301}", "/home/AL/x",
        ].map { StoreFolder.place(of: $0, home: home) }
        #expect(Set(places.map { Array($0.utf8) }).count == places.count)
        #expect(StoreFolder.place(of: "/home/al/x", home: home) == "home:/x")
        #expect(StoreFolder.place(of: "/home/al/x", home: "/home/al/") == "home:/x")
        for home in ["", "/"] { #expect(StoreFolder.place(of: "/x", home: home) == "path:/x") }
        // The home folder of an app moves with an update.
        #expect(
            StoreFolder.place(of: "/apps/1/x", home: "/apps/1") == StoreFolder.place(of: "/apps/2/x", home: "/apps/2")
        )
    }

    @Test func `AC-02 repositories with different folders share no folder of media or bodies`() {
        let home = URL(filePath: NSHomeDirectory(), directoryHint: .isDirectory)
        let standard = MuxRepository(directory: nil)
        let repositories =
            [standard, MuxRepository(directory: home.appending(path: "x"))]
            + ["/x", "/x2", "/X", "/" + Self.pair.0, "/" + Self.pair.1].map {
                MuxRepository(directory: URL(filePath: $0))
            }
        var folders: [String] = []
        for repository in repositories {
            folders.append(repository.folder(.media).path)
            for key in ["a/b", "a_b", "A_B", "", Self.pair.0, Self.pair.1] {
                folders.append(repository.folder(.bodies, for: key).path)
            }
        }
        #expect(Set(folders).count == folders.count && !folders.contains(""))
        #expect(standard.folder(.media).path.hasSuffix("/MuxMedia"))
        let same = MuxRepository(directory: home.appending(path: "y/../x/"))
        #expect(same.folder(.media).path == folders[7])
    }

    @Test func `AC-02 different apps have different folder names`() {
        let long = String(repeating: "n", count: 300)
        let texts = ["app", "a/b", "a_b", "a b", ".a", "_.a", "", "_", "\u{e9}", "e\u{301}", long, long + "n", "App"]
        var names = Set(texts.map { MuxStoreLocation.folderName(for: $0) })
        #expect(names.count == texts.count)
        #expect(names.contains("app") && names.contains("a_b"))
        // A long folder name, used as an app's name, gives another folder name.
        for name in names where name.utf8.count > 64 { names.insert(MuxStoreLocation.folderName(for: name)) }
        #expect(names.count > texts.count)
        #expect(names.allSatisfy { $0.utf8.count <= 101 })
    }
}
