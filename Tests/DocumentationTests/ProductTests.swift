import Foundation
import MuxTestSupport
import Testing

/// The needs of a person who has just cloned the repository.
@Suite(.standard(endsAtRest: false))
struct ProductTests {
    // MARK: - Running it

    @Test func `P-02 the package needs only modules of the Swift toolchain and of the operating system`() throws {
        #expect(!(try Repository.text("Package.swift").contains(".package(")))

        let ours: Set = [
            "MuxKit", "MuxNetwork", "MuxTesting", "MuxConformance", "MuxCompatibility", "MuxUI", "MuxOutbox",
            "MuxTestSupport", "MuxTestFleet", "MuxTestNeighbours", "CMuxCurl", "CMuxDecoder",
        ]
        let toolchain: Set = [
            "Foundation", "FoundationNetworking", "Dispatch", "Synchronization", "Testing", "SwiftOverlayShims",
            "Glibc", "Musl", "Darwin", "CryptoKit", "Network", "Security", "UIKit", "AppKit", "WatchKit", "SwiftUI",
            "Observation", "ImageIO", "os", "PackageDescription",
        ]
        // `Demo/Server` and `Demo/Neighbours` are separate packages, of which the root builds no file.
        let files = ["Sources", "Tests", "Demo"].flatMap { Repository.files($0, ".swift") }
            .filter { !$0.hasPrefix("Demo/Server/") && !$0.hasPrefix("Demo/Neighbours/") }
        #expect(files.count > 300)
        for file in files {
            // An import is not indented.
            for line in try Repository.text(file).split(separator: "\n") where line.utf8.first != UInt8(ascii: " ") {
                let words = line.split { " .".contains($0) }
                guard let index = words.firstIndex(of: "import"), words[..<index].allSatisfy(Self.isModifier) else {
                    continue
                }
                let module = words[index...].dropFirst().first { $0 != "struct" && $0 != "func" }.map(String.init) ?? ""
                #expect(ours.contains(module) || toolchain.contains(module), "\(file): \(line)")
            }
        }
    }

    private static func isModifier(_ word: Substring) -> Bool {
        ["public", "package", "internal", "private", "fileprivate", "@preconcurrency"].contains(word)
    }

    @Test func `P-02 swift test runs every file of tests`() throws {
        let manifest = try Repository.text("Package.swift")
        let targets = manifest.components(separatedBy: "let testFolders = [").last?.prefix { $0 != "]" } ?? ""
        // `Tests/Consumers/run` builds the separate packages in `Tests/Consumers`.
        for file in Repository.files("Tests", ".swift") where !file.hasPrefix("Tests/Consumers/") {
            let folder = file.split(separator: "/")[1]
            let isTarget = targets.contains("\"\(folder)\"") || manifest.contains("path: \"Tests/\(folder)\"")
            #expect(isTarget, "\(file)")
        }
    }

    @Test func `P-01 P-02 CI runs the commands in the README`() throws {
        let ci = try Repository.text(".ci/run")
        let blocks = try Repository.text("README.md").components(separatedBy: "```\n").filter { $0.hasPrefix("swift ") }
        let commands = blocks.flatMap { $0.split(separator: "\n") }.map { line in
            line.prefix { $0 != "#" }.trimmingCharacters(in: .whitespaces)
        }
        #expect(commands.contains("swift run demo") && commands.contains("swift test"))
        for command in commands where command != "swift run demo serve" {
            #expect("\n\(ci)\n".contains("\n    \(command)\n"), "\(command)")
        }
    }

    @Test func `Q-17 every bug of the table matches the present sources`() throws {
        var (file, text, count) = ("", "", 0)
        for line in try Repository.text(".ci/planted-bugs.txt").split(separator: "\n") {
            if line.hasPrefix("at: ") {
                file = String(line.dropFirst(4))
                text = try Repository.text("Sources/\(file)")
            }
            guard line.hasPrefix("was: ") else { continue }
            count += 1
            #expect(text.contains(line.dropFirst(5)), "\(file)")
        }
        #expect(count >= 150)
    }

