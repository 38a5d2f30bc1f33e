import Foundation

/// The lines of code of the package, for searches for forbidden code.
enum SourceLines {
    struct Line: Sendable {
        let file: String
        /// The module and its folder; `nil` outside of folders.
        let folder: (module: String, folder: String)?
        let number: Int
        /// Without comments and without the content of string literals.
        let code: String
        var place: String { "\(self.file):\(self.number)" }

        /// Whether a text occurs in the code.
        func mentions(_ text: String) -> Bool {
            // Many rules search each line, and `contains` takes ten times as long.
            self.code.withCString { code in text.withCString { text in unsafe strstr(code, text) != nil } }
        }

        /// Identifiers and keywords, in their order.
        var words: [String] {
            // Bytes, because a test takes several times as long with characters.
            self.code.utf8.split { !($0 == 95 || 48...57 ~= $0 || 65...90 ~= $0 || 97...122 ~= $0) }
                .map { String(Substring($0)) }
        }

        /// The top-level type or function that the line declares, if visible outside of its file.
        var declaredName: String? {
            guard let first = self.code.utf8.first, first != 32, first != 125 else { return nil }
            let words = self.words
            guard let place = words.firstIndex(where: Self.kinds.contains), place + 1 < words.count else { return nil }
            let isVisible = words[..<place].allSatisfy { !Self.elsewhere.contains($0) }
            return isVisible ? words[place + 1] : nil
        }

        private static let kinds: Set = ["struct", "enum", "class", "actor", "protocol", "typealias", "func"]
        private static let elsewhere: Set = ["private", "fileprivate", "extension", "import", "let", "var"]
    }

    /// All Swift files under `Sources`.
    static let sources = Self.lines(under: "Sources")
    /// All Swift files under `Tests`.
    static let tests = Self.lines(under: "Tests")
    /// All Swift files under `Demo`, with the nested packages.
    static let demo = Self.lines(under: "Demo")

    /// The folder of the package.
    static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent()

    private static func lines(under folder: String) -> [Line] {
        let root = self.root.appending(component: folder)
        let files = FileManager.default.enumerator(atPath: root.path)?.compactMap { $0 as? String } ?? []
        return files.filter { $0.hasSuffix(".swift") && !$0.contains("/.") }.sorted().flatMap { file in
            let parts = file.split(separator: "/").map(String.init)
            let folder = parts.count > 2 ? (parts[0], parts[1]) : nil
            let text = (try? String(contentsOf: root.appending(path: file), encoding: .utf8)) ?? ""
            return text.split(separator: "\n", omittingEmptySubsequences: false).enumerated().map { number, line in
                Line(file: file, folder: folder, number: number + 1, code: Self.code(line))
            }
        }
    }

    /// The lines of each file, with the conditions of the `#if` blocks around each line.
    static func conditions(of lines: [Line]) -> [(line: Line, conditions: [String])] {
        var (file, stack) = ("", [String]())
        return lines.map { line in
            if line.file != file { (file, stack) = (line.file, []) }
            let code = line.code.trimmingCharacters(in: .whitespaces)
            if code.hasPrefix("#if ") {
                stack.append(String(code.dropFirst(4)))
            } else if code.hasPrefix("#else"), !stack.isEmpty {
                stack[stack.count - 1] = code
            } else if code == "#endif" {
                _ = stack.popLast()
            }
            return (line, stack)
        }
    }

    private static func code(_ line: Substring) -> String {
        let (quote, backslash, slash) = (UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"))
        var code: [UInt8] = []
        var isText = false
        var last: UInt8?
        for byte in line.utf8 {
            if byte == quote, last != backslash { isText.toggle() }
            if !isText, byte == slash, last == slash {
                code.removeLast()
                break
            }
            if !isText || byte == quote { code.append(byte) }
            last = byte
        }
        return String(decoding: code, as: UTF8.self)
    }
}
