package import MuxKit

/// One call to a file system, as ``RecordingFileSystem`` writes it down.
package struct FileCall: Sendable, Hashable, CustomStringConvertible {
    package var operation: MuxFileOperation
    /// The last name of the path.
    package var name: String

    package init(_ operation: MuxFileOperation, _ name: String) {
        self.operation = operation
        self.name = name
    }

    package var description: String { "\(self.operation.rawValue) \(self.name)" }
}
