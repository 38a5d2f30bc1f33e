// swift-format-ignore-file
// The parts of Dispatch that exist only on Apple's platforms.
public import Dispatch

public protocol DispatchSourceFileSystemObject: DispatchSourceProtocol, Sendable {
    var handle: Int32 { get }
    var data: DispatchSource.FileSystemEvent { get }
    var mask: DispatchSource.FileSystemEvent { get }
}

public protocol DispatchSourceMemoryPressure: DispatchSourceProtocol, Sendable {
    var data: DispatchSource.MemoryPressureEvent { get }
    var mask: DispatchSource.MemoryPressureEvent { get }
}

extension DispatchSource {
    public struct MemoryPressureEvent: OptionSet {
        public let rawValue: UInt
        public init(rawValue: UInt) { self.rawValue = rawValue }
        public static var normal: MemoryPressureEvent { MemoryPressureEvent(rawValue: 0x1) }
        public static var warning: MemoryPressureEvent { MemoryPressureEvent(rawValue: 0x2) }
        public static var critical: MemoryPressureEvent { MemoryPressureEvent(rawValue: 0x4) }
    }

    public class func makeFileSystemObjectSource(
        fileDescriptor: Int32, eventMask: FileSystemEvent, queue: DispatchQueue? = nil
    ) -> any DispatchSourceFileSystemObject { fatalError() }

    public class func makeMemoryPressureSource(
        eventMask: MemoryPressureEvent, queue: DispatchQueue? = nil
    ) -> any DispatchSourceMemoryPressure { fatalError() }
}
