#if canImport(Network)
import Dispatch
import Network

/// The state of the network, from the system's path monitor.
///
/// https://developer.apple.com/documentation/network/nwpathmonitor
///
/// Written from Apple's documentation. `.ci/apple-lines` compiles the type on Linux against stubs of Apple's
/// modules; no Apple SDK has compiled the type.
package enum NetworkPath {
    /// Calls `changed` with the current state and with each change, on a separate queue.
    ///
    /// - Returns: A closure that ends the watch.
    @Sendable package static func watch(_ changed: @escaping @Sendable (Bool) -> Void) -> (@Sendable () -> Void)? {
        let monitor = NWPathMonitor()
        monitor.pathUpdateHandler = { changed($0.status == .satisfied) }
        monitor.start(queue: DispatchQueue(label: "mux.reachability"))
        let held = Locked(monitor)
        return { held.withLock { $0.cancel() } }
    }
}
#elseif os(Linux)
import Dispatch
import Foundation

#if canImport(Musl)
import Musl
#else
import Glibc
#endif

/// The state of the network, from the kernel's routes: see rtnetlink(7).
package enum NetworkPath {
    /// Calls `changed` with the current state and after each change of links or routes, on a separate queue.
    ///
    /// - Returns: A closure that ends the watch; `nil` if the kernel refuses the socket.
    @Sendable package static func watch(_ changed: @escaping @Sendable (Bool) -> Void) -> (@Sendable () -> Void)? {
        guard let socket = self.openSocket() else { return nil }
        let queue = DispatchQueue(label: "mux.reachability")
        let source = DispatchSource.makeReadSource(fileDescriptor: socket, queue: queue)
        source.setEventHandler {
            self.drain(socket)
            changed(self.isReachable)
        }
        source.setCancelHandler { _ = close(socket) }
        source.activate()
        queue.async { changed(self.isReachable) }
        let held = Locked(source)
        return { held.withLock { $0.cancel() } }
    }

    /// Opens a socket for changes of links and routes; a message only triggers another read of the routes.
    private static func openSocket() -> Int32? {
        #if canImport(Musl)
        let kind = SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK
        #else
        let kind = Int32(SOCK_RAW.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        #endif
        let descriptor = socket(AF_NETLINK, kind, 0)  // NETLINK_ROUTE
        guard descriptor >= 0 else { return nil }
        // struct sockaddr_nl, without a Swift name: family, padding, process, groups LINK, IPV4_ROUTE and
        // IPV6_ROUTE.
        var address: (UInt16, UInt16, UInt32, UInt32) = (UInt16(AF_NETLINK), 0, 0, 0x1 | 0x40 | 0x400)
        let isBound = unsafe withUnsafeBytes(of: &address) { bytes -> Bool in
            guard let start = bytes.baseAddress else { return false }
            let pointer = unsafe start.assumingMemoryBound(to: sockaddr.self)
            return unsafe bind(descriptor, pointer, socklen_t(bytes.count)) == 0
        }
        if !isBound { close(descriptor) }
        return isBound ? descriptor : nil
    }

    private static func drain(_ socket: Int32) {
        var buffer = [UInt8](repeating: 0, count: 8_192)
        while true {
            let count = unsafe buffer.withUnsafeMutableBytes { unsafe recv(socket, $0.baseAddress, $0.count, 0) }
            // The loop continues after EINTR, and after ENOBUFS, which reports lost messages; any other
            // error, such as EAGAIN for an empty socket, ends the loop.
            guard count > 0 || errno == EINTR || errno == ENOBUFS else { return }
        }
    }

    private static var isReachable: Bool {
        func text(_ path: String) -> String { (try? String(contentsOfFile: path, encoding: .utf8)) ?? "" }
        return KernelRoutes.haveDefault(ipv4: text("/proc/net/route"), ipv6: text("/proc/net/ipv6_route"))
    }
}
#else
/// The state of the network is unknown.
package enum NetworkPath {
    @Sendable package static func watch(_ changed: @escaping @Sendable (Bool) -> Void) -> (@Sendable () -> Void)? {
        nil
    }
}
#endif

/// A parser of Linux's routing tables.
package enum KernelRoutes {
    // `RTF_UP` and `RTF_REJECT` of `linux/route.h`.
    private static let up = 0x1
    private static let reject = 0x200

    /// Whether one of the tables has a usable default route.
    ///
    /// - Parameters:
    ///   - ipv4: The text of `/proc/net/route`: name, destination, gateway, flags, …, mask in the eighth
    ///     column.
    ///   - ipv6: The text of `/proc/net/ipv6_route`: destination, prefix length, …, flags and name at the
    ///     end.
    /// - Returns: Whether there is a default route.
    package static func haveDefault(ipv4: String, ipv6: String) -> Bool {
        self.rows(ipv4).contains { row in
            row.count >= 8 && self.isZero(row[1]) && self.isZero(row[7]) && self.isUsable(row[3])
        }
            || self.rows(ipv6).contains { row in
                row.count >= 10 && self.isZero(row[0]) && self.isZero(row[1]) && self.isUsable(row[8]) && row[9] != "lo"
            }
    }

    /// The fields of each line of a table.
    private static func rows(_ table: String) -> [[Substring]] {
        table.split(separator: "\n").map { line in line.split { $0 == " " || $0 == "\t" } }
    }

    private static func isZero(_ field: Substring) -> Bool { field.allSatisfy { $0 == "0" } }

    private static func isUsable(_ flags: Substring) -> Bool {
        guard let flags = Int(flags, radix: 16) else { return false }
        return flags & self.up != 0 && flags & self.reject == 0
    }
}
