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
                // The text after the parameters, which may be closures.
                let result = match.2.suffix(from: match.2.lastIndex(of: ")") ?? match.2.startIndex)
                #expect(result.contains("-> Bool"), "\(file): \(match.1)")
            }
        }
        #expect(count > 100)
    }

    @Test func `CS-02 each property of an option type is a parameter of its initialiser`() throws {
        // A `RequestOptions` is created from static members.
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
                "Configuration", "Configuration", "Configuration", "HTTPTransportConfiguration", "Limits", "Limits",
                "MuxOutboxPolicy", "MuxPolicy", "Policy", "RetryPolicy", "RunnerPolicy",
            ]
        )
    }

    @Test func `CS-02 an option type is a policy, a configuration or limits`() throws {
        let form = #/(?m)^ *public (?:struct|enum|final class) (\w*(?:Options|Settings|Parameters|Preferences))\b/#
        let others = try Self.files.flatMap { try Self.text($0).matches(of: form).map { String($0.1) } }
        #expect(others == ["RequestOptions"])
    }

    @Test func `CS-05 a public name has one spelling, and one verb for each meaning`() throws {
        let owners: [String: Set<String>] = [
            "clear": ["Multiplexer", "MultiplexerMap", "MuxRepository+Tags", "CachingTransport", "AsyncMedia"],
            "clearAll": ["MuxRepository+SignOut"],
            "clearMemory": ["Multiplexer", "MultiplexerMap", "MuxRepository", "DecodedMedia"],
            // Collections, and records of stores.
            "remove": [
                "MemoryCache", "MemoryStore", "SealedStore", "JournalStore", "TokenStore", "ProtectedFileTokenStore",
                "KeychainTokenStore",
            ],
            "removeAll": ["MemoryCache", "MemoryStore", "SealedStore", "JournalStore"],
            "discard": ["MuxOutbox"],
            // The method of HTTP.
            "delete": ["HTTPClient+Methods"],
            "removeEverything": ["MemoryStore", "SealedStore", "JournalStore"],
            // The last two: the grant of RFC 6749, section 6.
            "refresh": [
                "Multiplexer", "MultiplexerMap", "MuxRepository+Tags", "OAuthTokenEndpoint", "FakeOAuthServer",
            ],
            "renew": ["DependentRunner", "OAuthDependentRunner"],
            "reload": ["Multiplexer", "MultiplexerMap", "ObservedPages", "ObservedValue"],
        ]
        let verbs = #/(?:clear|remove|delete|forget|drop|discard|erase|evict|purge|refresh|renew|reload|revalidate)/#
        let form = #/(?m)^ *public (?:[a-z]+(?:\([a-z]+\))? )*func (\w+)/#
        var found: [String: Set<String>] = [:]
        for file in Self.files where !file.hasPrefix("MuxCompatibility/") {
            let text = try Self.text(file)
            #expect(!text.contains("endPoint") && !text.contains("EndPoint"), "\(file)")
            for match in text.matches(of: form) where match.1.prefixMatch(of: verbs) != nil {
                let name = file.split(separator: "/").last?.dropLast(6) ?? ""
                found[String(match.1), default: []].insert(String(name))
            }
        }
        #expect(found == owners)
    }
}