    @Test func `PF-10 the table names each comparison, with goals and verdicts`() throws {
        let page = try Repository.text("Sources/MuxKit/MuxKit.docc/Performance.md")
        let rows = page.split(separator: "\n").filter { $0.hasPrefix("| ") }.dropFirst(2).map { row in
            row.dropFirst(2).dropLast(2).components(separatedBy: " | ").map { $0.trimmingCharacters(in: .whitespaces) }
        }
        #expect(rows.count > 100)
        for row in rows {
            #expect(row.count == 7, "\(row)")
            #expect(row.count != 7 || row[5].isEmpty == row[6].isEmpty, "a goal and its verdict: \(row)")
        }
        let program = try Repository.text("Demo/Benchmarks/Benchmarks.swift")
        let groups = program.matches(of: #/BenchmarkGroup\(\s*"(\w+)"/#).map { String($0.1) }
        #expect(groups.count > 15)
        #expect(Set(groups).subtracting(rows.compactMap(\.first)) == [])
    }

    // MARK: - Orientation

    @Test func `P-05 Contributing describes every folder of the sources`() throws {
        let page = try Repository.text("CONTRIBUTING.md")
        let folders = Repository.folders("Sources").filter { $0.contains("/") }
        #expect(folders.count > 20)
        for folder in folders { #expect(page.contains("`\(folder)`"), "\(folder)") }

        let named = page.split(separator: "`").filter { $0.hasPrefix("Mux") && $0.contains("/") }.map(String.init)
        for name in named { #expect(folders.contains(name), "\(name) is described and does not exist") }
    }

    @Test func `HS-08 one document for contributors explains the families of test ids`() throws {
        #expect(Repository.files("Sources", "/Contributing.md") == [])
        let page = try Repository.text("CONTRIBUTING.md").components(separatedBy: "\n## Names of tests\n")
        let section = try #require(page.dropFirst().first?.components(separatedBy: "\n## ").first)
        let rows = section.split(separator: "\n").compactMap { $0.firstMatch(of: /^\| ([A-Z, ]+) \|/)?.1 }
        let explained = rows.flatMap { $0.components(separatedBy: ", ") }
        #expect(explained.count == Set(explained).count)
        let lists = [".ci/spec-ids", "Demo/Server/spec-ids", "Demo/Neighbours/spec-ids"]
        let ids = try lists.flatMap { try Repository.text($0).split(separator: "\n") }
        let families = Set(ids.map { String($0.prefix(while: \.isLetter)) })
        #expect(families.count > 25)
        #expect(families.subtracting(explained).sorted() == [])
    }

    @Test func `P-05 one page shows every public type`() throws {
        let page = try Repository.text("Sources/MuxKit/MuxKit.docc/PublicInterface.md")
        let listed = page.split(separator: "\n").compactMap { $0.firstMatch(of: /^\| `(\w+)` \|/).map { String($0.1) } }
        var declared: [String] = []
        for file in Repository.files("Sources", ".swift") {
            let pattern =
                /^(?:@[\w()]+ )*public (?:(?:final|nonisolated|indirect) )*(struct|class|enum|actor|protocol|typealias) (\w+)/
            let types = try Repository.text(file).matches(of: pattern.anchorsMatchLineEndings())
            // An alias of an older system is not a separate type.
            let isOfOld = file.hasSuffix("/Deprecations.swift")
            declared += types.filter { $0.1 != "typealias" || !isOfOld }.map { String($0.2) }
        }
        #expect(declared.count > 100)
        #expect(listed.sorted() == declared.sorted())
    }

    @Test func `P-05 a file is named after a declaration in it and has fewer than 530 lines`() throws {
        for file in Repository.files("Sources", ".swift") where !file.hasSuffix("/Deprecations.swift") {
            let text = try Repository.text(file)
            let base = URL(filePath: file).deletingPathExtension().lastPathComponent
            let name = base.split(separator: "+").first.map(String.init) ?? base
            let kinds = ["struct", "class", "actor", "enum", "protocol", "extension", "func", "typealias"]
            let isDeclared = kinds.contains { kind in
                text.range(of: "\\b\(kind) \(name)\\b", options: [.regularExpression, .caseInsensitive]) != nil
            }
            #expect(isDeclared, "\(file)")
            #expect(text.split(separator: "\n", omittingEmptySubsequences: false).count < 530, "\(file)")
        }
    }
}
