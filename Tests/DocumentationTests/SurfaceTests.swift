import Foundation
import MuxTestSupport
import Testing

/// The products of the package, and the public names in each product.
@Suite(.standard(endsAtRest: false))
struct SurfaceTests {
    /// The targets in the order of the manifest, with the names of their dependencies.
    private static func dependencies() throws -> [String: Set<String>] {
        let manifest = try Repository.text("Package.swift")
        let targets = manifest.matches(of: /\.target\(\n +name: "(\w+)",\n(?: +dependencies: \[([^\]]*)\])?/)
        return targets.reduce(into: [:]) { found, target in
            let names = (target.2 ?? "").split(separator: ",").map { $0.filter { $0.isLetter } }
            found[String(target.1)] = Set(names.map { String($0) })
        }
    }

    @Test func `CS-04 old names are in MuxCompatibility only, and migration articles show the import`() throws {
        #expect(try Self.dependencies()["MuxCompatibility"] == ["MuxKit", "MuxNetwork"])
        let files = Repository.files("Sources", ".swift").filter { !$0.hasPrefix("Sources/MuxCompatibility/") }
        #expect(files.count > 200)
        for file in files { #expect(try !Repository.text(file).contains("@available(*, deprecated"), "\(file)") }
        for page in [
            "MuxKit/MuxKit.docc/MigratingFromAsyncMuxAndJunction.md",
            "MuxNetwork/MuxNetwork.docc/MigratingFromATypedHTTPLayer.md",
        ] { #expect(try Repository.text("Sources/\(page)").contains("\nimport MuxCompatibility\n"), "\(page)") }
    }

    /// The public types at top level of a library.
    private static func publicTypes(_ library: String) throws -> [String] {
        let kinds = "struct|class|enum|actor|protocol|typealias"
        let pattern = try Regex(
            "(?m)^(?:@[\\w()]+ )*public (?:(?:final|nonisolated|indirect) )*(?:\(kinds)) (\\w+)",
            as: (Substring, Substring).self
        )
        return try Repository.files("Sources/\(library)", ".swift").flatMap { file in
            try Repository.text(file).matches(of: pattern).map { String($0.1) }
        }
    }

    @Test func `HS-06 the three libraries have at most 121 public types at top level`() throws {
        let limits = ["MuxKit": 67, "MuxNetwork": 43, "MuxTesting": 11]
        var names: [String] = []
        for (library, limit) in limits {
            let types = try Self.publicTypes(library)
            #expect(types.count > limit / 2 && types.count <= limit, "\(library): \(types.count)")
            names += types
        }
        #expect(names.count <= 121)
        let hidden: Set = [
            "ReachabilityMonitor", "SystemReachability", "RetryHelper", "RetryOperationError", "DependentOperation",
            "RunContext", "PerishableDependency", "MuxStoreStatistics", "OAuthAccount", "OAuthService", "ScriptEnded",
        ]
        #expect(hidden.isDisjoint(with: names))
        #expect(try Self.publicTypes("MuxConformance").count == 5)
    }

    @Test func `HS-06 the tests of an app do not build the conformance suites`() throws {
        let manifest = try Repository.text("Package.swift")
        #expect(manifest.contains(".library(name: \"MuxConformance\", targets: [\"MuxConformance\"])"))
        let dependencies = try Self.dependencies()
        #expect(dependencies["MuxConformance"] == ["MuxKit", "MuxNetwork", "MuxTesting"])
        for (target, names) in dependencies { #expect(!names.contains("MuxConformance"), "\(target)") }

        let suites = try Regex("(?:struct|class|enum|protocol) \\w*(?:Conformance|RuleSuite|RawServer)\\b")
        let files = Repository.files("Sources", ".swift").filter { !$0.hasPrefix("Sources/MuxConformance/") }
        #expect(files.count > 200)
        for file in files { #expect(try Repository.text(file).firstMatch(of: suites) == nil, "\(file)") }
    }
}
