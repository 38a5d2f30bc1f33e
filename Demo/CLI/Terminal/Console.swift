import Foundation

/// Progress output: a bar on a terminal, plain lines elsewhere, nothing with a JSON report.
final class Console: Sendable {
    private enum Kind: Sendable {
        case terminal, plain, silent
    }

    private let kind: Kind

    init(isSilent: Bool) {
        self.kind = isSilent ? .silent : isatty(1) == 1 ? .terminal : .plain
    }

    /// Prints text on separate lines.
    func say(_ text: String) {
        if self.kind != .silent { self.write(self.start + text + "\n") }
    }

    /// Shows progress on the terminal's last line.
    func show(_ name: String, fraction: Double) {
        guard self.kind == .terminal else { return }
        let filled = Int(min(max(fraction, 0), 1) * 30)
        let bar = String(repeating: "█", count: filled) + String(repeating: "░", count: 30 - filled)
        self.write("\(self.start)\(bar)  \(name)")
    }

    /// Removes the bar.
    func clear() {
        if self.kind == .terminal { self.write(self.start) }
    }

    /// Clears the line.
    private var start: String { self.kind == .terminal ? "\r\u{1B}[2K" : "" }

    private func write(_ text: String) {
        try? FileHandle.standardOutput.write(contentsOf: Data(text.utf8))
    }
}
