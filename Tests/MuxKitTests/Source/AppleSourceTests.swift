import Foundation
import MuxTestSupport
import Testing

/// Rules for Apple platforms in sources, workflow and manifests, which the compiler on Linux cannot check.
@Suite(.standard)
struct AppleSourceTests {
    private static func text(_ path: String) throws -> String {
        try String(contentsOf: SourceLines.root.appending(path: path), encoding: .utf8)
    }

    // MARK: - Build

    @Test func `CO-34 CI compiles against a stand-in for each of Apple's modules`() throws {
        let folder = SourceLines.root.appending(path: ".ci/AppleLines")
        let standIns = try FileManager.default.contentsOfDirectory(atPath: folder.path)
        // Foundation and Dispatch exist on this system. The sources query these modules in their place.
        let others: Set = ["Glibc", "Musl", "FoundationNetworking"]
        let asked = SourceLines.sources.filter { $0.mentions("canImport") }.flatMap { line in
            line.code.matches(of: #/canImport\((\w+)\)/#).map { String($0.1) }
        }
        #expect(asked.count > 5)
        #expect(Set(asked).subtracting(others).subtracting(standIns) == [])
        #expect(try Self.text(".ci/run").contains(".ci/apple-lines"))
    }

    @Test func `CO-31 exit tests and child processes are limited to platforms that have processes`() {
        let platforms: Set = [
            "os(macOS) || os(Linux)", "os(Linux)", "compiler(>=6.3) && (os(macOS) || os(Linux))",
            "compiler(>=6.3) && os(Linux)",
        ]
        let found = SourceLines.conditions(of: SourceLines.tests + SourceLines.sources).filter { line, conditions in
            ["processExitsWith", "Process()"].contains { line.mentions($0) }
                && platforms.isDisjoint(with: conditions)
        }
        #expect(found.map(\.line.place) == [], "write #if os(macOS) || os(Linux)")
    }

    @Test func `CO-31 no asynchronous function or closure waits for a semaphore`() {
        var found: [String] = []
        for (_, lines) in Dictionary(grouping: SourceLines.tests + SourceLines.sources, by: \.file) {
            let names = Set(lines.flatMap { Self.semaphores($0.code) })
            for (index, line) in lines.enumerated() {
                let isWait = names.contains { name in
                    line.mentions("\(name).wait()") || line.mentions("\(name).wait(timeout:")
                }
                if isWait, Self.isAsynchronous(lines, index) { found.append(line.place) }
            }
        }
        #expect(found.sorted() == [], "Apple's wait() may not be called there: use a synchronous local function")
    }

    /// The names of the semaphores that a line declares.
    private static func semaphores(_ code: String) -> [String] {
        guard code.contains("DispatchSemaphore("), let names = code.firstMatch(of: #/let \(?([A-Za-z, ]+)\)? = /#)
        else {
            return []
        }
        return names.1.split(separator: ",").map { $0.trimmingCharacters(in: .whitespaces) }
    }

    /// Whether the innermost function or closure around a line is asynchronous, judged by its spelling.
    private static func isAsynchronous(_ lines: [SourceLines.Line], _ index: Int) -> Bool {
        func indentation(_ code: String) -> Int { code.prefix { $0 == " " }.count }
        let asynchronous = ["processExitsWith", "Task {", "addTask {", "run { (", ") async throws in", ") async in"]
        // A closure in the line itself.
        let before = lines[index].code.components(separatedBy: ".wait(")[0]
        if before.contains("{"), !before.contains("guard "), !before.contains("if ") {
            return asynchronous.contains { before.contains($0) }
        }
        var depth = indentation(lines[index].code)
        for line in lines[..<index].reversed() where !line.code.allSatisfy({ $0 == " " }) {
            guard indentation(line.code) < depth else { continue }
            depth = indentation(line.code)
            let code = line.code
            if code.contains("func ") || code.contains(" init(") { return code.contains(" async") }
            if asynchronous.contains(where: { code.contains($0) }) { return true }
            let isControl = [
                "if ", "guard ", "while ", "for ", "switch ", "case ", "default:", "repeat ", "} else", "do {",
            ]
            .contains { code.trimmingCharacters(in: .whitespaces).hasPrefix($0) }
            if !isControl, code.hasSuffix("{") || code.hasSuffix(" in") { return false }
        }
        return false
    }

    @Test func `CO-31 no call that the compiler considers safe is marked as unsafe`() {
        let found = SourceLines.sources.filter { line in
            ["unsafe SecItemAdd", "unsafe SecItemUpdate", "unsafe SecItemDelete"].contains { line.mentions($0) }
        }
        #expect(found.map(\.place) == [], "no argument of these is a pointer")
    }

    @Test func `CO-31 the workflow builds every library for iOS`() throws {
        let libraries = try Self.text("Package.swift").matches(of: /\.library\(name: "([A-Za-z]+)"/).map {
            String($0.1)
        }
        let job = try Self.text(".github/workflows/ci.yml").components(separatedBy: "\n  ios:").last ?? ""
        #expect(libraries.count >= 3)
        for library in libraries {
            #expect(
                job.contains("xcodebuild build -scheme \(library) -destination 'generic/platform=iOS'"),
                "\(library)"
            )
        }
    }

    @Test func `CO-31 the SwiftUI sample compiles in an app whose types belong to the main actor`() throws {
        let backend = try Self.text("Demo/SwiftUI/ArticlesBackend.swift")
        for line in backend.split(separator: "\n") where line.contains("struct ") && !line.contains("//") {
            #expect(line.contains("nonisolated struct"), "\(line)")
        }
        let app = try Self.text("Demo/SwiftUI/ArticlesApp.swift")
        #expect(app.contains("Binding { @MainActor in") && app.contains("} set: { @MainActor isPresented in"))
        let views = try Self.text("Sources/MuxUI/Platform/PhaseView.swift")
        for module in ["Foundation", "MuxNetwork", "SwiftUI"] { #expect(views.contains("public import \(module)\n")) }
    }

    // MARK: - Privacy manifests

    /// A category of calls for which the App Store requires a reason.
    private struct Category {
        let name: String
        /// The reason that applies to this package.
        let reason: String
        let names: Set<String>
    }

    /// From https://developer.apple.com/documentation/bundleresources/describing-use-of-required-reason-api.
    private static func categories() -> [Category] {
        [
            Category(
                name: "NSPrivacyAccessedAPICategoryFileTimestamp",
                reason: "C617.1",
                names: [
                    "stat", "fstat", "lstat", "fstatat", "getattrlist", "fgetattrlist", "getattrlistat",
                    "getattrlistbulk", "modificationDate", "creationDate", "fileModificationDate", "fileCreationDate",
                    "contentModificationDateKey", "creationDateKey",
                ]
            ),
            Category(
                name: "NSPrivacyAccessedAPICategoryDiskSpace",
                reason: "E174.1",
                names: [
                    "statfs", "fstatfs", "statvfs", "fstatvfs", "systemSize", "systemFreeSize",
                    "volumeTotalCapacityKey",
                    "volumeAvailableCapacityKey", "volumeAvailableCapacityForImportantUsageKey",
                    "volumeAvailableCapacityForOpportunisticUsageKey",
                ]
            ),
            Category(
                name: "NSPrivacyAccessedAPICategorySystemBootTime",
                reason: "35F9.1",
                names: ["systemUptime", "mach_absolute_time"]
            ),
            Category(
                name: "NSPrivacyAccessedAPICategoryUserDefaults",
                reason: "CA92.1",
                names: ["UserDefaults", "NSUserDefaults"]
            ),
            Category(
                name: "NSPrivacyAccessedAPICategoryActiveKeyboards",
                reason: "54BD.1",
                names: ["activeInputModes"]
            ),
        ]
    }

    @Test(arguments: ["MuxKit", "MuxNetwork", "MuxTesting", "MuxConformance", "MuxCompatibility", "MuxUI", "MuxOutbox"])
    func `CO-33 the privacy manifest of a library declares exactly the calls of its sources`(library: String) throws {
        let url = SourceLines.root.appending(path: "Sources/\(library)/PrivacyInfo.xcprivacy")
        let list = try PropertyListSerialization.propertyList(from: Data(contentsOf: url), format: nil)
        let manifest = try #require(list as? [String: Any])
        let declared = try #require(manifest["NSPrivacyAccessedAPITypes"] as? [[String: Any]])
        let reasons = declared.reduce(into: [String: [String]]()) { reasons, type in
            let name = type["NSPrivacyAccessedAPIType"] as? String ?? ""
            reasons[name] = type["NSPrivacyAccessedAPITypeReasons"] as? [String]
        }

        let lines = SourceLines.sources.filter { $0.file.hasPrefix("\(library)/") }
        #expect(lines.count > 200)
        let words = Set(lines.flatMap(\.words))
        let expected = Self.categories().filter { !$0.names.isDisjoint(with: words) }

        #expect(reasons == Dictionary(uniqueKeysWithValues: expected.map { ($0.name, [$0.reason]) }))
        #expect(manifest["NSPrivacyTracking"] as? Bool == false)
        #expect((manifest["NSPrivacyTrackingDomains"] as? [String])?.isEmpty == true)
        #expect((manifest["NSPrivacyCollectedDataTypes"] as? [[String: Any]])?.isEmpty == true)
        if library == "MuxKit" {
            let names = ["NSPrivacyAccessedAPICategoryDiskSpace", "NSPrivacyAccessedAPICategoryFileTimestamp"]
            #expect(reasons.keys.sorted() == names)
        }
    }

    @Test func `CO-33 the privacy manifest is a resource only on platforms that read the manifest`() throws {
        let package = try Self.text("Package.swift")
        let libraries = [
            "MuxKit", "MuxNetwork", "MuxTesting", "MuxConformance", "MuxCompatibility", "MuxUI", "MuxOutbox",
        ]
        for library in libraries {
            let target = package.components(separatedBy: ".target(\n            name: \"\(library)\",").dropFirst()
                .first
            let settings = target?.components(separatedBy: "\n        ),").first ?? ""
            #expect(
                settings.contains("resources: privacyManifest") && settings.contains("exclude: unread"),
                "\(library)"
            )
        }
        #if os(Linux)
        let products = Bundle.main.bundleURL
        let bundles = try FileManager.default.contentsOfDirectory(atPath: products.path).filter { name in
            [
                "MuxKit_MuxKit", "MuxKit_MuxNetwork.", "MuxKit_MuxTesting.", "MuxKit_MuxConformance.",
                "MuxKit_MuxCompatibility.", "MuxKit_MuxUI.", "MuxKit_MuxOutbox.",
            ].contains { name.hasPrefix($0) }
        }
        #expect(bundles.filter { !$0.hasPrefix("MuxKit_MuxKitTests") } == [], "a bundle was built")
        #endif
    }

    @Test func `CO-33 the documentation names the declaration for an app that connects to localhost`() throws {
        for page in ["MuxNetwork/MuxNetwork.docc/Requests.md", "MuxTesting/MuxTesting.docc/MuxTesting.md"] {
            #expect(try Self.text("Sources/\(page)").contains("NSAllowsLocalNetworking"), "\(page)")
        }
    }
}
