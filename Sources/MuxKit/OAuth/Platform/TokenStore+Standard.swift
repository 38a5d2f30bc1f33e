#if os(tvOS)
extension TokenStore where Self == KeychainTokenStore {
    /// The store for the platform: the keychain, for tvOS has no folder that the system does not empty.
    ///
    /// - Parameter name: Tells the tokens from others of the app: any text.
    /// - Returns: The store.
    public static func standard(named name: String) -> KeychainTokenStore { KeychainTokenStore(named: name) }
}
#else
extension TokenStore where Self == ProtectedFileTokenStore {
    /// The store for the platform: a protected file; on tvOS, which has no folder that the system does not empty, the keychain.
    ///
    /// - Parameter name: Tells the tokens from others of the app: any text.
    /// - Returns: The store.
    public static func standard(named name: String) -> ProtectedFileTokenStore { ProtectedFileTokenStore(named: name) }
}
#endif
