import Synchronization

#if canImport(Glibc)
import Glibc
#endif

/// Counts all allocations of the process; on Linux with glibc.
///
/// glibc has no hook for allocations, and Swift cannot define a symbol named `malloc`. The address tables of
/// all loaded libraries therefore point to functions that count and then call the allocator.
enum Allocations {
    /// Starts counting; `nil` if the system does not permit counting.
    static func begin() -> Int? {
        guard Self.isInstalled else { return nil }
        isCounting.store(true, ordering: .relaxed)
        return count.load(ordering: .relaxed)
    }

    /// Stops counting; returns the number of allocations.
    static func end(since start: Int?) -> Int? {
        isCounting.store(false, ordering: .relaxed)
        return start.map { count.load(ordering: .relaxed) - $0 }
    }

    /// The change of allocated bytes since counting began, of counted allocations only.
    static var bytes: Int { byteCount.load(ordering: .relaxed) }

    /// Whether allocations are counted now.
    static var isOn: Bool { isCounting.load(ordering: .relaxed) }

    /// The resident memory of the process; `nil` without `/proc`.
    static var residentBytes: Int? {
        #if canImport(Glibc)
        guard let file = fopen("/proc/self/statm", "r") else { return nil }
        defer { fclose(file) }
        var line = [CChar](repeating: 0, count: 128)
        guard fgets(&line, Int32(line.count), file) != nil else { return nil }
        let text = String(decoding: line.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
        return text.split(separator: " ").dropFirst().first.flatMap { Int($0) }.map { $0 * Int(getpagesize()) }
        #else
        return nil
        #endif
    }

    /// Returns free memory to the system, so that resident memory is used memory.
    static func trim() {
        #if canImport(Glibc)
        _ = libcTrim(0)
        #endif
    }

    #if canImport(Glibc)
    private static let isInstalled = LinkedLibraries.replace([
        "malloc": unsafeBitCast(countedMalloc, to: UInt.self),
        "calloc": unsafeBitCast(countedCalloc, to: UInt.self),
        "realloc": unsafeBitCast(countedRealloc, to: UInt.self),
        "aligned_alloc": unsafeBitCast(countedAlignedAlloc, to: UInt.self),
        "posix_memalign": unsafeBitCast(countedPosixMemalign, to: UInt.self),
        "free": unsafeBitCast(countedFree, to: UInt.self),
    ])
    #else
    private static let isInstalled = false
    #endif
}

private let isCounting = Atomic(false)
private let count = Atomic(0)
private let byteCount = Atomic(0)

#if canImport(Glibc)
// Swift's calling convention passes integers and pointers as C's does.
@_silgen_name("__libc_malloc") private func libcMalloc(_ size: Int) -> UnsafeMutableRawPointer?
@_silgen_name("__libc_calloc") private func libcCalloc(_ count: Int, _ size: Int) -> UnsafeMutableRawPointer?
@_silgen_name("__libc_realloc")
private func libcRealloc(_ former: UnsafeMutableRawPointer?, _ size: Int) -> UnsafeMutableRawPointer?
@_silgen_name("__libc_memalign") private func libcMemalign(_ alignment: Int, _ size: Int) -> UnsafeMutableRawPointer?
@_silgen_name("__libc_free") private func libcFree(_ block: UnsafeMutableRawPointer?)
@_silgen_name("malloc_usable_size") private func libcSize(_ block: UnsafeMutableRawPointer?) -> Int
@_silgen_name("malloc_trim") private func libcTrim(_ pad: Int) -> Int32

@inline(__always)
private func counted(_ block: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
    guard isCounting.load(ordering: .relaxed) else { return block }
    count.add(1, ordering: .relaxed)
    byteCount.add(libcSize(block), ordering: .relaxed)
    return block
}

private let countedMalloc: @convention(c) (Int) -> UnsafeMutableRawPointer? = { counted(libcMalloc($0)) }

private let countedCalloc: @convention(c) (Int, Int) -> UnsafeMutableRawPointer? = { counted(libcCalloc($0, $1)) }

private let countedRealloc: @convention(c) (UnsafeMutableRawPointer?, Int) -> UnsafeMutableRawPointer? = {
    if isCounting.load(ordering: .relaxed) { byteCount.subtract(libcSize($0), ordering: .relaxed) }
    return counted(libcRealloc($0, $1))
}

private let countedAlignedAlloc: @convention(c) (Int, Int) -> UnsafeMutableRawPointer? = {
    counted(libcMemalign($0, $1))
}

private let countedPosixMemalign: @convention(c) (UnsafeMutablePointer<UnsafeMutableRawPointer?>, Int, Int) -> Int32 = {
    place,
    alignment,
    size in
    guard alignment >= MemoryLayout<Int>.size, alignment & (alignment - 1) == 0 else { return EINVAL }
    guard let block = counted(libcMemalign(alignment, size)) else { return ENOMEM }
    place.pointee = block
    return 0
}

private let countedFree: @convention(c) (UnsafeMutableRawPointer?) -> Void = {
    if isCounting.load(ordering: .relaxed) { byteCount.subtract(libcSize($0), ordering: .relaxed) }
    libcFree($0)
}
#endif
