import Foundation
import MuxNetwork
import MuxTestSupport
import Testing

@Suite(.standard)
struct HTTPMultipartTests {
    private let form = HTTPMultipart(
        fields: ["title": "Summer ü", "tag": "a", "tag": "b", "empty": ""],
        files: [
            .init(
                name: "photo",
                fileName: "beach.jpg",
                contentType: .jpeg,
                data: Data([0xff, 0xd8, 13, 10, 0, 45, 45])
            ),
            .init(name: "nothing", fileName: "empty", data: Data()),
            .init(name: "photo", fileName: "é.txt", contentType: .utf8Text, data: Data("--\r\n--mux-\r\n".utf8)),
        ]
    )

    private func parts(_ form: HTTPMultipart) throws -> [MultipartParser.Part] {
        let (data, type) = try form.encoded()
        let boundary = try #require(type?.parameters["boundary"])
        return try #require(MultipartParser.parse(Array(data), boundary: boundary))
    }

    @Test func `H01 a reference parser recovers fields and then files byte for byte`() throws {
        let parts = try self.parts(self.form)

        #expect(parts.map { $0.parameter("name") } == ["title", "tag", "tag", "empty", "photo", "nothing", "photo"])
        #expect(parts.prefix(4).map { String(decoding: $0.body, as: UTF8.self) } == ["Summer ü", "a", "b", ""])
        #expect(parts.suffix(3).map { Data($0.body) } == self.form.files.map(\.data))
        #expect(parts.map { $0.parameter("filename") } == [nil, nil, nil, nil, "beach.jpg", "empty", "é.txt"])
        #expect(
            parts.map { $0.headers["content-type"] } == [
                nil, nil, nil, nil, "image/jpeg", "application/octet-stream", "text/plain; charset=utf-8",
            ]
        )
        #expect(parts.allSatisfy { $0.headers["content-disposition"]?.hasPrefix("form-data; name=\"") == true })
    }

    @Test func `H01 a form without parts consists of the closing delimiter`() throws {
        let (data, _) = try HTTPMultipart(boundary: "b").encoded()

        #expect(data == Data("--b--\r\n".utf8))
        #expect(try self.parts(HTTPMultipart()) == [])
    }

    @Test func `H02 the header and the body have the same boundary`() throws {
        let call = try HTTPClient().call(
            for: Ask {
                $0.method = .post
                $0.body = .multipart(self.form)
            }
        )

        let type = try #require(call.headers["Content-Type"].flatMap { HTTPMediaType(rawValue: $0) })
        let boundary = try #require(type.parameters["boundary"])
        let body = String(decoding: try #require(call.body?.data), as: UTF8.self)
        #expect(body.hasPrefix("--\(boundary)\r\n"))
        #expect(body.hasSuffix("\r\n--\(boundary)--\r\n"))
        #expect(body.components(separatedBy: "--\(boundary)").count == 9)
    }

    @Test func `H03 the Content-Type is set automatically`() throws {
        let call = try HTTPClient().call(
            for: Ask {
                $0.method = .post
                $0.body = .multipart(self.form)
            }
        )

        #expect(call.headers["Content-Type"]?.hasPrefix("multipart/form-data; boundary=mux-") == true)
    }

    @Test func `H04 a generated boundary is not in the data and is the same for the same data`() throws {
        let type = try #require(try self.form.encoded().contentType)
        let boundary = try #require(type.parameters["boundary"])
        #expect(try self.form.encoded().contentType == type)

        var other = self.form
        other.fields.append("more", "1")
        #expect(try other.encoded().contentType != type)
        #expect(boundary.utf8.count <= 70)
    }

    @Test func `H04 a custom boundary that occurs in the data is refused`() throws {
        var form = self.form
        form.boundary = "beach"
        #expect(throws: HTTPError.PreparationFailure.boundaryInData) { try form.encoded() }
        form.boundary = "Summer"
        #expect(throws: HTTPError.PreparationFailure.boundaryInData) { try form.encoded() }
        form.boundary = "mux-\r"
        #expect(throws: HTTPError.PreparationFailure.invalidBoundary) { try form.encoded() }
        for text in ["aab", "ab", "abc", "xxabaab", "aaaab", "bab"] {
            let file = HTTPMultipart.File(name: "f", fileName: "g", data: Data("-\(text)".utf8).dropFirst())
            #expect(throws: HTTPError.PreparationFailure.boundaryInData, "\(text)") {
                try HTTPMultipart(files: [file], boundary: "ab").encoded()
            }
        }
        let clean = HTTPMultipart.File(name: "f", fileName: "g", data: Data("aa_b_ba".utf8))
        #expect(throws: Never.self) { try HTTPMultipart(files: [clean], boundary: "ab").encoded() }
    }

    @Test(arguments: ["", "a b", "ü", "a\n", "a\"", "a;b", String(repeating: "b", count: 71)])
    func `H04 a boundary that RFC 2046 does not allow is refused`(boundary: String) {
        #expect(throws: HTTPError.PreparationFailure.invalidBoundary) {
            try HTTPMultipart(boundary: boundary).encoded()
        }
    }

    @Test func `H05 a name cannot inject a line`() throws {
        let name = "a\"b\r\n.txt"
        let parts = try self.parts(
            HTTPMultipart(
                fields: .init([.init(name, "1"), .init("x\"; filename=\"y", "2")]),
                files: [.init(name: name, fileName: "\(name)\0\u{7f}", data: Data("3".utf8))]
            )
        )

        try #require(parts.count == 3)
        #expect(parts[0].parameter("name") == "a%22b%0D%0A.txt")
        let line = parts[1].headers["content-disposition"]
        #expect(line == #"form-data; name="x%22; filename=%22y""#)
        #expect(parts[2].parameter("filename") == "a%22b%0D%0A.txt%00%7F")
        #expect(parts.allSatisfy { $0.headers["content-disposition"]?.filter { $0 == "\"" }.count ?? 0 <= 4 })
        #expect(parts.map { $0.headers.count } == [1, 1, 2])
    }

    @Test func `H05 a parameter of a media type cannot inject a line`() throws {
        let type = HTTPMediaType.plainText.with("x", "a\r\nEvil: 1")
        let parts = try self.parts(
            HTTPMultipart(files: [.init(name: "f", fileName: "g", contentType: type, data: Data())])
        )

        #expect(parts.first?.headers.keys.sorted() == ["content-disposition", "content-type"])
    }

    @Test func `H06 a form with a given boundary has the expected bytes`() throws {
        let form = HTTPMultipart(
            fields: ["a": "1"],
            files: [.init(name: "f", fileName: "n.txt", contentType: .plainText, data: Data("x".utf8))],
            boundary: "gold"
        )

        let (data, type) = try form.encoded()

        let expected = [
            "--gold", #"Content-Disposition: form-data; name="a""#, "", "1", "--gold",
            #"Content-Disposition: form-data; name="f"; filename="n.txt""#, "Content-Type: text/plain", "", "x",
            "--gold--",
            "",
        ]
        #expect(String(decoding: data, as: UTF8.self) == expected.joined(separator: "\r\n"))
        #expect(type?.rawValue == "multipart/form-data; boundary=gold")
    }
}
