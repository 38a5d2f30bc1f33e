#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The few POSIX calls that a loopback server needs.
///
/// All of them block; none may run on the cooperative pool.
///
/// A descriptor belongs to one thread, which alone closes it. Others end its waiting with ``shutDown(_:)`` or a pipe.
package enum Socket {
    /// What ended a wait.
    package enum Event: Sendable, Equatable {
        /// The wake-up descriptor was written to.
        case woken
        /// Bytes have arrived, or a connection.
        case readable
        /// The peer is gone.
        case hungUp
        /// Nothing happened for as long as was to be waited.
        case timedOut
    }

    /// Listens on a port of 127.0.0.1 only.
    package static func listen(port: UInt16) throws(LoopbackServer.Failure) -> Int32 {
        let (descriptor, _) = try Self.bind(port: port)
        guard Self.systemListen(descriptor) else {
            let code = errno
            Self.close(descriptor)
            throw .cannotListen(code: code)
        }
        return descriptor
    }

    /// Chooses a free port of 127.0.0.1; while the descriptor is open, the system gives that port to nobody else.
    ///
    /// Connections to it are refused unless somebody listens too. Two sockets with one address are a matter of Linux;
    /// elsewhere the port is only free at the moment, and there is no descriptor.
    package static func reservePort() throws(LoopbackServer.Failure) -> (descriptor: Int32?, port: UInt16) {
        let (descriptor, port) = try Self.bind(port: 0)
        #if os(Linux)
        return (descriptor, port)
        #else
        Self.close(descriptor)
        return (nil, port)
        #endif
    }

    private static func bind(port: UInt16) throws(LoopbackServer.Failure) -> (descriptor: Int32, port: UInt16) {
        let descriptor = socket(AF_INET, Self.stream, 0)
        guard descriptor >= 0 else { throw .cannotListen(code: errno) }
        Self.configure(descriptor)
        var yes: Int32 = 1
        setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))

        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr = in_addr(s_addr: UInt32(0x7f00_0001).bigEndian)
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let bound = withUnsafeMutablePointer(to: &address) { address in
            address.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                Self.systemBind(descriptor, address, length) && getsockname(descriptor, address, &length) == 0
            }
        }
        guard bound else {
            let code = errno
            Self.close(descriptor)
            throw .cannotListen(code: code)
        }
        return (descriptor, UInt16(bigEndian: address.sin_port))
    }

    /// Connects to a port of 127.0.0.1; `nil` if the connection is refused.
    package static func dial(port: UInt16) -> Int32? {
        let descriptor = socket(AF_INET, Self.stream, 0)
        guard descriptor >= 0 else { return nil }
        Self.configure(descriptor)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr = in_addr(s_addr: UInt32(0x7f00_0001).bigEndian)
        let length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isConnected = withUnsafePointer(to: &address) { address in
            address.withMemoryRebound(to: sockaddr.self, capacity: 1) { connect(descriptor, $0, length) == 0 }
        }
        guard isConnected else {
            Self.close(descriptor)
            return nil
        }
        return descriptor
    }

    /// Takes the next connection; `nil` if it was gone again.
    package static func accept(_ listener: Int32) -> Int32? {
        let descriptor = Self.systemAccept(listener)
        guard descriptor >= 0 else { return nil }
        Self.configure(descriptor)
        return descriptor
    }

    /// Waits until there is something to read, or the end of what the peer sends, or `wake` is written to.
    ///
    /// - Parameters:
    ///   - descriptor: What to read from; `nil` to wait for `wake` alone.
    ///   - wake: The first end of a pipe.
    ///   - milliseconds: How long to wait; `nil` for as long as it takes.
    /// - Returns: What happened first.
    package static func wait(for descriptor: Int32?, wake: Int32, milliseconds: Int32? = nil) -> Event {
        var entries = [pollfd(fd: wake, events: Int16(POLLIN), revents: 0)]
        if let descriptor { entries.append(pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)) }
        while true {
            let count = poll(&entries, nfds_t(entries.count), milliseconds ?? -1)
            if count < 0, errno == EINTR { continue }
            guard count != 0 else { return .timedOut }
            guard count > 0 else { return .hungUp }
            if entries[0].revents != 0 { return .woken }
            return entries[1].revents & Int16(POLLIN) != 0 ? .readable : .hungUp
        }
    }

    /// Has the peer answer if it has closed the connection, rather than only ended what it sends.
    ///
    /// Nothing tells the two apart on the wire until something is sent: a closed peer then answers with a reset, after which
    /// ``isConnected(_:)`` is `false`. What is sent is one urgent byte, which a peer that still reads does not get to see.
    package static func probe(_ descriptor: Int32) {
        var byte: UInt8 = 0
        send(descriptor, &byte, 1, Int32(MSG_OOB) | Self.noSignal)
    }

    /// Whether the connection was not reset.
    package static func isConnected(_ descriptor: Int32) -> Bool {
        var address = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        return withUnsafeMutablePointer(to: &address) { address in
            address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                getpeername(descriptor, $0, &length) == 0
            }
        }
    }

    /// Reads what has arrived, at least one byte; `nil` at the end of the connection.
    package static func read(_ descriptor: Int32) -> [UInt8]? {
        var failed = false
        let bytes = [UInt8](unsafeUninitializedCapacity: 16_384) { buffer, count in
            var result = recv(descriptor, buffer.baseAddress, buffer.count, 0)
            while result < 0, errno == EINTR { result = recv(descriptor, buffer.baseAddress, buffer.count, 0) }
            failed = result <= 0
            count = max(result, 0)
        }
        return failed ? nil : bytes
    }

    /// Writes all of `bytes`; `false` if the peer is gone.
    package static func write(_ bytes: [UInt8], to descriptor: Int32) -> Bool {
        bytes.withUnsafeBytes { buffer in
            var rest = buffer[...]
            while !rest.isEmpty {
                let part = UnsafeRawBufferPointer(rebasing: rest)
                let count = send(descriptor, part.baseAddress, part.count, Self.noSignal)
                if count < 0, errno == EINTR { continue }
                guard count > 0 else { return false }
                rest = rest.dropFirst(count)
            }
            return true
        }
    }

    /// A pipe: write a byte to its second end to wake whoever waits with its first.
    package static func wakePipe() throws(LoopbackServer.Failure) -> (wait: Int32, wake: Int32) {
        var ends: [Int32] = [-1, -1]
        guard pipe(&ends) == 0 else { throw .cannotListen(code: errno) }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        return (ends[0], ends[1])
    }

    /// Wakes whoever waits at the other end of the pipe.
    package static func wake(_ descriptor: Int32) {
        var byte: UInt8 = 1
        _ = Self.systemWrite(descriptor, &byte)
    }

    /// Takes one byte from the pipe, so that it can wake again.
    package static func drain(_ descriptor: Int32) {
        var byte: UInt8 = 0
        _ = Self.systemRead(descriptor, &byte)
    }

    /// Ends what is sent; the peer can still be read from.
    package static func endWriting(_ descriptor: Int32) {
        shutdown(descriptor, Int32(SHUT_WR))
    }

    /// Ends a connection in both directions; its descriptor stays taken until it is closed.
    package static func shutDown(_ descriptor: Int32) {
        shutdown(descriptor, Int32(SHUT_RDWR))
    }

    /// Makes closing answer the peer with a reset rather than an orderly end.
    package static func resetOnClose(_ descriptor: Int32) {
        var option = linger(l_onoff: 1, l_linger: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &option, socklen_t(MemoryLayout<linger>.size))
    }

    /// Gives the descriptor back.
    package static func close(_ descriptor: Int32) { Self.systemClose(descriptor) }

    /// Not inherited by child processes, sends small pieces at once, and writing to a dead peer raises no signal.
    private static func configure(_ descriptor: Int32) {
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
        var yes: Int32 = 1
        setsockopt(descriptor, Int32(IPPROTO_TCP), TCP_NODELAY, &yes, socklen_t(MemoryLayout<Int32>.size))
        #if canImport(Darwin)
        setsockopt(descriptor, SOL_SOCKET, SO_NOSIGPIPE, &yes, socklen_t(MemoryLayout<Int32>.size))
        #endif
    }

    // MARK: - Names that this type's own members hide, and constants that differ

    #if canImport(Glibc)
    private static let stream = Int32(SOCK_STREAM.rawValue)
    #else
    private static let stream = SOCK_STREAM
    #endif

    #if canImport(Darwin)
    private static let noSignal: Int32 = 0
    private static func systemBind(
        _ descriptor: Int32,
        _ address: UnsafePointer<sockaddr>,
        _ length: socklen_t
    ) -> Bool {
        Darwin.bind(descriptor, address, length) == 0
    }
    private static func systemListen(_ descriptor: Int32) -> Bool { Darwin.listen(descriptor, 512) == 0 }
    private static func systemAccept(_ listener: Int32) -> Int32 { Darwin.accept(listener, nil, nil) }
    private static func systemClose(_ descriptor: Int32) { _ = Darwin.close(descriptor) }
    private static func systemRead(_ descriptor: Int32, _ byte: inout UInt8) -> Int {
        Darwin.read(descriptor, &byte, 1)
    }
    private static func systemWrite(_ descriptor: Int32, _ byte: inout UInt8) -> Int {
        Darwin.write(descriptor, &byte, 1)
    }
    #elseif canImport(Glibc)
    private static let noSignal = Int32(MSG_NOSIGNAL)
    private static func systemBind(
        _ descriptor: Int32,
        _ address: UnsafePointer<sockaddr>,
        _ length: socklen_t
    ) -> Bool {
        Glibc.bind(descriptor, address, length) == 0
    }
    private static func systemListen(_ descriptor: Int32) -> Bool { Glibc.listen(descriptor, 512) == 0 }
    private static func systemAccept(_ listener: Int32) -> Int32 { Glibc.accept(listener, nil, nil) }
    private static func systemClose(_ descriptor: Int32) { _ = Glibc.close(descriptor) }
    private static func systemRead(_ descriptor: Int32, _ byte: inout UInt8) -> Int {
        Glibc.read(descriptor, &byte, 1)
    }
    private static func systemWrite(_ descriptor: Int32, _ byte: inout UInt8) -> Int {
        Glibc.write(descriptor, &byte, 1)
    }
    #elseif canImport(Musl)
    private static let noSignal = Int32(MSG_NOSIGNAL)
    private static func systemBind(
        _ descriptor: Int32,
        _ address: UnsafePointer<sockaddr>,
        _ length: socklen_t
    ) -> Bool {
        Musl.bind(descriptor, address, length) == 0
    }
    private static func systemListen(_ descriptor: Int32) -> Bool { Musl.listen(descriptor, 512) == 0 }
    private static func systemAccept(_ listener: Int32) -> Int32 { Musl.accept(listener, nil, nil) }
    private static func systemClose(_ descriptor: Int32) { _ = Musl.close(descriptor) }
    private static func systemRead(_ descriptor: Int32, _ byte: inout UInt8) -> Int { Musl.read(descriptor, &byte, 1) }
    private static func systemWrite(_ descriptor: Int32, _ byte: inout UInt8) -> Int {
        Musl.write(descriptor, &byte, 1)
    }
    #endif
}
