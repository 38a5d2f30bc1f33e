// swift-format-ignore-file
// The parts of Foundation that exist only on Apple's platforms, with the types of Core Foundation.
@_exported public import DispatchOnApple
public import Foundation

#if !os(macOS)
extension ProcessInfo {
    public func performExpiringActivity(
        withReason reason: String, using block: @escaping @Sendable (Bool) -> Void
    ) { fatalError() }
}
#endif

public typealias CFTypeRef = AnyObject
public typealias CFDictionary = NSDictionary  // `as CFDictionary` and `as CFURL` bridge, as they do on Apple's platforms.
public typealias CFURL = NSURL
public typealias CFData = NSData
public typealias CFArray = NSArray
public final class CFString: Hashable {
    public static func == (a: CFString, b: CFString) -> Bool { fatalError() }
    public func hash(into hasher: inout Hasher) { fatalError() }
}
