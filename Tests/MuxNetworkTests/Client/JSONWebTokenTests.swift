import Foundation
import MuxNetwork
import MuxTestSupport
import Testing

@Suite(.standard)
struct JSONWebTokenTests {
    private func token(_ claims: String) throws(JSONWebToken.ParsingError) -> JSONWebToken {
        try JSONWebToken("e30.\(Base64URL.encode(Data(claims.utf8))).c2ln")
    }

    @Test func `K06 the expiry of the example of RFC 7519 is parsed`() throws {
        // RFC 7519, section 3.1. The signature is not verified.
        let text =
            "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9"
            + ".eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"

        #expect(
            try JSONWebToken("\(text).dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk").expiry?.timeIntervalSince1970
                == 1_300_819_380
        )
        #expect(try JSONWebToken("\(text).").headers[.authorization] == "Bearer \(text).")
    }

    @Test(
        arguments: [
            (#"{"exp":5}"#, 5), (#"{"exp":5.5}"#, 5.5), ("{}", nil), (#"{"exp":-1}"#, -1), (#"{"exp":1e300}"#, 1e300),
            (#"{"exp":0,"sub":"x","aud":["a",1,null]}"#, 0), (#"{"exp":5,"x":1e400,"y":[{"z":-1e400}]}"#, 5),
        ] as [(String, Double?)]
    )
    func `K06 the expiry is a number of seconds or absent`(claims: String, seconds: Double?) throws {
        #expect(try self.token(claims).expiry?.timeIntervalSince1970 == seconds)
    }

    @Test(
        arguments: [
            ("", .notThreeParts), ("a.b", .notThreeParts), ("a.b.c.d", .notThreeParts), ("e30.e30=.x", .notBase64URL),
            ("e30..e30", .notBase64URL), (".e30.e30", .notBase64URL), ("e30.a.e30", .notBase64URL),
            ("e30.é.e30", .notBase64URL),
            ("e30.e30.!", .notBase64URL), ("e30.bm8.e30", .noClaims), ("e30.W10.e30", .noClaims),
            ("e30.eyJleHAiOiI1In0.e30", .invalidExpiry), ("e30.eyJleHAiOm51bGx9.e30", .invalidExpiry),
            ("e30.eyJleHAiOnRydWV9.e30", .invalidExpiry), ("e30.eyJleHAiOjFlNDAwfQ.e30", .invalidExpiry),
        ] as [(String, JSONWebToken.ParsingError)]
    )
    func `K06 a malformed token is an error`(text: String, reason: JSONWebToken.ParsingError) {
        #expect(throws: reason) { try JSONWebToken(text) }
        #expect(reason.localizedDescription == reason.errorDescription)
    }

    @Test func `K06 a token is encoded as its text, and descriptions do not contain the text`() throws {
        let token = try self.token(#"{"exp":5}"#)
        let data = try JSONEncoder().encode([token])

        #expect(try JSONDecoder().decode([String].self, from: data) == [token.text])
        #expect(try JSONDecoder().decode([JSONWebToken].self, from: data) == [token])
        #expect(throws: (any Error).self) { try JSONDecoder().decode([JSONWebToken].self, from: Data(#"["x"]"#.utf8)) }
        var dumped = ""
        dump(token, to: &dumped)
        #expect(!"\(token) \(String(reflecting: token)) \(dumped)".contains("e30"))
    }
}
