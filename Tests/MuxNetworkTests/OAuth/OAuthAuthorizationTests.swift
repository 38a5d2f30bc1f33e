import Foundation
import MuxNetwork
import MuxTestSupport
import Testing

@Suite(.standard)
struct OAuthAuthorizationTests {
    private let client = OAuthClient(id: "s6 Bh")

    private func authorization(
        _ endpoint: String = "https://server.example.com/authorize",
        parameters: [String: String] = [:]
    ) throws -> OAuthAuthorization {
        let url = try #require(URL(string: endpoint))
        return try #require(
            OAuthAuthorization(
                endpoint: url,
                client: self.client,
                redirectURI: "https://client.example.com/cb",
                scopes: ["a", "b&c"],
                parameters: parameters
            )
        )
    }

    private func items(_ url: URL) -> [String: String] {
        let items = URLComponents(url: url, resolvingAgainstBaseURL: false)?.queryItems ?? []
        return Dictionary(items.map { ($0.name, $0.value ?? "") }) { "\($0)|\($1)" }
    }

    @Test func `O01 the authorization URL contains all parameters`() throws {
        let authorization = try self.authorization(parameters: ["prompt": "login", "state": "mine", "client_id": "x"])

        #expect(
            self.items(authorization.url) == [
                "response_type": "code", "client_id": "s6 Bh", "redirect_uri": "https://client.example.com/cb",
                "scope": "a b&c", "state": authorization.state, "code_challenge": authorization.pkce.challenge,
                "code_challenge_method": "S256", "prompt": "login",
            ]
        )
        #expect(authorization.state.utf8.count == 43 && authorization.state != authorization.pkce.verifier)
        #expect(!authorization.url.absoluteString.contains(authorization.pkce.verifier))
    }

    @Test func `O01 an endpoint keeps its query, and an endpoint with a fragment is refused`() throws {
        let authorization = try self.authorization("https://server.example.com/authorize?tenant=7")
        #expect(self.items(authorization.url)["tenant"] == "7")

        let url = try #require(URL(string: "https://server.example.com/authorize#x"))
        #expect(OAuthAuthorization(endpoint: url, client: self.client, redirectURI: "x") == nil)
    }

    private func code(_ query: String, base: String = "https://client.example.com/cb") throws -> String {
        let authorization = try self.authorization()
        let text = base + query.replacingOccurrences(of: "STATE", with: authorization.state)
        return try authorization.code(from: #require(URL(string: text)))
    }

    @Test func `O01 a redirection contains a code`() throws {
        #expect(try self.code("?code=Splx%2BlO+B&state=STATE") == "Splx+lO B")
        #expect(try self.code("?state=STATE&x&code=a&iss=y#f") == "a")
    }

    @Test(
        arguments: [
            ("", .missingState), ("?", .missingState), ("?code=a", .missingState), ("?code=a&state=", .otherState),
            ("?code=a&state=x", .otherState), ("?state=STATE", .missingCode), ("?code=&state=STATE", .missingCode),
            ("?code=a&code=b&state=STATE", .repeatedParameter),
            ("?code=a&state=STATE&state=STATE", .repeatedParameter), ("?error=%22&state=STATE", .malformedError),
            ("?error=access_denied&state=x", .otherState), ("#code=a&state=STATE", .missingState),
        ] as [(String, OAuthError.RedirectFault)]
    )
    func `O01 a forged redirection is refused and yields no code`(query: String, fault: OAuthError.RedirectFault) {
        #expect { try self.code(query) } throws: {
            guard case .foreignRedirect(let found)? = $0 as? OAuthError else { return false }
            return found == fault
        }
    }

    @Test(arguments: [
        "https://evil.example.com/cb", "https://client.example.com/cbx", "https://client.example.com/cb/x",
        "https://client.example.com/CB", "https://client.example.com.evil.org/cb", "http://client.example.com/cb",
        "https://client.example.com:8443/cb", "https://client.example.com/", "app:/cb",
    ])
    func `O01 a redirection to another URL yields no code`(place: String) throws {
        #expect { try self.code("?code=a&state=STATE", base: place) } throws: {
            guard case .foreignRedirect(.address)? = $0 as? OAuthError else { return false }
            return true
        }
    }

    @Test func `O01 an equivalent spelling of the redirect URI is accepted`() throws {
        #expect(try self.code("?code=a&state=STATE", base: "HTTPS://Client.Example.com:443/cb") == "a")
        let endpoint = try #require(URL(string: "https://server.example.com/authorize"))
        for (home, callback) in [("https://a.com", "https://a.com/"), ("app:/in", "APP:/in"), ("a.b:in", "a.b:in")] {
            let authorization = try #require(
                OAuthAuthorization(
                    endpoint: endpoint,
                    client: self.client,
                    redirectURI: home
                )
            )
            let url = try #require(URL(string: "\(callback)?code=a&state=\(authorization.state)"))
            #expect(try authorization.code(from: url) == "a", "\(home)")
        }
    }

    @Test func `O01 the denial of a user is a refusal`() throws {
        #expect { try self.code("?error=access_denied&error_description=not+now&state=STATE") } throws: {
            guard let error = $0 as? OAuthError, case .refused(let refusal) = error else { return false }
            return refusal == OAuthError.Refusal(.accessDenied, explanation: "not now") && !error.isBadDependency
        }
    }

    @Test func `O01 descriptions do not contain the state and the verifier`() throws {
        let authorization = try self.authorization()
        var text = "\(authorization)"
        dump(authorization, to: &text)
        #expect(!text.contains(authorization.state) && !text.contains(authorization.pkce.verifier))
    }
}
