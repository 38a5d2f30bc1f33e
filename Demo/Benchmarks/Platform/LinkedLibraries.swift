#if canImport(Glibc)
import Glibc

/// The loaded libraries of the process, from the dynamic linker (`link.h`, `elf.h`; 64 bits).
enum LinkedLibraries {
    /// The relevant contents of a dynamic section.
    private struct Dynamic {
        var strings: UInt = 0
        var symbols: UInt = 0
        /// Relocation tables with their sizes.
        var tables: [UInt: UInt] = [:]
    }

    /// Relocations with the address of a function: R_X86_64_GLOB_DAT and JUMP_SLOT, or their AArch64
    /// equivalents.
    #if arch(x86_64)
    private static let types: Set<UInt32> = [6, 7]
    #elseif arch(arm64)
    private static let types: Set<UInt32> = [1025, 1026]
    #else
    private static let types: Set<UInt32> = []
    #endif

    /// Replaces functions with these names in all libraries.
    ///
    /// - Returns: Whether a function was replaced.
    static func replace(_ functions: [String: UInt]) -> Bool {
        guard let debug = dlsym(UnsafeMutableRawPointer(bitPattern: 0), "_r_debug") else { return false }
        var replaced = 0
        var map = debug.load(fromByteOffset: 8, as: UInt.self)
        while let link = UnsafeRawPointer(bitPattern: map) {
            replaced += self.replace(
                functions,
                base: link.load(as: UInt.self),
                dynamic: link.load(fromByteOffset: 16, as: UInt.self)
            )
            map = link.load(fromByteOffset: 24, as: UInt.self)
        }
        return replaced > 0
    }

    private static func replace(_ functions: [String: UInt], base: UInt, dynamic address: UInt) -> Int {
        let dynamic = self.dynamic(address, base: base)
        guard dynamic.strings != 0, dynamic.symbols != 0 else { return 0 }
        var replaced = 0
        for (table, size) in dynamic.tables {
            for entry in stride(from: table, to: table + size, by: 24) {
                guard let relocation = UnsafeRawPointer(bitPattern: entry) else { continue }
                let info = relocation.load(fromByteOffset: 8, as: UInt64.self)
                guard self.types.contains(UInt32(truncatingIfNeeded: info)),
                    let symbol = UnsafeRawPointer(bitPattern: dynamic.symbols + UInt(info >> 32) * 24),
                    let name = UnsafePointer<CChar>(
                        bitPattern: dynamic.strings + UInt(symbol.load(as: UInt32.self))
                    ),
                    let function = functions[String(cString: name)]
                else { continue }
                replaced += self.write(function, at: base + relocation.load(as: UInt.self)) ? 1 : 0
            }
        }
        return replaced
    }

    private static func dynamic(_ address: UInt, base: UInt) -> Dynamic {
        var dynamic = Dynamic()
        var (table, size, calls, callsSize): (UInt, UInt, UInt, UInt) = (0, 0, 0, 0)
        var place = address
        while let entry = UnsafeRawPointer(bitPattern: place) {
            let value = entry.load(fromByteOffset: 8, as: UInt.self)
            // The linker has relocated most of these addresses, but not the addresses of the kernel's vDSO.
            let pointer = value < base ? value + base : value
            switch entry.load(as: Int.self) {
            case 0:
                if table != 0 { dynamic.tables[table] = size }
                if calls != 0 { dynamic.tables[calls] = callsSize }
                return dynamic
            case 2: callsSize = value
            case 5: dynamic.strings = pointer
            case 6: dynamic.symbols = pointer
            case 7: table = pointer
            case 8: size = value
            case 23: calls = pointer
            default: break
            }
            place += 16
        }
        return dynamic
    }

    /// Writes an address into a table that may be read-only after relocation.
    private static func write(_ function: UInt, at place: UInt) -> Bool {
        let page = UInt(getpagesize())
        guard let start = UnsafeMutableRawPointer(bitPattern: place & ~(page - 1)),
            let slot = UnsafeMutableRawPointer(bitPattern: place),
            mprotect(start, Int(page), PROT_READ | PROT_WRITE) == 0
        else { return false }
        slot.storeBytes(of: function, as: UInt.self)
        return true
    }
}
#endif
