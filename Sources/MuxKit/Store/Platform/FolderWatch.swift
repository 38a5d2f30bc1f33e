import Dispatch

#if canImport(Darwin)
import Darwin
#elseif canImport(Musl)
import Musl
#else
import Glibc
#endif

/// Reports changes of the names in a folder until deallocation.
///
/// Linux: inotify(7), for removals and for moves into the folder, such as the replacement of a file; a
/// creation is not reported. Apple: a vnode dispatch source, written from the documentation, and compiled
/// only against stand-ins (`.ci/apple-lines`):
/// https://developer.apple.com/documentation/dispatch/dispatchsource/makefilesystemobjectsource(filedescriptor:eventmask:queue:)
package final class FolderWatch {
    /// Yields an element at once, then an element after each reported change; changes in quick succession may
    /// share an element.
    ///
    /// The sequence ends after a removal or move of the folder. For a missing folder, the sequence ends after
    /// the first element. If the system refuses the watch, only the first element arrives, and the sequence
    /// does not end.
    package let changes: AsyncStream<Void>

    private var source: (any DispatchSourceProtocol)?

    package init(_ path: String) {
        let (stream, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        self.changes = stream
        continuation.yield()
        let descriptor: Int32
        do throws(MuxStoreError) {
            descriptor = try Self.open(path)
        } catch {
            if error.isMissing { continuation.finish() }
            return
        }
        let source = Self.source(descriptor)
        let name = FilePath.name(of: path)
        source.setEventHandler {  // The cancellation of the source ends the retain cycle.
            let event = Self.readEvents(descriptor, source, of: name)
            if event != .unrelated { continuation.yield() }
            if event == .removal { continuation.finish() }
        }
        source.setCancelHandler { _ = close(descriptor) }
        source.activate()
        self.source = source
    }

    deinit { self.source?.cancel() }

    /// The meaning of a batch of events.
    private enum Event {
        /// The events concern other names in the parent.
        case unrelated
        /// A name in the folder changed.
        case change
        /// The folder was removed or moved.
        case removal
    }

    #if canImport(Darwin)
    private static func open(_ path: String) throws(MuxStoreError) -> Int32 {
        let descriptor = unsafe Darwin.open(path, O_EVTONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw .fileSystem(.open, code: errno) }
        return descriptor
    }

    private static func source(_ descriptor: Int32) -> any DispatchSourceFileSystemObject {
        DispatchSource.makeFileSystemObjectSource(
            fileDescriptor: descriptor,
            eventMask: [.write, .delete, .rename],
            queue: .global()
        )
    }

    private static func readEvents(_ descriptor: Int32, _ source: any DispatchSourceFileSystemObject, of name: String)
        -> Event
    {
        source.data.isDisjoint(with: [.delete, .rename]) ? .change : .removal
    }
    #else
    private static func open(_ path: String) throws(MuxStoreError) -> Int32 {
        let descriptor = inotify_init1(Int32(IN_NONBLOCK) | Int32(IN_CLOEXEC))
        guard descriptor >= 0 else { throw .fileSystem(.open, code: errno) }
        let events = UInt32(IN_MOVED_TO) | UInt32(IN_DELETE) | UInt32(IN_DELETE_SELF) | UInt32(IN_MOVE_SELF)
        guard unsafe inotify_add_watch(descriptor, path, events) >= 0 else {
            let code = errno
            _ = close(descriptor)
            throw .fileSystem(.open, code: code)
        }
        // Linux delays the event `IN_DELETE_SELF` until every process has closed the folder's files; the
        // parent's event arrives at once. An unreadable parent is not watched.
        if let parent = FilePath.parent(of: path) {
            _ = unsafe inotify_add_watch(descriptor, parent, UInt32(IN_DELETE) | UInt32(IN_MOVED_FROM))
        }
        return descriptor
    }

    private static func source(_ descriptor: Int32) -> any DispatchSourceRead {
        DispatchSource.makeReadSource(fileDescriptor: descriptor, queue: .global())
    }

    /// Reads the pending events.
    private static func readEvents(_ descriptor: Int32, _ source: any DispatchSourceRead, of name: String) -> Event {
        let gone = UInt32(IN_DELETE_SELF) | UInt32(IN_MOVE_SELF) | UInt32(IN_UNMOUNT)
        var result = Event.unrelated
        unsafe withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 8) { buffer in
            while case let count = unsafe read(descriptor, buffer.baseAddress, buffer.count), count > 0 {
                var offset = 0
                while offset + MemoryLayout<inotify_event>.size <= count {
                    let event = unsafe buffer.loadUnaligned(fromByteOffset: offset, as: inotify_event.self)
                    offset += MemoryLayout<inotify_event>.size
                    let text = unsafe buffer[offset..<min(offset + Int(event.len), count)].prefix { $0 != 0 }
                    offset += Int(event.len)
                    // Watch descriptor 1 is for the folder, and 2 for the parent; -1 reports lost events.
                    let isOwn = event.wd <= 1
                    let isParents = unsafe !isOwn && text.elementsEqual(name.utf8)
                    if isParents || event.mask & gone != 0 && isOwn {
                        result = .removal
                    } else if isOwn, result == .unrelated {
                        result = .change
                    }
                }
            }
        }
        return result
    }
    #endif
}

@available(*, unavailable)
extension FolderWatch: Sendable {}
