/// A queue whose elements leave in the order of arrival.
package struct FIFOQueue<Element> {
    private var places: [Element?] = []
    /// The index of the first element; earlier places are vacated.
    private var head = 0

    package init() {}

    package var isEmpty: Bool { self.head == self.places.count }

    /// The number of places, including vacated places.
    package var placeCount: Int { self.places.count }

    package mutating func append(_ element: Element) { self.places.append(element) }

    /// Removes and returns the first element; `nil` if the queue is empty.
    ///
    /// - Complexity: O(1), amortised: the vacated places are removed if more than 16 places, and more than
    ///   half of all places, are vacated.
    package mutating func popFirst() -> Element? {
        guard !self.isEmpty else { return nil }
        defer {
            self.head += 1
            if self.head > 16, self.head * 2 > self.places.count {
                self.places.removeFirst(self.head)
                self.head = 0
            }
        }
        return self.places[self.head].take()
    }

    /// Removes the matching elements from any position.
    ///
    /// - Complexity: O(*n*).
    package mutating func removeAll(where isRemoved: (Element) -> Bool) {
        self.places = self.places[self.head...].filter { $0.map { !isRemoved($0) } ?? false }
        self.head = 0
    }
}

extension FIFOQueue: Sendable where Element: Sendable {}
