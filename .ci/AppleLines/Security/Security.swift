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

public func SecItemCopyMatching(_ query: CFDictionary, _ result: UnsafeMutablePointer<CFTypeRef?>?) -> OSStatus {
    fatalError()
}
public func SecItemAdd(_ attributes: CFDictionary, _ result: UnsafeMutablePointer<CFTypeRef?>?) -> OSStatus {
    fatalError()
}
public func SecItemUpdate(_ query: CFDictionary, _ attributesToUpdate: CFDictionary) -> OSStatus { fatalError() }
public func SecItemDelete(_ query: CFDictionary) -> OSStatus { fatalError() }
