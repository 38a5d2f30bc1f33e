#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The POSIX calls of a loopback server.
///
/// A call that waits for a peer or a pipe blocks the thread, and must not run on the cooperative pool.
///
/// A connection or a listener belongs to one thread, and only this thread closes the descriptor. Other
/// threads end a wait of the thread with ``shutDown(_:)`` or a pipe.
package enum Socket {
    /// The event at the end of a wait.
    package enum Event: Sendable, Equatable {
        /// A byte was written to the pipe.
        case woken
        /// A read or an accept does not block: bytes or a connection have arrived, or the connection has
        /// ended.
        case readable
        /// The system reports an end or an error without input, or the wait failed.
        case hungUp
        /// No event happened within the limit.
        case timedOut
    }

    /// The loopback addresses.
    package enum Loopback: Sendable {
        /// 127.0.0.1.
        case ipv4
        /// ::1.
        case ipv6
    }

    /// Listens on a port of a loopback address, which other machines cannot reach.
    ///
    /// - Parameters:
    ///   - address: The address.
    ///   - port: The port; 0 for a free port.
    ///   - buffers: The requested size of each buffer of accepted connections, in bytes; `nil` for the size
    ///     of the system.
    /// - Returns: The listener, and its port.
    /// - Throws: ``LoopbackServer/Failure``.
    package static func listen(
        on address: Loopback,
        port: UInt16,
        buffers: Int32? = nil
    ) throws(LoopbackServer.Failure) -> (descriptor: Int32, port: UInt16) {
        let (descriptor, port) = try Self.bind(address, port: port)
        if var size = buffers {
            // Set before the first connection: connections inherit the options.
            for option in [SO_SNDBUF, SO_RCVBUF] {
                setsockopt(descriptor, SOL_SOCKET, option, &size, socklen_t(MemoryLayout<Int32>.size))
            }
        }
        guard systemListen(descriptor) else {
            let code = errno
            Self.close(descriptor)
            throw .cannotListen(code: code, port: port)
        }
        return (descriptor, port)
    }

    /// Reserves a free port of 127.0.0.1, for a later call of ``listen(on:port:buffers:)`` with the port.
    ///
    /// - On Linux, the descriptor holds the reservation until the descriptor is closed. The system does not
    ///   select the port for a socket without a given port, and still permits a listener on the port.
    /// - Other systems permit no listener on a port that another socket has bound. The descriptor is `nil`,
    ///   and another process may take the port.
    ///
    /// - Returns: The descriptor, to be closed by the caller, and the port.
    /// - Throws: ``LoopbackServer/Failure``.
    package static func reservePort() throws(LoopbackServer.Failure) -> (descriptor: Int32?, port: UInt16) {
        let (descriptor, port) = try Self.bind(.ipv4, port: 0)
        #if os(Linux)
        return (descriptor, port)
        #else
        Self.close(descriptor)
        return (nil, port)
        #endif
    }

    private static func bind(
        _ address: Loopback,
        port: UInt16
    ) throws(LoopbackServer.Failure) -> (descriptor: Int32, port: UInt16) {
        let descriptor = try Self.open(address)
        var yes: Int32 = 1
        setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))

        let bound: UInt16?
        switch address {
        case .ipv4:
            var place = sockaddr_in()
            place.sin_family = sa_family_t(AF_INET)
            place.sin_port = port.bigEndian
            place.sin_addr = in_addr(s_addr: UInt32(0x7f00_0001).bigEndian)
            bound = Self.bind(descriptor, &place) { $0.sin_port }
        case .ipv6:
            var place = sockaddr_in6()
            place.sin6_family = sa_family_t(AF_INET6)
            place.sin6_port = port.bigEndian
            withUnsafeMutableBytes(of: &place.sin6_addr) { $0[15] = 1 }
            bound = Self.bind(descriptor, &place) { $0.sin6_port }
        }
        guard let bound else {
            let code = errno
            Self.close(descriptor)
            throw .cannotListen(code: code, port: port == 0 ? nil : port)
        }
        return (descriptor, bound)
    }

    package static func open(_ address: Loopback) throws(LoopbackServer.Failure) -> Int32 {
        let descriptor = socket(address == .ipv4 ? AF_INET : AF_INET6, Self.stream, 0)
        guard descriptor >= 0 else { throw .cannotListen(code: errno) }
        Self.configure(descriptor)
        return descriptor
    }

    /// Binds a descriptor and returns the port; `nil` if the system refuses.
    private static func bind<Place>(_ descriptor: Int32, _ place: inout Place, _ port: (Place) -> UInt16) -> UInt16? {
        var length = socklen_t(MemoryLayout<Place>.size)
        let isBound = withUnsafeMutablePointer(to: &place) { place in
            place.withMemoryRebound(to: sockaddr.self, capacity: 1) { place in
                systemBind(descriptor, place, length) && getsockname(descriptor, place, &length) == 0
            }
        }
        return isBound ? UInt16(bigEndian: port(place)) : nil
    }

    /// Accepts the next connection; on failure, waits for 10 milliseconds and returns `nil`.
    ///
    /// Without free descriptors, the listener stays readable: a thread that accepts again at once would
    /// occupy a processor.
    package static func accept(_ listener: Int32) -> Int32? {
        let descriptor = systemAccept(listener)
        guard descriptor >= 0 else {
            poll(nil, 0, 10)
            return nil
        }
        Self.configure(descriptor)
        return descriptor
    }

    /// Waits for input on a descriptor or on a pipe.
    ///
    /// - Parameters:
    ///   - descriptor: A connection or a listener; `nil` to wait only for `wake`.
    ///   - wake: The reading end of a pipe.
    ///   - milliseconds: The time limit; `nil` for no limit.
    /// - Returns: The event. If both a byte in the pipe and input are available, ``Event/woken``.
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

    /// Provokes a reset if the peer has closed the connection instead of only its sending side.
    ///
    /// Both cases look the same until a byte is sent. A closed peer replies with a reset, and
    /// ``isConnected(_:)`` is then `false`. The sent byte is urgent data, which ordinary reads of the peer
    /// skip.
    package static func probe(_ descriptor: Int32) {
        var byte: UInt8 = 0
        send(descriptor, &byte, 1, Int32(MSG_OOB) | Self.noSignal)
    }

    /// Whether the socket has a peer; `false` after a reset by the peer.
    package static func isConnected(_ descriptor: Int32) -> Bool {
        var address = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        return withUnsafeMutablePointer(to: &address) { address in
            address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                getpeername(descriptor, $0, &length) == 0
            }
        }
    }

    /// Waits for input, and reads at least one byte; `nil` at the end of the connection, or after an error.
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

    /// Writes all of `bytes`, and blocks until the bytes are in the send buffer; `false` after an error.
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

    /// Waits until the socket can send, and writes the bytes that fit.
    ///
    /// - Returns: The number of written bytes; 0 if no byte was written within the time limit; `nil` after an
    ///   error, such as the end of the connection.
    package static func writeSome(_ bytes: ArraySlice<UInt8>, to descriptor: Int32, milliseconds: Int32) -> Int? {
        var entry = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        var ready = poll(&entry, 1, milliseconds)
        while ready < 0, errno == EINTR { ready = poll(&entry, 1, milliseconds) }
        guard ready != 0 else { return 0 }
        let count = bytes.withUnsafeBytes { buffer in
            send(descriptor, buffer.baseAddress, buffer.count, Self.noSignal | Int32(MSG_DONTWAIT))
        }
        if count < 0, errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR { return 0 }
        return count < 0 ? nil : count
    }

    /// Waits for input or the end of the connection; `false` if the time limit passes or the wait fails.
    package static func waitForInput(_ descriptor: Int32, milliseconds: Int32) -> Bool {
        var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        var ready = poll(&entry, 1, milliseconds)
        while ready < 0, errno == EINTR { ready = poll(&entry, 1, milliseconds) }
        return ready > 0
    }

    /// Makes a pipe: a byte written to `wake` ends a wait on `wait`.
    package static func makeWakePipe() throws(LoopbackServer.Failure) -> (wait: Int32, wake: Int32) {
        var ends: [Int32] = [-1, -1]
        guard pipe(&ends) == 0 else { throw .cannotListen(code: errno) }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        return (ends[0], ends[1])
    }

    /// Writes one byte to a pipe.
    package static func wake(_ descriptor: Int32) {
        var byte: UInt8 = 1
        systemWrite(descriptor, &byte)
    }

    /// Reads one byte from a pipe.
    package static func drain(_ descriptor: Int32) {
        var byte: UInt8 = 0
        systemRead(descriptor, &byte)
    }

    /// Shuts down the sending side.
    package static func endWriting(_ descriptor: Int32) {
        shutdown(descriptor, Int32(SHUT_WR))
    }

    /// Shuts down both sides; the descriptor stays valid until closed.
    package static func shutDown(_ descriptor: Int32) {
        shutdown(descriptor, Int32(SHUT_RDWR))
    }

    /// Makes ``close(_:)`` send a reset.
    package static func setResetOnClose(_ descriptor: Int32) {
        var option = linger(l_onoff: 1, l_linger: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &option, socklen_t(MemoryLayout<linger>.size))
    }

    package static func close(_ descriptors: Int32...) {
        for descriptor in descriptors { systemClose(descriptor) }
    }

    /// Configures a socket: closed in child processes by `exec`, no delay of small writes, and on Apple
    /// platforms no signal on a write to a closed connection.
    private static func configure(_ descriptor: Int32) {
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
        var yes: Int32 = 1
        setsockopt(descriptor, Int32(IPPROTO_TCP), TCP_NODELAY, &yes, socklen_t(MemoryLayout<Int32>.size))
        #if canImport(Darwin)
        setsockopt(descriptor, SOL_SOCKET, SO_NOSIGPIPE, &yes, socklen_t(MemoryLayout<Int32>.size))
        #endif
    }

    #if canImport(Glibc)
    private static let stream = Int32(SOCK_STREAM.rawValue)
    #else
    private static let stream = SOCK_STREAM
    #endif

    #if canImport(Darwin)
    private static let noSignal: Int32 = 0
    #else
    private static let noSignal = Int32(MSG_NOSIGNAL)
    #endif
}

// Wrappers, because members of ``Socket`` hide the system's functions of the same names.
private func systemBind(_ descriptor: Int32, _ address: UnsafePointer<sockaddr>, _ length: socklen_t) -> Bool {
    bind(descriptor, address, length) == 0
}
private func systemListen(_ descriptor: Int32) -> Bool { listen(descriptor, 512) == 0 }
private func systemAccept(_ listener: Int32) -> Int32 { accept(listener, nil, nil) }
private func systemClose(_ descriptor: Int32) { _ = close(descriptor) }
private func systemRead(_ descriptor: Int32, _ byte: inout UInt8) { _ = read(descriptor, &byte, 1) }
private func systemWrite(_ descriptor: Int32, _ byte: inout UInt8) { _ = write(descriptor, &byte, 1) }
