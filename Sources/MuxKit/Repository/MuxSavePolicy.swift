/// When a repository saves.
public enum MuxSavePolicy: Sendable, Hashable {
    /// When it is told to: ``MuxRepository/saveAll(within:)``.
    case explicit

    /// By itself, so long after a value was fetched or stored; what comes meanwhile is saved with it.
    ///
    /// What could not be saved is tried again with the next change, or when told to.
    case afterFetch(debounce: Duration)
}
