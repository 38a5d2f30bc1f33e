// swift-format-ignore-file
public import Foundation
public import FoundationOnApple

public typealias OSStatus = Int32

public var kSecClass: CFString { fatalError() }
public var kSecClassGenericPassword: CFString { fatalError() }
public var kSecAttrService: CFString { fatalError() }
public var kSecAttrAccount: CFString { fatalError() }
public var kSecAttrAccessGroup: CFString { fatalError() }
public var kSecAttrAccessible: CFString { fatalError() }
public var kSecAttrAccessibleAfterFirstUnlockThisDeviceOnly: CFString { fatalError() }
public var kSecUseDataProtectionKeychain: CFString { fatalError() }
public var kSecReturnData: CFString { fatalError() }
public var kSecValueData: CFString { fatalError() }

public var kSecImportExportPassphrase: CFString { fatalError() }
public var kSecImportItemIdentity: CFString { fatalError() }
public var kSecImportItemCertChain: CFString { fatalError() }
public final class SecIdentity {}

public func SecPKCS12Import(
    _ data: CFData, _ options: CFDictionary, _ items: UnsafeMutablePointer<CFArray?>
) -> OSStatus { fatalError() }
extension URLCredential {
    public enum Persistence: UInt, Sendable { case none, forSession, permanent, synchronizable }
    public convenience init(identity: SecIdentity, certificates: [Any]?, persistence: Persistence) { fatalError() }
}

public func SecItemCopyMatching(_ query: CFDictionary, _ result: UnsafeMutablePointer<CFTypeRef?>?) -> OSStatus {
    fatalError()
}
public func SecItemAdd(_ attributes: CFDictionary, _ result: UnsafeMutablePointer<CFTypeRef?>?) -> OSStatus {
    fatalError()
}
public func SecItemUpdate(_ query: CFDictionary, _ attributesToUpdate: CFDictionary) -> OSStatus { fatalError() }
public func SecItemDelete(_ query: CFDictionary) -> OSStatus { fatalError() }
