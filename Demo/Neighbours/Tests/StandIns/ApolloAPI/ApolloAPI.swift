/// A query of Apollo 1.
public protocol GraphQLQuery {
    /// The data.
    associatedtype Data
}
