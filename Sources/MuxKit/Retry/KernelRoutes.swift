/// Reads Linux's tables of routes.
package enum KernelRoutes {
    private static let up = 0x1
    private static let reject = 0x200

    /// Whether one of the tables has a way to everywhere that is up.
    ///
    /// - Parameters:
    ///   - ipv4: The text of `/proc/net/route`: name, destination, gateway, flags, …, mask in the eighth column.
    ///   - ipv6: The text of `/proc/net/ipv6_route`: destination, its length, …, flags and name at the end.
    /// - Returns: Whether there is one.
    package static func haveDefault(ipv4: String, ipv6: String) -> Bool {
        let v4 = ipv4.split(separator: "\n").contains { line in
            let fields = line.split { $0 == " " || $0 == "\t" }
            return fields.count >= 8 && self.isZero(fields[1]) && self.isZero(fields[7]) && self.isUsable(fields[3])
        }
        return v4
            || ipv6.split(separator: "\n").contains { line in
                let fields = line.split { $0 == " " || $0 == "\t" }
                return fields.count >= 10 && self.isZero(fields[0]) && self.isZero(fields[1])
                    && self.isUsable(fields[8]) && fields[9] != "lo"
            }
    }

    private static func isZero(_ field: Substring) -> Bool { field.allSatisfy { $0 == "0" } }

    private static func isUsable(_ flags: Substring) -> Bool {
        guard let flags = Int(flags, radix: 16) else { return false }
        return flags & self.up != 0 && flags & self.reject == 0
    }
}
