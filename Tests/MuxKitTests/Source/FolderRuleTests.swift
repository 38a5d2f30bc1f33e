import Foundation
import MuxTestSupport
import Testing

/// Folders depend downwards only, so a reader of a folder does not need the folders above.
@Suite(.standard)
struct FolderRuleTests {
    /// The folders of each module, from the lowest up.
    ///
    /// A nested folder such as `Store/Journal` is part of its parent folder.
    private static let order: [String: [String]] = [
        "MuxKit": [
            "Internal", "Errors", "MemoryCache", "SingleFlight", "Retry", "Store", "Events", "SharedStore",
            "Repository", "Dependency", "Entries", "Backing", "Multiplexer", "Users", "OAuth",
        ],
        "MuxNetwork": ["Messages", "Transport", "Interceptors", "Caching", "Client", "OAuth", "Media"],
        "MuxTesting": ["Scripts", "Clock", "Schedules", "Fleet", "OAuth", "Loopback"],
        "MuxConformance": ["Server", "Suites"],
        "MuxOutbox": [],
        "MuxUI": ["Platform"],
    ]

    /// Permitted mentions of a higher folder, with the reasons.
    private static let exceptions: [(file: String, name: String, reason: String)] = []

    /// The types and functions that are declared in exactly one folder of a module and visible to other files.
    private static func declarations(_ lines: [SourceLines.Line]) -> [String: [String: String]] {
        var found: [String: [String: Set<String>]] = [:]
        for line in lines {
            guard let (module, folder) = line.folder, let name = line.declaredName else { continue }
            found[module, default: [:]][name, default: []].insert(folder)
        }
        return found.mapValues { names in names.compactMapValues { $0.count == 1 ? $0.first : nil } }
    }

    @Test func `P-05 a folder mentions no type of a higher folder`() throws {
        let declarations = Self.declarations(SourceLines.sources)
        var violations: Set<String> = []
        var unused = Set(Self.exceptions.map { "\($0.file): \($0.name)" })
        for line in SourceLines.sources {
            guard let (module, folder) = line.folder else { continue }
            let order = try #require(Self.order[module])
            let level = try #require(order.firstIndex(of: folder), "\(module)/\(folder) has no place in the order")
            for word in line.words {
                // Only types, because function names such as `zip` are not unique.
                guard word.first?.isUppercase == true, let home = declarations[module]?[word],
                    let height = order.firstIndex(of: home),
                    height > level
                else { continue }
                let violation = "\(line.file): \(word)"
                if unused.remove(violation) == nil,
                    !Self.exceptions.contains(where: { "\($0.file): \($0.name)" == violation })
                {
                    violations.insert("\(violation), of \(home)")
                }
            }
        }
        #expect(declarations["MuxKit"]?.count ?? 0 > 100)
        #expect(violations.sorted() == [], "move one of the two, or give a reason")
        #expect(unused.sorted() == [], "an exception that is none")
    }

    @Test func `HS-04 the core of multiplexers has at most 1,000 lines of code in four files`() {
        let lines = SourceLines.sources.filter { $0.file.hasPrefix("MuxKit/Multiplexer/MultiplexerCore") }
        #expect(Set(lines.map(\.file)).count == 4)
        #expect((1...1_000).contains(lines.count { !$0.code.allSatisfy(\.isWhitespace) }))
    }

    @Test func `HS-04 no file of a memory hit mentions tags or schema versions`() {
        let files: Set = [
            "Multiplexer/Multiplexer.swift", "Multiplexer/MultiplexerMap.swift", "Multiplexer/MultiplexerCore.swift",
            "Backing/SlotState.swift", "Entries/SlotStorage.swift", "Entries/SlotTable.swift",
            "Entries/PackedSlot.swift", "MemoryCache/BoundedTable.swift", "MemoryCache/EvictionOrder.swift",
            "MemoryCache/FlatIndex.swift", "Internal/Locked.swift",
        ]
        let lines = SourceLines.sources.filter { line in files.contains { line.file == "MuxKit/\($0)" } }
        #expect(Set(lines.map(\.file)).count == files.count)
        let mentions = lines.filter { line in
            line.words.contains { ["tags", "tagged", "schemaVersion"].contains($0) }
        }
        #expect(mentions.map(\.place) == [])
    }

    @Test func `Q-18 a test folder mentions no declaration of another folder and can be built alone`() {
        let declarations = Self.declarations(SourceLines.tests)
        var violations: Set<String> = []
        for line in SourceLines.tests {
            guard let (module, folder) = line.folder, module != "Consumers" else { continue }
            for word in line.words {
                guard let home = declarations[module]?[word], home != folder, home != "Support" else { continue }
                violations.insert("\(line.file): \(word), of \(home)")
            }
        }
        #expect(declarations["MuxKitTests"]?.count ?? 0 > 100)
        #expect(violations.sorted() == [], "move what both use to Support")
    }
}
