/// When a repository saves.
public enum MuxSavePolicy: Sendable, Hashable {
    /// When it is told to: ``MuxRepository/saveAll(within:)``.
    ///
    /// Under any policy a map whose ``MuxPolicy/maximumCount`` is taken up by values that are not on disk yet saves them.
    case explicit

    /// When it is told to, and on Apple platforms when the app enters the background, or a Mac app is left or quit.
    ///
    /// The system is asked for the time that it takes; an app that is quit is held up for it, for four seconds at most.
    /// Elsewhere there is no background, and this is ``explicit``.
    case enteringBackground

    /// By itself, so long after a value was fetched or stored; what comes meanwhile is saved with it.
    ///
    /// On Apple platforms also when the app enters the background, without waiting. What could not be saved is tried again
    /// with the next change, or when told to.
    case afterFetch(debounce: Duration)
}
