#if canImport(Darwin)
import Dispatch

/// Calls back on warnings of memory pressure, until deallocation.
///
/// The interface is the same on all Apple platforms, and needs no UI framework:
/// https://developer.apple.com/documentation/dispatch/dispatchsource/makememorypressuresource(eventmask:queue:)
/// Written from Apple's documentation. `.ci/apple-lines` compiles these lines on Linux against stubs of
/// Apple's modules; no Apple SDK has compiled these lines.
final class MemoryWarnings {
    private let source: any DispatchSourceMemoryPressure

    /// Starts to listen; `warned` is called on a global queue for each warning.
    init(_ warned: @escaping @Sendable () -> Void) {
        self.source = DispatchSource.makeMemoryPressureSource(eventMask: [.warning, .critical], queue: .global())
        self.source.setEventHandler(handler: warned)
        self.source.activate()
    }

    deinit { self.source.cancel() }
}

@available(*, unavailable)
extension MemoryWarnings: Sendable {}
#else
/// Does nothing: the library observes memory pressure on Apple platforms only.
struct MemoryWarnings: Sendable {
    init(_ warned: @escaping @Sendable () -> Void) {}
}
#endif
