import Dispatch

#if canImport(Darwin)
import Darwin
#elseif canImport(Musl)
import Musl
#else
import Glibc
#endif

/// Reports changes to the names in a folder while it is alive.
///
/// Linux: inotify(7). Apple: a vnode source, from the documentation, compiled here against stand-ins only (`.ci/apple-lines`):
/// https://developer.apple.com/documentation/dispatch/dispatchsource/makefilesystemobjectsource(filedescriptor:eventmask:queue:)
final class FolderWatch {
    /// Yields one element at once, then one after changes; changes close together may share one.
    ///
    /// If the folder cannot be watched, only the first element comes.
    let changes: AsyncStream<Void>

    private var source: (any DispatchSourceProtocol)?

    init(_ path: String) {
        let (stream, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        self.changes = stream
        continuation.yield()
        guard let descriptor = Self.open(path) else { return }
        let source = Self.source(descriptor)
        source.setEventHandler {
            Self.drain(descriptor)
            continuation.yield()
        }
        source.setCancelHandler { _ = close(descriptor) }
        source.activate()
        self.source = source
    }

    deinit { self.source?.cancel() }

    #if canImport(Darwin)
    private static func open(_ path: String) -> Int32? {
        let descriptor = unsafe Darwin.open(path, O_EVTONLY | O_CLOEXEC)
        return descriptor < 0 ? nil : descriptor
    }

    private static func source(_ descriptor: Int32) -> any DispatchSourceFileSystemObject {
        DispatchSource.makeFileSystemObjectSource(fileDescriptor: descriptor, eventMask: .write, queue: .global())
    }

    private static func drain(_ descriptor: Int32) {}
    #else
    private static func open(_ path: String) -> Int32? {
        let descriptor = inotify_init1(Int32(IN_NONBLOCK) | Int32(IN_CLOEXEC))
        guard descriptor >= 0 else { return nil }
        let events = UInt32(IN_MOVED_TO) | UInt32(IN_DELETE)
        guard unsafe inotify_add_watch(descriptor, path, events) >= 0 else {
            _ = close(descriptor)
            return nil
        }
        return descriptor
    }

    private static func source(_ descriptor: Int32) -> any DispatchSourceRead {
        DispatchSource.makeReadSource(fileDescriptor: descriptor, queue: .global())
    }

    private static func drain(_ descriptor: Int32) {
        unsafe withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 8) { buffer in
            while unsafe read(descriptor, buffer.baseAddress, buffer.count) > 0 {}
        }
    }
    #endif
}

@available(*, unavailable)
extension FolderWatch: Sendable {}
