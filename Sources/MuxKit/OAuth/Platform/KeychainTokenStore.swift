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
/// The keychain is asked on a thread of its own, for it may take its time. What its answers mean is decided by
/// `KeychainAnswer`, which is tested on any platform.
///
/// Written from the documentation of keychain services; compiled here against stand-ins only (`.ci/apple-lines`):
/// https://developer.apple.com/documentation/security/storing-keys-in-the-keychain
public struct KeychainTokenStore: TokenStore {
    /// What the keychain answered.
    public struct Failure: Error, LocalizedError, CustomStringConvertible, Hashable, Sendable {
        /// An `OSStatus`, such as `errSecInteractionNotAllowed` on a locked device.
        public let status: Int32

        /// The number, and what would help if that is known.
        public var errorDescription: String? { self.description }

        /// The same as ``errorDescription``.
        public var description: String { KeychainAnswer.words(for: self.status) }
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
        try await Self.offPool {
            var query = self.query
            query[kSecReturnData] = true
            var item: CFTypeRef?
            let status = unsafe SecItemCopyMatching(query as CFDictionary, &item)
            if status == KeychainAnswer.itemNotFound { return nil }
            guard status == KeychainAnswer.success, let data = item as? Data else { throw Failure(status: status) }
            return data
        }
    }

    /// Replaces the item's data.
    ///
    /// - Throws: ``Failure``; the old data are still there then.
    public func save(_ data: Data) async throws {
        try await Self.offPool {
            let values: [CFString: Any] = [
                kSecValueData: data,
                kSecAttrAccessible: kSecAttrAccessibleAfterFirstUnlockThisDeviceOnly,
            ]
            var replacement = KeychainAnswer.Replacement()
            var action = KeychainAnswer.Replacement.first
            while true {
                switch action {
                case .update:
                    action = replacement.answered(SecItemUpdate(self.query as CFDictionary, values as CFDictionary))
                case .add:
                    let item = self.query.merging(values) { $1 }
                    action = replacement.answered(SecItemAdd(item as CFDictionary, nil))
                case .done: return
                case .fail(let status): throw Failure(status: status)
                }
            }
        }
    }

    /// Removes the item; that there is none is as good.
    ///
    /// - Throws: ``Failure``.
    public func delete() async throws {
        try await Self.offPool {
            let status = SecItemDelete(self.query as CFDictionary)
            guard [KeychainAnswer.success, KeychainAnswer.itemNotFound].contains(status) else {
                throw Failure(status: status)
            }
        }
    }

    private static func offPool<R: Sendable>(_ work: @escaping @Sendable () throws -> R) async throws -> R {
        try await BlockingWork.run { Result { try work() } }.get()
    }
}
#endif
