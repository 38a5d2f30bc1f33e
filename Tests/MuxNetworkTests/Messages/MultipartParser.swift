import Foundation

/// A reference parser of forms by RFC 2046, section 5.1.1, and RFC 7578, independent of the encoder.
struct MultipartParser {
    struct Part: Equatable {
        var headers: [String: String] = [:]
        var body: [UInt8] = []

        /// A parameter of `Content-Disposition`, as it was sent.
        func parameter(_ name: String) -> String? {
            guard let line = self.headers["content-disposition"] else { return nil }
            for piece in line.components(separatedBy: "; ").dropFirst() {
                let prefix = "\(name)=\""
                if piece.hasPrefix(prefix), piece.hasSuffix("\"") {
                    return String(piece.dropFirst(prefix.count).dropLast())
                }
            }
            return nil
        }
    }

    /// The parts; `nil` if the bytes are not a form with this boundary.
    static func parse(_ bytes: [UInt8], boundary: String) -> [Part]? {
        let delimiter = Array("--\(boundary)".utf8)
        var lines: [[UInt8]] = [[]]
        var index = 0
        // Only CRLF ends a line.
        while index < bytes.count {
            if bytes[index] == 13, index + 1 < bytes.count, bytes[index + 1] == 10 {
                lines.append([])
                index += 2
            } else {
                lines[lines.count - 1].append(bytes[index])
                index += 1
            }
        }
        var parts: [Part] = []
        var isInHead = false
        var bodyLines: [[UInt8]]?
        for (number, line) in lines.enumerated() {
            if line.starts(with: delimiter) {
                if let taken = bodyLines { parts[parts.count - 1].body = Array(taken.joined(separator: [13, 10])) }
                bodyLines = nil
                let rest = Array(line.dropFirst(delimiter.count))
                if rest == Array("--".utf8) {
                    // Only the CRLF of the closing delimiter may follow.
                    return number == lines.count - 2 && lines[number + 1].isEmpty && !isInHead ? parts : nil
                }
                guard rest.isEmpty else { return nil }
                parts.append(Part())
                isInHead = true
            } else if isInHead {
                if line.isEmpty {
                    isInHead = false
                    bodyLines = []
                } else {
                    let text = String(decoding: line, as: UTF8.self)
                    guard let colon = text.firstIndex(of: ":") else { return nil }
                    let value = text[text.index(after: colon)...].trimmingCharacters(in: .whitespaces)
                    parts[parts.count - 1].headers[text[..<colon].lowercased()] = value
                }
            } else if bodyLines != nil {
                bodyLines?.append(line)
            } else {
                return nil
            }
        }
        return nil
    }
}
