import Foundation
import MuxNetwork
import MuxTestSupport
import Testing

@Suite(.standard)
struct HTTPHeadersTests {
    @Test func `G03 a field is found and replaced regardless of the case of its name`() {
        var headers = HTTPHeaders()

        headers["authorization"] = "a"
        headers["AUTHORIZATION"] = "b"

        #expect(headers[.authorization] == "b")
        #expect(headers.fields.count == 1)
        headers["aUthorization"] = nil
        #expect(headers.isEmpty)
    }

    @Test func `G03 names compare without regard to case and keep their spelling`() throws {
        let name = try #require(HTTPHeaders.Name(rawValue: "x-API-key"))

        #expect(name == "X-Api-Key")
        #expect(Set([name, "X-Api-Key"]).count == 1)
        #expect(name.rawValue == "x-API-key" && name.canonical == "x-api-key" && "\(name)" == "x-API-key")
    }

    @Test func `G03 lines with the same name are joined, and replaced together at the first line's place`() {
        var headers: HTTPHeaders = ["A": "1", "b": "2", "a": "3"]

        #expect(headers["a"] == "1, 3")
        #expect(headers.values(of: "A") == ["1", "3"])
        headers.append("4", for: "B")
        #expect(headers["b"] == "2, 4")
        headers["a"] = "5"
        #expect(headers.fields.map(\.value) == ["5", "2", "4"])
        #expect((["Cookie": "a=1", "cookie": "b=2"] as HTTPHeaders)[.cookie] == "a=1; b=2")
    }

    @Test func `G03 merging replaces all lines of a name and keeps the others`() {
        let merged = (["a": "1", "A": "2", "b": "3"] as HTTPHeaders).merging(["A": "4", "c": "5", "a": "6"])

        #expect(merged.fields.map { $0.name.canonical + $0.value } == ["b3", "a4", "c5", "a6"])
        #expect((["A", "b", "c"] as [HTTPHeaders.Name]).map { merged[$0] } == ["4, 6", "3", "5"])
    }

    @Test func `G03 a server's field with an invalid name is left out`() {
        #expect(HTTPHeaders(["b": "2", "a": "1", "": "3", "c d": "4"]).fields.map(\.value) == ["1", "2"])
    }

    @Test func `G03 descriptions contain no values`() {
        let headers: HTTPHeaders = [.authorization: "SECRET", .accept: "SECRET"]
        var dumped = ""
        dump((headers, headers.fields), to: &dumped)

        #expect("\(headers)" == "[Authorization, Accept]")
        #expect(!"\(String(reflecting: headers)) \(headers.fields) \(dumped)".contains("SECRET"))
    }

    @Test(arguments: [
        ("application/json; charset=utf-8", "application/json", ["charset": "utf-8"]),
        ("Application/JSON ;Charset=\"utf-8\"", "application/json", ["charset": "utf-8"]),
        (#"multipart/form-data; boundary="a \"b\\c;d""#, "multipart/form-data", ["boundary": #"a "b\c;d"#]),
        ("text/html;;charset=x;", "text/html", ["charset": "x"]),
        ("text/plain\t;\ta=1 ; b=2 ", "text/plain", ["a": "1", "b": "2"]),
        ("application/vnd.api+json", "application/vnd.api+json", [:]), ("*/*", "*/*", [:]),
    ])
    func `G05 a media type with its parameters is read and written`(
        text: String,
        essence: String,
        parameters: [String: String]
    ) throws {
        let type = try #require(HTTPMediaType(rawValue: text))

        #expect(type.essence == essence)
        #expect(type.parameters == parameters)
        #expect(HTTPMediaType(rawValue: type.rawValue) == type)
    }

    @Test(arguments: [
        "", "json", "a/", "/b", "a/b/c", "a b/c", "a/b; charset", "a/b; =x", "a/b; a=\"", "a/b; a=\"\\", "a/b; a=",
        "a/b; a=1; A=2", "a/b; a=\"x\"y", "a/b; ä=1",
    ])
    func `G05 an invalid media type is refused`(text: String) {
        #expect(HTTPMediaType(rawValue: text) == nil)
    }

    @Test func `G05 media types are written exactly`() {
        #expect(HTTPMediaType.json.rawValue == "application/json")
        #expect(HTTPMediaType.utf8Text.rawValue == "text/plain; charset=utf-8")
        #expect(HTTPMediaType.json.with("Charset", "utf-8").rawValue == "application/json; charset=utf-8")
        #expect(HTTPMediaType.json.with("b", "x y").with("a", "1").rawValue == #"application/json; a=1; b="x y""#)
        #expect(HTTPMediaType.json.with("not a token", "1") == .json)
        #expect(HTTPMediaType.problemJSON.isJSON && HTTPMediaType.json.isJSON && !HTTPMediaType.html.isJSON)
    }
}
