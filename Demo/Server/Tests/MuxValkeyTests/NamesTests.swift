import MuxKit
import NIOCore
import Testing

@testable import MuxValkey

struct NamesTests {
    private static let keys = [
        MuxStoreKey(domain: "a", key: "b"), MuxStoreKey(domain: "a"), MuxStoreKey(domain: "a", key: ""),
        MuxStoreKey(domain: "", key: "a"), MuxStoreKey(domain: ""), MuxStoreKey(domain: "1:a", key: "=b"),
        MuxStoreKey(domain: "caf\u{e9}", key: "e\u{301}"), MuxStoreKey(domain: "\u{301}", key: "\u{301}"),
        MuxStoreKey(domain: "a b", key: "\r\n\0"),
    ]

    @Test func `FL-09 a message encodes a change, byte for byte`() throws {
        var changes: [MuxShared.Change] = [.invalidated(.everything)]
        for key in Self.keys {
            changes += [.stored(key), .released(key), .invalidated(.entry(key)), .invalidated(.domain(key.domain))]
            changes.append(.invalidated(.tag(key.key ?? "")))
        }
        for change in changes {
            let message = try #require(Names.message(change, from: "here"))
            #expect(Names.change(message, for: "there") == change)
            // A machine receives no report of its own invalidations.
            if case .invalidated = change { #expect(Names.change(message, for: "here") == nil) }
        }
    }

    @Test(arguments: [
        "", " ", "here", "here ", "here x1:a", "here s", "here s5:a", "here s-1:a", "here s1:ab", "here iz", "here iaa",
    ])
    func `FL-09 a malformed message decodes as an unknown change`(text: String) {
        #expect(Names.change(ByteBuffer(string: text), for: "there") == .unknown)
    }

    @Test func `FL-09 the keys of a store have one hash tag for every prefix`() {
        for prefix in ["", "app", "{a}b", "}", "%7B", "a{"] {
            let names = Names(prefix: prefix)
            let keys = names.keys(MuxShared.Name(Self.keys[0], tags: ["{t}"])).map { String(buffer: $0) }
            for key in keys + [names.probe] {
                let tag = key.drop { $0 != "{" }.dropFirst().prefix { $0 != "}" }
                #expect(names.prefix == "{\(tag)}:" && !tag.isEmpty, "\(key)")
            }
        }
        #expect(Names(prefix: "{").prefix != Names(prefix: "%7B").prefix)
    }
}
