#if os(tvOS)
extension TokenStore where Self == KeychainTokenStore {
    /// The standard store of the platform: the keychain, because the system may empty every folder on tvOS.
    ///
    /// - Parameter name: Distinguishes the tokens from other tokens of the app: any text.
    /// - Returns: The store.
    public static func standard(named name: String) -> KeychainTokenStore { KeychainTokenStore(named: name) }
}
#else
extension TokenStore where Self == ProtectedFileTokenStore {
    /// The standard store of the platform: a protected file.
    ///
    /// On tvOS the standard store is the keychain, because the system may empty every folder.
    ///
    /// - Parameter name: Distinguishes the tokens from other tokens of the app: any text.
    /// - Returns: The store.
    public static func standard(named name: String) -> ProtectedFileTokenStore { ProtectedFileTokenStore(named: name) }
}
#endif
