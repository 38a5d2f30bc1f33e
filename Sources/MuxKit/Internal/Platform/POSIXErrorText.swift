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
        #if canImport(Darwin)
        // `strerror` of Apple's libc returns a buffer that all threads share.
        var text = [CChar](repeating: 0, count: 256)
        guard unsafe strerror_r(code, &text, text.count) == 0 else { return "unknown error" }
        return String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        #else
        guard let text = unsafe strerror(code) else { return "unknown error" }
        return unsafe String(cString: text)
        #endif
    }
}
