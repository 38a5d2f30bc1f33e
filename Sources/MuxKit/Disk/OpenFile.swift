/// An open file; closed when the last reference to it goes.
package final class OpenFile: Sendable {
    package let descriptor: Int32
    package let path: String
    private let close: @Sendable (Int32) -> Void

    package init(descriptor: Int32, path: String, close: @escaping @Sendable (Int32) -> Void) {
        self.descriptor = descriptor
        self.path = path
        self.close = close
    }

    deinit { self.close(self.descriptor) }
}
