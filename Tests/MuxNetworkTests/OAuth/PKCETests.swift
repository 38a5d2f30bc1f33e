import Foundation
import MuxNetwork
import MuxTestSupport
import Testing

@Suite(.standard)
struct PKCETests {
    @Test func `O02 the challenge matches RFC 7636 appendix B`() throws {
        let pkce = try #require(PKCE(verifier: "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"))

        #expect(pkce.challenge == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM")
        #expect(PKCE.method == "S256")
    }

    @Test func `O02 a verifier is 43 to 128 unreserved characters`() {
        let letter = String(repeating: "a", count: 42)
        #expect(PKCE(verifier: letter) == nil)
        #expect(PKCE(verifier: letter + "~") != nil)
        #expect(PKCE(verifier: String(repeating: "-._~", count: 32)) != nil)
        #expect(PKCE(verifier: String(repeating: "a", count: 129)) == nil)
        for wrong in ["+", "/", "=", " ", "é", "%", "\u{0}"] { #expect(PKCE(verifier: letter + letter + wrong) == nil) }
    }

    @Test func `O02 every verifier is new and has 256 bits`() {
        let secrets = (0..<200).map { _ in PKCE() }

        #expect(Set(secrets).count == 200)
        #expect(secrets.allSatisfy { PKCE(verifier: $0.verifier) == $0 && $0.verifier.utf8.count == 43 })
    }

    @Test func `O02 the bytes of RFC 7636 appendix B become its verifier`() {
        let bytes: [UInt8] = [
            116, 24, 223, 180, 151, 153, 224, 37, 79, 250, 96, 125, 216, 173, 187, 186, 22, 212, 37, 77, 105, 214, 191,
            240, 91, 88, 5, 88, 83, 132, 141, 121,
        ]
        #expect(Base64URL.encode(.init(bytes)) == "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")
    }

    @Test func `O02 descriptions do not contain the verifier`() {
        let pkce = PKCE()
        #expect(!"\(pkce) \(String(reflecting: pkce))".contains(pkce.verifier))
        var text = ""
        dump(pkce, to: &text)
        #expect(!text.contains(pkce.verifier))
    }
}
