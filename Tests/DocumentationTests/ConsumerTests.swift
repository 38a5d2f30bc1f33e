import Foundation
import MuxTestSupport
import Testing

/// `Tests/Consumers/run` compiles and runs all required forms, and CI runs the script.
@Suite(.standard(endsAtRest: false))
struct ConsumerTests {
    private static let folder = "Tests/Consumers"

    private static func text(_ path: String) throws -> String { try Repository.text("\(Self.folder)/\(path)") }

    @Test func `CO-01 consumers name functions of every kind`() throws {
        let forms = try Self.text("Sources/OneLiners.swift")
        for maker in ["Multiplexer(", "MultiplexerMap(", "DependentRunner(", "DependentRunner(dependingOn: "] {
            for scope in ["let global", " "] { #expect(forms.contains(scope) && forms.contains(maker), "\(maker)") }
        }
        let functions = [
            "onFetch: Backend.fetchMyProfile)", "onFetch: Backend.fetchUserProfile)", "onFetch: fetchFreely)",
            "onFetch: remote.profile)", "onFetch: desk.profile)", "onFetch: screen.profile)", "onFetch: nested)",
            "onFetch: stored)", "onFetchMany: Backend.fetchUserProfiles)", "update: Up.make)", "update: makeFreely)",
            "update: remote.make)", "update: desk.make)", "update: screen.make)", "refreshAccess: Up.refresh",
            "zip(Backend.a, Backend.b)", "zip(repeating: Backend.a, Backend.b)", "work: Backend.attempt)",
            ".computed(Backend.number)", "handler: Backend.handle)", "client.multiplexer(", "client.multiplexerMap(",
        ]
        for function in functions { #expect(forms.contains(function), "\(function)") }
    }

    @Test func `CO-02 consumers have the settings of real projects`() throws {
        let manifests = try Repository.files(Self.folder, "Package.swift").map { try Repository.text($0) }
        let versions = manifests.compactMap { $0.firstMatch(of: /swift-tools-version: ([0-9.]+)/)?.1 }
        #expect(Set(versions) == ["5.9", "6.0", "6.2", "6.3"])
        for setting in [
            "Mode5\"", "Mode6\"", "MainApp5\"", "Features6\"", "Main6\"", "MainFeatures6\"",
            ".defaultIsolation(MainActor.self)", "NonisolatedNonsendingByDefault", "InferIsolatedConformances",
            "MemberImportVisibility", "InferSendableFromCaptures", "GlobalActorIsolatedTypesUsability",
        ] { #expect(manifests.contains { $0.contains(setting) }, "\(setting)") }
        #expect(try Repository.text(".ci/run").contains("\n    \(Self.folder)/run\n"))
    }

    @Test func `SC-13 consumers compile every sample in three modes, and the SwiftUI sample, too`() throws {
        let manifest = try Self.text("Tools63/Package.swift")
        #expect(manifest.contains("NonisolatedNonsendingByDefault"))
        #expect(manifest.contains("defaultIsolation(MainActor.self)"))
        for mode in [
            #""Tools63Mode6", dependencies: libraries)"#,
            #""Tools63Main6", dependencies: libraries, swiftSettings: [main])"#,
            #""Tools63MainFeatures6", dependencies: libraries, swiftSettings: features + [main])"#,
        ] { #expect(manifest.contains(mode), "\(mode)") }
        let apple = try Repository.text(".ci/apple-lines")
        for mode in ["SwiftUISample", "SwiftUISampleMain", "SwiftUISampleOnMainActor"] {
            #expect(apple.contains("\"\(mode)\": sorted(root.glob(\"Demo/SwiftUI/*.swift\"))"), "\(mode)")
        }
    }

    @Test func `CO-02 consumers compile every sample of the README and the articles`() throws {
        #expect(try Self.text("run").contains("Tests/DocumentationTests/{Imagined*,First*,*Samples}.swift"))
        // Files about this repository or the demo.
        let excused = [
            "ProductTests", "SampleTests", "ConsumerTests", "ReleaseTests", "DemoKillsTests", "RepeatKillsTests",
            "SharedRepositoryTests", "SurfaceTests", "Repository",
        ]
        for file in Repository.files("Tests/DocumentationTests", ".swift") {
            let name = URL(filePath: file).deletingPathExtension().lastPathComponent
            guard !excused.contains(name), !name.hasPrefix("ArticlesBackend") else { continue }
            let isCompiled = name.hasPrefix("Imagined") || name.hasPrefix("First") || name.hasSuffix("Samples")
            #expect(isCompiled, "\(name) is compiled by no consumer")
        }
    }

    @Test func `CO-02 an article whose types cross tasks mentions nonisolated`() throws {
        let crosses = /\nstruct [A-Za-z]+: [^\n]*(Codable|Decodable|HTTPRequest|MuxObserver|Error)/
        let pages = try Repository.files("Sources", ".md").filter { try Repository.text($0).contains(crosses) }
        #expect(pages.count > 3)
        for page in pages { #expect(try Repository.text(page).contains("`nonisolated struct"), "\(page)") }
    }

    @Test func `CO-03 consumers have closures that only throw`() throws {
        let forms = try Self.text("Sources/OneLiners.swift")
        for form in [
            "Multiplexer<Int> { throw Offline() }", "Multiplexer<Int> { _ in throw Offline() }",
            "MultiplexerMap<String, Int> { _ in throw Offline() }", "onFetchMany: { _ in throw Offline() }",
            "MultiplexerMap<String, Int> { _, _ in throw Offline() }",
        ] { #expect(forms.contains(form), "\(form)") }
    }

    @Test func `CO-04 warnings are errors in CI only`() throws {
        let manifest = try Repository.text("Package.swift")
        let strict = try #require(manifest.range(of: "Context.environment[\"MUX_WARNINGS_AS_ERRORS\"] == nil"))
        let first = try #require(manifest.range(of: ".treatAllWarnings(as: .error)"))
        #expect(strict.upperBound < first.lowerBound)
        #expect(!manifest[first.upperBound...].contains(".treatAllWarnings("))
        #expect(try Repository.text(".ci/run").contains("export MUX_WARNINGS_AS_ERRORS=1"))
        let run = try Self.text("run")
        #expect(run.contains("unset MUX_WARNINGS_AS_ERRORS") && run.contains("Sources/MuxKit/Planted.swift"))
    }

    @Test func `CO-05 a consumer compiles every old name`() throws {
        let sources = Repository.files("Sources", ".swift")
        let brought = try Self.text("Names/Brought.swift")
        var count = 0
        // A rename within this package is declared beside the new name.
        for file in sources where file.hasSuffix("/Deprecations.swift") {
            let text = try Repository.text(file)
            for match in text.matches(
                of: /\n *@available\(\*, deprecated.*\n *public .*?(?:typealias|var|func) `?(\w+)/
            ) {
                count += 1
                #expect(brought.contains(match.1), "\(match.1)")
            }
        }
        #expect(count >= 18)
        // Only the product for old names makes the names visible.
        #expect(brought.contains("import MuxCompatibility\n"))
        for name in ["Dependency<", "MultiRequester<", "SilencableError(", "Task.retry", ".GET"] {
            #expect(brought.contains(name), "\(name)")
        }
    }

    @Test func `CS-03 consumers check the error of a cacheKey for a value that is not Codable`() throws {
        let run = try Self.text("run")
        #expect(run.contains("\ndiagnosed \"$here/Names/Refused.swift\" error"))
        let refused = try Self.text("Names/Refused.swift")
        for form in ["Multiplexer<Unsaved>(cacheKey: ", "MultiplexerMap<Int, Unsaved>(cacheKey: ", "'Decodable'"] {
            #expect(refused.contains(form), "\(form)")
        }
    }

    @Test func `CS-09 the statements of the article about pitfalls agree with the consumers and the manifest`() throws {
        #expect(try Self.text("run").contains("\ndiagnosed \"$here/Names/Isolated.swift\" error"))
        let page = try Repository.text("Sources/MuxKit/MuxKit.docc/Pitfalls.md")
        let manifest = try Repository.text("Package.swift")
        for system in [("macOS", "15"), ("iOS", "18")] {
            #expect(page.contains("\(system.0) \(system.1)") && manifest.contains(".\(system.0)(.v\(system.1))"))
        }
    }
}
