import Foundation
import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

/// SHA-256 against the examples of the National Institute of Standards and Technology.
@Suite(.standard)
struct SHA256Tests {
    /// FIPS 180-2, appendix B, and the long messages of the same standard.
    private static let examples: [(message: [UInt8], digest: String)] = [
        ([], "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        (Array("abc".utf8), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (
            Array("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq".utf8),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
        ),
        (
            Array(
                ("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                    + "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu").utf8
            ),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"
        ),
        ([0xbd], "68325720aabd7c82f30f554b313d0570c95accbb7dc4b5aae11204c08ffe732b"),
        ([0xc9, 0x8c, 0x8e, 0x55], "7abc22c0ae5af26ce93dbb94433a0e0b2e119d014f8e7f65bd56c61ccccd9504"),
        ([UInt8](repeating: 0, count: 55), "02779466cdec163811d078815c633f21901413081449002f24aa3e80f0b88ef7"),
        ([UInt8](repeating: 0, count: 56), "d4817aa5497628e7c77e6b606107042bbba3130888c5f47a375e6179be789fbb"),
        ([UInt8](repeating: 0, count: 57), "65a16cb7861335d5ace3c60718b5052e44660726da4cd13bb745381b235a1785"),
        ([UInt8](repeating: 0, count: 64), "f5a5fd42d16a20302798ef6ed309979b43003d2320d9f0e8ea9831a92759fb4b"),
        ([UInt8](repeating: 0, count: 1_000), "541b3e9daa09b20bf85fa273e5cbd3e80185aa4ec298e765db87742b70138a53"),
        ([UInt8](repeating: 0x41, count: 1_000), "c2e686823489ced2017f6059b8b239318b6364f6dcd835d0a519105a1eadd6e4"),
        ([UInt8](repeating: 0x55, count: 1_005), "f4d62ddec0f3dd90ea1380fa16a5ff8dc4c54b21740650f24afc4120903552b0"),
        (
            [UInt8](repeating: 0x61, count: 1_000_000),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"
        ),
    ]

    @Test(arguments: Self.examples.indices) func `O02 SHA-256 matches the examples of the standard`(index: Int) {
        let (message, digest) = Self.examples[index]

        #expect(SHA256.text(SHA256.hash(message)) == digest)
        #expect(SHA256.text(SHA256.hash(Data(message))) == digest)
        var portable = PortableSHA256()
        message.withUnsafeBytes { portable.update($0) }
        #expect(SHA256.text(portable.finalize()) == digest)
    }

    @Test func `O02 SHA-256 does not depend on the division of a message into parts`() {
        for seed in 0..<200 as Range<UInt64> {
            var random = SplitMix64(state: seed)
            let message = (0..<Int.random(in: 0...700, using: &random)).map { _ in
                UInt8.random(in: .min ... .max, using: &random)
            }
            var hash = SHA256()
            var rest = message[...]
            while !rest.isEmpty {
                let part = rest.prefix(Int.random(in: 0...130, using: &random))
                hash.update(part)
                rest = rest.dropFirst(part.count)
            }

            #expect(hash.finalize() == SHA256.hash(message), "seed \(seed)")
        }
    }

    @Test func `O02 SHA-256 of a copy is independent of the original`() {
        var hash = SHA256()
        hash.update(Data("ab".utf8))
        var copy = hash
        copy.update(Data("x".utf8))

        hash.update(Data("c".utf8))

        #expect(hash.finalize() == SHA256.hash("abc"))
        #expect(copy.finalize() == SHA256.hash("abx"))
    }
}
