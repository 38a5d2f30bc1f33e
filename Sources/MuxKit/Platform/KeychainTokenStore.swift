#if canImport(Security)
public import Foundation
import Security

/// Keeps tokens in the keychain.
///
/// They can be read once the device was unlocked after it started, and stay on this device. An item that cannot be read now
/// is an error and never taken for "nothing".
///
/// Several processes share the tokens through an access group; give the runner a ``FileLease`` in a folder of their app group
/// then.
///
/// Written from the documentation of keychain services; not compiled where this package is developed:
/// https://developer.apple.com/documentation/security/storing-keys-in-the-keychain
public struct KeychainTokenStore: TokenStore {
    /// What the keychain answered.
    public struct Failure: Error, LocalizedError, Hashable, Sendable {
        /// An `OSStatus`, such as `errSecInteractionNotAllowed` on a locked device.
        public let status: Int32

        /// The number, and no more.
        public var errorDescription: String? { "The keychain answered with status \(self.status)." }
    }

    private let name: String
    private let accessGroup: String?

    /// Describes a store; touches nothing yet.
    ///
    /// - Parameters:
    ///   - name: The service attribute of the item.
    ///   - accessGroup: The group of apps that share the item; `nil` for this app alone.
    public init(named name: String, accessGroup: String? = nil) {
        self.name = name
        self.accessGroup = accessGroup
    }

    private var query: [CFString: Any] {
        var query: [CFString: Any] = [
            kSecClass: kSecClassGenericPassword,
            kSecAttrService: self.name,
            kSecAttrAccount: "MuxKit",
            kSecUseDataProtectionKeychain: true,
        ]
        if let accessGroup { query[kSecAttrAccessGroup] = accessGroup }
        return query
    }

    /// Returns what was saved last; `nil` if there is no item.
    ///
    /// - Throws: ``Failure`` if there may be one and it cannot be read now.
    public func load() async throws -> Data? {
        var query = self.query
        query[kSecReturnData] = true
        let request = query as CFDictionary
        var item: CFTypeRef?
        let status = unsafe SecItemCopyMatching(request, &item)
        if status == errSecItemNotFound { return nil }
        guard status == errSecSuccess, let data = item as? Data else { throw Failure(status: status) }
        return data
    }

    /// Replaces the item's data.
    ///
    /// - Throws: ``Failure``; the old data are still there then.
    public func save(_ data: Data) async throws {
        let values: [CFString: Any] = [
            kSecValueData: data,
            kSecAttrAccessible: kSecAttrAccessibleAfterFirstUnlockThisDeviceOnly,
        ]
        var status = SecItemUpdate(self.query as CFDictionary, values as CFDictionary)
        if status == errSecItemNotFound {
            status = unsafe SecItemAdd(self.query.merging(values) { $1 } as CFDictionary, nil)
        }
        guard status == errSecSuccess else { throw Failure(status: status) }
    }

    /// Removes the item; that there is none is as good.
    ///
    /// - Throws: ``Failure``.
    public func delete() async throws {
        let status = SecItemDelete(self.query as CFDictionary)
        guard status == errSecSuccess || status == errSecItemNotFound else { throw Failure(status: status) }
    }
}
#endif
