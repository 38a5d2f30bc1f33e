public import Foundation
import MuxKit

/// The fields and files of a form: RFC 7578.
///
/// ```swift
/// let form = HTTPMultipart(
///     fields: ["title": "Summer"],
///     files: [.init(name: "photo", fileName: "beach.jpg", contentType: .jpeg, data: jpeg)]
/// )
/// var body: HTTPBody? { .multipart(form) }
/// ```
///
/// Fields precede files, each in order. Quotation marks and line breaks in names are percent-encoded as in
/// browsers. Other control characters are percent-encoded, too, so a name cannot inject a header field.
public struct HTTPMultipart: Sendable, Hashable {
    /// A file of a form.
    public struct File: Sendable, Hashable {
        /// The name of the form's field.
        public var name: String

        /// The file's name.
        public var fileName: String

        /// The media type of the data.
        public var contentType: HTTPMediaType

        /// The data, possibly empty.
        public var data: Data

        /// Makes a file.
        public init(name: String, fileName: String, contentType: HTTPMediaType = .octetStream, data: Data) {
            self.name = name
            self.fileName = fileName
            self.contentType = contentType
            self.data = data
        }
    }

    /// The fields in order; a name may occur several times.
    public var fields: HTTPQuery

    /// The files in order; a name may occur several times.
    public var files: [File]

    /// The separator of the parts; `nil` for a boundary that is derived from the content and does not occur
    /// in the content.
    public var boundary: String?

    /// Makes a form.
    ///
    /// - Parameters:
    ///   - fields: The fields.
    ///   - files: The files.
    ///   - boundary: The separator of the parts; `nil` for a boundary that is derived from the content, so
    ///     that equal content has an equal boundary.
    public init(fields: HTTPQuery = [], files: [File] = [], boundary: String? = nil) {
        self.fields = fields
        self.files = files
        self.boundary = boundary
    }

    /// Encodes the form.
    ///
    /// - Returns: The bytes, and the media type with the boundary.
    /// - Throws: ``HTTPError/PreparationFailure/invalidBoundary``,
    ///   ``HTTPError/PreparationFailure/boundaryInData``.
    /// - Complexity: O(*n*), where *n* is the size of the form.
    public func encoded() throws(HTTPError.PreparationFailure) -> (data: Data, contentType: HTTPMediaType?) {
        let parts = self.parts
        let boundary = try self.boundary(for: parts)
        let delimiter = Data("--\(boundary)".utf8)
        let lineEnd = Data("\r\n".utf8)
        var data = Data(capacity: parts.reduce(100) { $0 + $1.head.count + $1.data.count + delimiter.count + 4 })
        for part in parts { data += delimiter + lineEnd + part.head + part.data + lineEnd }
        data += delimiter + Data("--".utf8) + lineEnd
        return (data, HTTPMediaType.multipartFormData.with("boundary", boundary))
    }

    private var parts: [(head: Data, data: Data)] {
        let fields = self.fields.items.map { item in
            (Data("\(Self.disposition(item.name))\r\n\r\n".utf8), Data((item.value ?? "").utf8))
        }
        return fields
            + self.files.map { file in
                let name = "\(Self.disposition(file.name)); filename=\"\(Self.escaped(file.fileName))\""
                // A parameter of the media type may contain a line break or another control character.
                let type = file.contentType.rawValue
                let line = HTTPGrammar.isFieldValue(type) ? type : "application/octet-stream"
                return (Data("\(name)\r\nContent-Type: \(line)\r\n\r\n".utf8), file.data)
            }
    }

    private static func disposition(_ name: String) -> String {
        "Content-Disposition: form-data; name=\"\(self.escaped(name))\""
    }

    /// Percent-encodes quotation marks and line breaks (HTML standard, section 4.10.21.8), and all other
    /// control characters as well.
    private static func escaped(_ name: String) -> String {
        PercentEncoding.encode(name) { $0 != UInt8(ascii: "\"") && $0 >= 32 && $0 != 127 }
    }

    private func boundary(for parts: [(head: Data, data: Data)]) throws(HTTPError.PreparationFailure) -> String {
        let occurs = { (boundary: String) in
            let bytes = Data(boundary.utf8)
            return parts.contains { $0.head.range(of: bytes) != nil || $0.data.range(of: bytes) != nil }
        }
        if let boundary {
            guard Self.isBoundary(boundary) else { throw .invalidBoundary }
            guard !occurs(boundary) else { throw .boundaryInData }
            return boundary
        }
        var hash = FNV()
        for part in parts {
            hash.combine(part.head)
            hash.combine(part.data)
        }
        // Malicious data may contain a candidate.
        for _ in 0..<100 {
            hash.combine(word: 1)
            let first = hash.value
            hash.combine(word: 2)
            let candidate = "mux-\(Hex.text(of: first))\(Hex.text(of: hash.value))"
            if !occurs(candidate) { return candidate }
        }
        throw .boundaryInData
    }

    /// Whether `text` is a valid boundary without blanks (RFC 2046, section 5.1.1).
    private static func isBoundary(_ text: String) -> Bool {
        let marks = Set("'()+_,-./:=?".utf8)
        return (1...70).contains(text.utf8.count)
            && text.utf8.allSatisfy { HTTPGrammar.isAlphanumeric($0) || marks.contains($0) }
    }
}

extension HTTPMultipart: RedactedDescription {
    /// The numbers of fields and files.
    public var description: String { "\(self.fields.items.count) fields, \(self.files.count) files" }
}

extension HTTPMultipart.File: RedactedDescription {
    /// The media type and the size.
    public var description: String { "\(self.contentType.essence), \(self.data.count) bytes" }
}
