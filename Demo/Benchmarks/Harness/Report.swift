import Foundation

/// Prints rows as a table of text, a table of Markdown, or JSON.
struct Report: Sendable {
    enum Format: Sendable {
        case text
        case markdown
        case json
    }

    let format: Format

    func begin() {
        if self.format == .markdown {
            print("| group | what | figure | limit | instead | goal | verdict |")
            print("| --- | --- | --- | --- | --- | --- | --- |")
        }
        guard self.format == .text else { return }
        #if DEBUG
        print("This is a debug build; for meaningful figures: swift run -c release benchmarks\n")
        #endif
        print("limit: the cheapest possible code; instead: a typical hand-written alternative")
    }

    func show(_ title: String, _ rows: [Row]) {
        if self.format == .markdown { for row in rows { print(self.markdown(row)) } }
        guard self.format == .text else { return }
        print("\n\(title)")
        for row in rows {
            var line =
                "  " + Text.left(row.name, 44) + Text.right(row.figure.map { Text.figure($0, row.unit) } ?? "-", 10)
            line += "  " + Text.left(row.goal, 26) + " " + Text.left(row.verdict.rawValue, 7)
            if let limit = row.limit {
                line += "  limit \(Text.figure(limit.value, row.unit)) (\(Text.number(limit.ratio)) ×): \(limit.name)"
            }
            if let instead = row.instead {
                line += row.limit == nil ? "  " : "; "
                line +=
                    "instead \(Text.figure(instead.value, row.unit)) (\(Text.number(instead.ratio)) ×): \(instead.name)"
            }
            print(line)
        }
    }

    private func markdown(_ row: Row) -> String {
        func text(_ reference: Row.Reference?) -> String {
            reference.map { "\(Text.figure($0.value, row.unit)) (\(Text.number($0.ratio)) ×)" } ?? ""
        }
        let figure = row.figure.map { Text.figure($0, row.unit) } ?? ""
        let cells = [row.group, row.name, figure, text(row.limit), text(row.instead), row.goal, row.verdict.rawValue]
        return "| " + cells.joined(separator: " | ") + " |"
    }

    func end(_ rows: [Row]) throws {
        switch self.format {
        case .markdown: break
        case .json:
            let encoder = JSONEncoder()
            encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
            print(String(decoding: try encoder.encode(rows), as: UTF8.self))
        case .text:
            let missed = rows.filter { $0.verdict == .missed }
            print("\n\(rows.count { $0.verdict == .met }) goals met, \(missed.count) missed")
            for row in missed { print("  missed: \(row.group), \(row.name)") }
        }
    }
}

/// Formats the numbers of the table.
enum Text {
    static func left(_ text: String, _ width: Int) -> String {
        text + String(repeating: " ", count: max(0, width - text.count))
    }

    static func right(_ text: String, _ width: Int) -> String {
        String(repeating: " ", count: max(0, width - text.count)) + text
    }

    /// About three significant digits.
    static func number(_ number: Double) -> String {
        let text = String(format: abs(number) < 10 ? "%.2f" : abs(number) < 100 ? "%.1f" : "%.0f", number)
        guard text.contains(".") else { return text }
        let short = text.reversed().drop { $0 == "0" }
        return String((short.first == "." ? short.dropFirst() : short).reversed())
    }

    static func figure(_ figure: Double, _ unit: Row.Unit) -> String {
        switch unit {
        case .nanoseconds:
            switch abs(figure) {
            case ..<1e3: self.number(figure) + " ns"
            case ..<1e6: self.number(figure / 1e3) + " µs"
            case ..<1e9: self.number(figure / 1e6) + " ms"
            default: self.number(figure / 1e9) + " s"
            }
        case .bytes: abs(figure) < 1e6 ? self.number(figure) + " B" : self.number(figure / 1e6) + " MB"
        case .percent: String(format: "%.2f %%", figure)
        case .count: self.number(figure)
        }
    }
}
