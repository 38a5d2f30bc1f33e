import Foundation
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct EncodingTests {
    @Test func `K06 base64url matches the example of RFC 7515 and refuses invalid text`() throws {
        // RFC 7515, appendix C.
        let bytes = Data([3, 236, 255, 224, 193])
        #expect(Base64URL.encode(bytes) == "A-z_4ME")
        #expect(Base64URL.decode("A-z_4ME") == bytes)
        #expect(Base64URL.decode("") == Data())
        for text in ["A", "A-z_4", "AA==", "A+z/", "A z_", "AAAA\n", "ÄÄÄÄ"] {
            #expect(Base64URL.decode(text) == nil, "\(text)")
        }
    }

    @Test func `K06 base64url restores all encoded bytes`() {
        var random = SplitMix64(state: 7)
        for count in 0..<300 {
            let bytes = Data((0..<count).map { _ in UInt8.random(in: 0...255, using: &random) })
            #expect(Base64URL.decode(Base64URL.encode(bytes)) == bytes)
        }
    }

    @Test func `G09 percent-encoding is upper case and keeps unreserved characters`() {
        #expect(PercentEncoding.encode("azAZ09-._~") == "azAZ09-._~")
        #expect(PercentEncoding.encode(" /ü%+") == "%20%2F%C3%BC%25%2B")
        #expect(PercentEncoding.decode("%20%2f%C3%bC%25%2B+") == " /ü%++")
        #expect(PercentEncoding.decode("a+b", plusIsBlank: true) == "a b")
        #expect(PercentEncoding.decode("%", plusIsBlank: false) == "%")
        #expect(PercentEncoding.decode("%4%zz%4") == "%4%zz%4")
        #expect(PercentEncoding.decode("%41") == "A")
    }
}
