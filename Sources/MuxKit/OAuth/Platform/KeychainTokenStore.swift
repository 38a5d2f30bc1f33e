#if canImport(Security)
public import Foundation
import Security

/// Keeps tokens in the keychain.
///
/// The tokens can be read after the first unlock of the device since its start, and stay on this device. If
/// an item cannot be read now, the load throws an error and never returns `nil`.
///
/// Several processes share the tokens through an access group; the runner then needs a lease, such as a
/// ``FileLease`` in a folder of the processes' app group.
///
/// Calls to the keychain run on a Dispatch thread, because the calls may block. `KeychainAnswer` interprets
/// the status codes, and is tested on any platform.
///
/// Written from Apple's documentation. `.ci/apple-lines` compiles the type on Linux against stubs of Apple's
/// modules; no Apple SDK has compiled the type.
/// https://developer.apple.com/documentation/security/storing-keys-in-the-keychain
public struct KeychainTokenStore: TokenStore {
    /// A status code of the keychain, as an error.
    public struct Failure: Error, LocalizedError, CustomStringConvertible, Hashable, Sendable {
        /// An `OSStatus`, such as `errSecInteractionNotAllowed` on a locked device.
        public let status: Int32

        /// A description of the status code, with the remedy if known.
        public var errorDescription: String? { self.description }

        /// The same as ``errorDescription``.
        public var description: String { KeychainAnswer.words(for: self.status) }
    }

    private let name: String
    private let accessGroup: String?

    /// Describes a store; does not access the keychain yet.
    ///
    /// - Parameters:
    ///   - name: The service attribute of the item.
    ///   - accessGroup: The group of apps that share the item; `nil` for this app only.
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

    /// Returns the data of the last save; `nil` without an item.
    ///
    /// - Throws: ``Failure`` if an item may exist but cannot be read now.
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
    /// - Throws: ``Failure``.
    public func save(_ data: Data) async throws {
        try await Self.offPool {
            let values: [CFString: Any] = [
                kSecValueData: data,
                kSecAttrAccessible: kSecAttrAccessibleAfterFirstUnlockThisDeviceOnly,
            ]
            let status = KeychainAnswer.replace {
                SecItemUpdate(self.query as CFDictionary, values as CFDictionary)
            } add: {
                SecItemAdd(self.query.merging(values) { $1 } as CFDictionary, nil)
            }
            guard status == KeychainAnswer.success else { throw Failure(status: status) }
        }
    }

    /// Removes the item; succeeds without an item.
    ///
    /// - Throws: ``Failure``.
    public func remove() async throws {
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
