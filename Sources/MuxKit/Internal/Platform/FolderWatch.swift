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
    /// Ends when the folder is removed or moved. If the folder cannot be watched, only the first element comes.
    let changes: AsyncStream<Void>

    private var source: (any DispatchSourceProtocol)?

    init(_ path: String) {
        let (stream, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        self.changes = stream
        continuation.yield()
        guard let descriptor = Self.open(path) else { return }
        let source = Self.source(descriptor)
        source.setEventHandler {  // holds the source until it is cancelled
            let isGone = Self.isGone(descriptor, source)
            continuation.yield()
            if isGone { continuation.finish() }
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
        DispatchSource.makeFileSystemObjectSource(
            fileDescriptor: descriptor,
            eventMask: [.write, .delete, .rename],
            queue: .global()
        )
    }

    /// Takes the events that have arrived; returns whether the folder is not at its path any more.
    private static func isGone(_ descriptor: Int32, _ source: any DispatchSourceFileSystemObject) -> Bool {
        !source.data.isDisjoint(with: [.delete, .rename])
    }
    #else
    private static func open(_ path: String) -> Int32? {
        let descriptor = inotify_init1(Int32(IN_NONBLOCK) | Int32(IN_CLOEXEC))
        guard descriptor >= 0 else { return nil }
        let events = UInt32(IN_MOVED_TO) | UInt32(IN_DELETE) | UInt32(IN_DELETE_SELF) | UInt32(IN_MOVE_SELF)
        guard unsafe inotify_add_watch(descriptor, path, events) >= 0 else {
            _ = close(descriptor)
            return nil
        }
        return descriptor
    }

    private static func source(_ descriptor: Int32) -> any DispatchSourceRead {
        DispatchSource.makeReadSource(fileDescriptor: descriptor, queue: .global())
    }

    /// Takes the events that have arrived; returns whether the folder is not at its path any more.
    private static func isGone(_ descriptor: Int32, _ source: any DispatchSourceRead) -> Bool {
        var events: UInt32 = 0
        unsafe withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 8) { buffer in
            while case let count = unsafe read(descriptor, buffer.baseAddress, buffer.count), count > 0 {
                var offset = 0
                while offset + MemoryLayout<inotify_event>.size <= count {
                    let event = unsafe buffer.loadUnaligned(fromByteOffset: offset, as: inotify_event.self)
                    events |= event.mask
                    offset += MemoryLayout<inotify_event>.size + Int(event.len)
                }
            }
        }
        return events & (UInt32(IN_DELETE_SELF) | UInt32(IN_MOVE_SELF)) != 0
    }
    #endif
}

@available(*, unavailable)
extension FolderWatch: Sendable {}
