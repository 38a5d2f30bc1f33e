/// What the statuses of the keychain mean: decided here, for any platform, and carried out by `KeychainTokenStore`.
package enum KeychainAnswer {
    package static let success: Int32 = 0
    package static let duplicateItem: Int32 = -25_299
    package static let itemNotFound: Int32 = -25_300
    package static let interactionNotAllowed: Int32 = -25_308
    package static let missingEntitlement: Int32 = -34_018

    /// Replaces an item, whoever else adds or removes it meanwhile.
    package struct Replacement: Sendable {
        /// What to do next.
        package enum Action: Sendable, Equatable {
            /// Update the item.
            case update
            /// Add an item, for there is none.
            case add
            /// The item is as it should be.
            case done
            /// Give up: the keychain refuses with this status.
            case fail(Int32)
        }

        /// The first thing to do.
        package static let first = Action.update

        /// How often another process may come between before that is an error.
        private var races = 3

        package init() {}

        /// The keychain has answered to an update or an addition.
        package mutating func answered(_ status: Int32) -> Action {
            switch status {
            case KeychainAnswer.success: return .done
            case KeychainAnswer.itemNotFound where self.races > 0:
                self.races -= 1
                return .add
            // Another process added it between our update and our addition.
            case KeychainAnswer.duplicateItem where self.races > 0: return .update
            default: return .fail(status)
            }
        }
    }

    /// A sentence for a person, which says what would help if that is known.
    package static func words(for status: Int32) -> String {
        switch status {
        case Self.missingEntitlement:
            """
            The app may not use the keychain (status \(status)): it is not signed with an application identifier or a \
            keychain access group. Sign it with one, or keep the tokens in a protected file (.protectedFile(named:)).
            """
        case Self.interactionNotAllowed:
            "The keychain cannot be read before the device is unlocked for the first time (status \(status))."
        default: "The keychain answered with status \(status)."
        }
    }
}
