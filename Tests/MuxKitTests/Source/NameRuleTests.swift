import Foundation
import MuxTestSupport
import Testing

/// Rules for names and for the form of options, read from the sources.
@Suite(.standard)
struct NameRuleTests {
    private static func text(_ file: String) throws -> String {
        try String(contentsOf: SourceLines.root.appending(path: "Sources/\(file)"), encoding: .utf8)
    }

    private static let files = Set(SourceLines.sources.map(\.file)).sorted()

    @Test func `HS-02 a function that is named as a question returns a Bool`() throws {
        let form = #/\bfunc ((?:is|has|have|are|was)[A-Z]\w*)\b([^{}]*?)(?:\{|\n\n|\n *\}|\n *///)/#
        var count = 0
        for file in Self.files {
            for match in try Self.text(file).matches(of: form) {
                count += 1
                // Behind the parameters, which may be closures.
                let result = match.2.suffix(from: match.2.lastIndex(of: ")") ?? match.2.startIndex)
                #expect(result.contains("-> Bool"), "\(file): \(match.1)")
            }
        }
        #expect(count > 100)
    }

    @Test func `CS-02 each property of an option type is a parameter of its initialiser`() throws {
        // A `RequestOptions` is made of its static members.
        let form = #/(?m)^( *)public struct (\w*(?:Options|Policy|Limits|Configuration)): [^{]*\{\n((?s:.*?))^\1\}/#
        var found: [String] = []
        for file in Self.files {
            for match in try Self.text(file).matches(of: form) where match.2 != "RequestOptions" {
                let body = match.3
                let properties = body.matches(of: #/(?m)^ *public var (\w+)\b[^{\n]*$/#).map { String($0.1) }
                let parameters = body.matches(of: #/public init\(((?s:.*?))\n? *\) \{/#).map { initialiser in
                    Set(initialiser.1.matches(of: #/(\w+): /#).map { String($0.1) })
                }
                found.append(String(match.2))
                #expect(!properties.isEmpty, "\(file): \(match.2)")
                #expect(parameters.contains { $0.isSuperset(of: properties) }, "\(file): \(match.2)")
            }
        }
        #expect(
            found.sorted() == [
                "Configuration", "HTTPTransportOptions", "Limits", "MuxPolicy", "Options", "Options", "Options",
                "Policy", "RetryPolicy", "RunnerPolicy",
            ]
        )
    }
}
