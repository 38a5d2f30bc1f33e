import Foundation
import MuxNetwork
import MuxTestSupport
import Testing

@Suite(.standard)
struct VocabularyTests {
    @Test func `G01 Basic credentials match the example of RFC 7617 and Bearer has a single space`() {
        let basic = HTTPCredentials.basic(user: "Aladdin", password: "open sesame")

        #expect(basic?.headerValue == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")
        #expect(HTTPCredentials.bearer("x").headerValue == "Bearer x")
        // RFC 7617, section 2.1: in UTF-8.
        #expect(HTTPCredentials.basic(user: "test", password: "123£")?.headerValue == "Basic dGVzdDoxMjPCow==")
    }

    @Test func `G01 Basic credentials refuse a colon in the user name and permit a colon in the password`() {
        #expect(HTTPCredentials.basic(user: "a:b", password: "c") == nil)
        #expect(HTTPCredentials.basic(user: "a", password: "b:c")?.value == Data("a:b:c".utf8).base64EncodedString())
    }

    @Test func `G01 authentication schemes are an open set and compare without regard to case`() throws {
        let hawk = try #require(HTTPCredentials.Scheme(rawValue: "Hawk"))

        #expect(HTTPCredentials(scheme: hawk, value: #"id="1""#).headerValue == #"Hawk id="1""#)
        #expect(HTTPCredentials.Scheme(rawValue: "bearer") == .bearer)
        #expect(Set([HTTPCredentials.Scheme(rawValue: "BASIC"), .basic]).count == 1)
        #expect(HTTPCredentials.Scheme(rawValue: "two words") == nil)
        let known: [HTTPCredentials.Scheme] = [.basic, .bearer, .digest, .dpop, .negotiate]
        #expect(known.map(\.rawValue) == ["Basic", "Bearer", "Digest", "DPoP", "Negotiate"])
    }

    @Test func `G01 descriptions contain no credentials`() {
        let credentials = HTTPCredentials.bearer("SECRET")
        var dumped = ""
        dump(credentials, to: &dumped)

        #expect(!"\(credentials) \(String(reflecting: credentials)) \(dumped)".contains("SECRET"))
    }

    @Test func `G02 content codings and form types have their registered names`() {
        let codings: [HTTPMediaType.ContentCoding] = [.gzip, .deflate, .compress, .brotli, .zstandard, .identity]

        #expect(codings.map(\.rawValue) == ["gzip", "deflate", "compress", "br", "zstd", "identity"])
        #expect(HTTPMediaType.ContentCoding(rawValue: "GZip") == .gzip)
        #expect(HTTPMediaType.ContentCoding(rawValue: "") == nil)
        #expect(HTTPMediaType.formURLEncoded.rawValue == "application/x-www-form-urlencoded")
        #expect(HTTPMediaType.multipartFormData.rawValue == "multipart/form-data")
    }

    @Test func `G04 methods are safe and idempotent as in RFC 9110`() {
        let table: [(HTTPMethod, name: String, isSafe: Bool, isIdempotent: Bool, allowsBody: Bool)] = [
            (.get, "GET", true, true, false), (.head, "HEAD", true, true, false),
            (.options, "OPTIONS", true, true, true), (.trace, "TRACE", true, true, false),
            (.put, "PUT", false, true, true), (.delete, "DELETE", false, true, true),
            (.post, "POST", false, false, true), (.patch, "PATCH", false, false, true),
            (.connect, "CONNECT", false, false, false), ("PURGE", "PURGE", false, false, true),
        ]
        for row in table {
            #expect(row.0.rawValue == row.name)
            #expect(row.0.isSafe == row.isSafe, "\(row.name)")
            #expect(row.0.isIdempotent == row.isIdempotent, "\(row.name)")
            #expect(row.0.allowsBody == row.allowsBody, "\(row.name)")
        }
    }

    @Test(arguments: ["", "G T", "GET\r\n", "GÉT", "(", "a/b"])
    func `G04 a text that is not a token is neither a method nor a header name`(text: String) {
        #expect(HTTPMethod(rawValue: text) == nil)
        #expect(HTTPHeaders.Name(rawValue: text) == nil)
    }

    @Test func `G04 methods are case-sensitive`() {
        #expect(HTTPMethod(rawValue: "get") != .get)
        #expect(HTTPMethod(rawValue: "M-SEARCH")?.rawValue == "M-SEARCH")
    }

    @Test func `G06 a URL scheme is http, https or another valid scheme name`() {
        #expect([HTTPHost.Scheme.http, .https].map(\.rawValue) == ["http", "https"])
        #expect(
            [HTTPHost.Scheme.http, .https, HTTPHost.Scheme(rawValue: "ws")].map { $0?.defaultPort } == [80, 443, nil]
        )
        #expect(HTTPHost.Scheme(rawValue: "HTTPS") == .https)
        #expect(HTTPHost.Scheme(rawValue: "\u{212a}ey") == nil, "the Kelvin sign, whose lower case is k")
        #expect(HTTPHost.Scheme(rawValue: "coap+tcp")?.rawValue == "coap+tcp")
        for text in ["", "1a", "a b", "http:", "ä"] { #expect(HTTPHost.Scheme(rawValue: text) == nil, "\(text)") }
    }

    @Test(
        arguments: [
            (599, .serverError), (299, .success), (100, .informational), (199, .informational), (200, .success),
            (300, .redirection), (399, .redirection), (400, .clientError), (499, .clientError), (500, .serverError),
            (0, .unknown), (-1, .unknown), (99, .unknown), (600, .unknown), (Int.max, .unknown), (Int.min, .unknown),
        ] as [(Int, HTTPStatus.Kind)]
    )
    func `G07 every number is a status with a class`(code: Int, kind: HTTPStatus.Kind) {
        #expect(HTTPStatus(code).code == code)
        #expect(HTTPStatus(code).kind == kind)
    }

    @Test func `G07 known statuses have a phrase and other statuses have no phrase`() {
        #expect(HTTPStatus.notFound.phrase == "Not Found")
        #expect(HTTPStatus(418).phrase == nil)
        #expect(HTTPStatus(rawValue: 503).description == "503 Service Unavailable")
        #expect(HTTPStatus(299).description == "299")
        #expect(HTTPStatus.ok == 200 && HTTPStatus.imUsed.code == 226 && HTTPStatus.ok < .created)
        for code in 100...599 {
            if let phrase = HTTPStatus(code).phrase { #expect(!phrase.isEmpty && phrase.first?.isUppercase == true) }
        }
    }

    @Test func `G07 the status constants have the registered codes`() {
        let table: [(HTTPStatus, Int)] = [
            (.continue, 100), (.ok, 200), (.created, 201), (.accepted, 202), (.noContent, 204), (.partialContent, 206),
            (.movedPermanently, 301), (.found, 302), (.seeOther, 303), (.notModified, 304), (.temporaryRedirect, 307),
            (.permanentRedirect, 308), (.badRequest, 400), (.unauthorized, 401), (.forbidden, 403), (.notFound, 404),
            (.conflict, 409), (.gone, 410), (.preconditionFailed, 412), (.rangeNotSatisfiable, 416),
            (.unprocessableContent, 422), (.tooManyRequests, 429), (.internalServerError, 500), (.badGateway, 502),
            (.serviceUnavailable, 503), (.gatewayTimeout, 504),
        ]
        for (status, code) in table { #expect(status.code == code) }
    }
}
