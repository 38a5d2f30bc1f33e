#if canImport(Darwin)
import Darwin
#elseif canImport(Musl)
import Musl
#else
import Glibc
#endif

/// The system's descriptions of error numbers.
enum POSIXErrorText {
    static func of(_ code: Int32) -> String {
        guard let text = unsafe strerror(code) else { return "unknown error" }
        return unsafe String(cString: text)
    }
}
