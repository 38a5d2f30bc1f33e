import Foundation

/// The lines of code of the package, to be searched for what should not be there.
enum SourceLines {
    struct Line: Sendable {
        let file: String
        let number: Int
        /// Without comments, and without what stands between quotation marks.
        let code: String
        var place: String { "\(self.file):\(self.number)" }
    }

    /// All Swift files under `Sources`.
    static let sources = Self.lines(under: "Sources")
    /// All Swift files under `Tests`.
    static let tests = Self.lines(under: "Tests")

    /// The folder of the package.
    static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent()

    private static func lines(under folder: String) -> [Line] {
        let root = self.root.appending(component: folder)
        let files = FileManager.default.enumerator(atPath: root.path)?.compactMap { $0 as? String } ?? []
        return files.filter { $0.hasSuffix(".swift") }.sorted().flatMap { file in
            let text = (try? String(contentsOf: root.appending(path: file), encoding: .utf8)) ?? ""
            return text.split(separator: "\n", omittingEmptySubsequences: false).enumerated().map { number, line in
                Line(file: file, number: number + 1, code: Self.code(line))
            }
        }
    }

    private static func code(_ line: Substring) -> String {
        var code = ""
        var isText = false
        var last: Character?
        for character in line {
            if character == "\"", last != "\\" { isText.toggle() }
            if !isText, character == "/", last == "/" {
                code.removeLast()
                break
            }
            if !isText || character == "\"" { code.append(character) }
            last = character
        }
        return code
    }
}
