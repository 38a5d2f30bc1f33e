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
    /// Ends when the folder is removed or moved, and at once if there is none. If the folder cannot be watched, only the first
    /// element comes.
    let changes: AsyncStream<Void>

    private var source: (any DispatchSourceProtocol)?

    init(_ path: String) {
        let (stream, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        self.changes = stream
        continuation.yield()
        let opened = Self.open(path)
        guard case .success(let descriptor) = opened else {
            if case .failure(.missing) = opened { continuation.finish() }
            return
        }
        let source = Self.source(descriptor)
        let name = FilePath.name(of: path)
        source.setEventHandler {  // holds the source until it is cancelled
            let news = Self.news(descriptor, source, of: name)
            if news != .none { continuation.yield() }
            if news == .isGone { continuation.finish() }
        }
        source.setCancelHandler { _ = close(descriptor) }
        source.activate()
        self.source = source
    }

    deinit { self.source?.cancel() }

    private enum Failure: Error {
        case missing
        case refused
    }

    /// What some events say.
    private enum News {
        /// They are about something else.
        case none
        case changed
        /// The folder is not at its path any more.
        case isGone
    }

    #if canImport(Darwin)
    private static func open(_ path: String) -> Result<Int32, Failure> {
        let descriptor = unsafe Darwin.open(path, O_EVTONLY | O_CLOEXEC)
        guard descriptor < 0 else { return .success(descriptor) }
        return .failure(errno == ENOENT ? .missing : .refused)
    }

    private static func source(_ descriptor: Int32) -> any DispatchSourceFileSystemObject {
        DispatchSource.makeFileSystemObjectSource(
            fileDescriptor: descriptor,
            eventMask: [.write, .delete, .rename],
            queue: .global()
        )
    }

    private static func news(_ descriptor: Int32, _ source: any DispatchSourceFileSystemObject, of name: String) -> News
    {
        source.data.isDisjoint(with: [.delete, .rename]) ? .changed : .isGone
    }
    #else
    private static func open(_ path: String) -> Result<Int32, Failure> {
        let descriptor = inotify_init1(Int32(IN_NONBLOCK) | Int32(IN_CLOEXEC))
        guard descriptor >= 0 else { return .failure(.refused) }
        let events = UInt32(IN_MOVED_TO) | UInt32(IN_DELETE) | UInt32(IN_DELETE_SELF) | UInt32(IN_MOVE_SELF)
        guard unsafe inotify_add_watch(descriptor, path, events) >= 0 else {
            let isMissing = errno == ENOENT
            _ = close(descriptor)
            return .failure(isMissing ? .missing : .refused)
        }
        // The folder itself tells of its removal only when nobody has a file of it open. The parent may be out of reach.
        if let parent = FilePath.parent(of: path) {
            _ = unsafe inotify_add_watch(descriptor, parent, UInt32(IN_DELETE) | UInt32(IN_MOVED_FROM))
        }
        return .success(descriptor)
    }

    private static func source(_ descriptor: Int32) -> any DispatchSourceRead {
        DispatchSource.makeReadSource(fileDescriptor: descriptor, queue: .global())
    }

    /// Takes the events that have arrived.
    private static func news(_ descriptor: Int32, _ source: any DispatchSourceRead, of name: String) -> News {
        let gone = UInt32(IN_DELETE_SELF) | UInt32(IN_MOVE_SELF) | UInt32(IN_UNMOUNT)
        var news = News.none
        unsafe withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 8) { buffer in
            while case let count = unsafe read(descriptor, buffer.baseAddress, buffer.count), count > 0 {
                var offset = 0
                while offset + MemoryLayout<inotify_event>.size <= count {
                    let event = unsafe buffer.loadUnaligned(fromByteOffset: offset, as: inotify_event.self)
                    offset += MemoryLayout<inotify_event>.size
                    let text = unsafe buffer[offset..<min(offset + Int(event.len), count)].prefix { $0 != 0 }
                    offset += Int(event.len)
                    // The first watch of a descriptor has the number 1, and events were lost if there is none; the second one is
                    // that of the parent.
                    let isOwn = event.wd <= 1
                    let isParents = unsafe !isOwn && text.elementsEqual(name.utf8)
                    if isParents || event.mask & gone != 0 && isOwn {
                        news = .isGone
                    } else if isOwn, news == .none {
                        news = .changed
                    }
                }
            }
        }
        return news
    }
    #endif
}

@available(*, unavailable)
extension FolderWatch: Sendable {}
