extension MuxPages {
    /// The loaded pages of a list.
    public struct Window: Sendable {
        /// One page of the window.
        struct Part: Sendable, Hashable {
            /// The cursor; `nil` for the first page of the list.
            var cursor: Cursor?
            /// The number of items of the page.
            var count: Int
        }

        /// The items, in the order of the server; no two items have the same ID.
        public private(set) var items: [Item] = []
        private(set) var parts: [Part] = []
        /// The cursor of the next page; `nil` after the last page.
        private(set) var next: Cursor?
        /// The cursors of the pages before the window, in order; above ``maximumEarlier`` pages, the first
        /// cursor and the last cursors.
        private(set) var earlier: [Cursor?]

        /// The maximum number of cursors in ``earlier``.
        static var maximumEarlier: Int { 1_000 }

        init(earlier: [Cursor?] = []) { self.earlier = earlier }

        /// Whether the server may have items after ``items``: a next page exists.
        public var hasMore: Bool { self.next != nil }

        /// Whether pages before ``items`` were removed (``MuxPages``, Limits).
        ///
        /// A clear of ``MuxPages/window`` makes the list begin again with the first page.
        public var hasEarlier: Bool { !self.earlier.isEmpty }

        /// The item with an ID; `nil` without the item.
        ///
        /// For a change that the server does not have yet:
        ///
        /// ```swift
        /// let change = Backend.feed.window.change { $0[post.id]?.isLiked = true }
        /// ```
        ///
        /// An assignment of `nil` removes the item. An assignment has no effect if the window has no item
        /// with `id`, or if the new item has another ID. Until the end of the change, the closure of the
        /// change also applies to pages that are loaded later.
        ///
        /// - Complexity: O(*n*) for *n* items.
        public subscript(id: Item.ID) -> Item? {
            get { self.items.first { $0.id == id } }
            set {
                guard newValue.map({ $0.id == id }) ?? true, let place = self.items.firstIndex(where: { $0.id == id })
                else { return }
                if let newValue {
                    self.items[place] = newValue
                    return
                }
                if let part = self.part(of: place) { self.parts[part].count -= 1 }
                self.items.remove(at: place)
            }
        }

        /// The index of the page that has the item at an index of ``items``; `nil` for an index after the
        /// end.
        func part(of place: Int) -> Int? {
            var rest = place
            return self.parts.firstIndex { part in
                rest -= part.count
                return rest < 0
            }
        }

        /// The indices of the first and the last page with one of the items; `nil` without such an item.
        func parts(with ids: Set<Item.ID>) -> ClosedRange<Int>? {
            guard let first = self.items.firstIndex(where: { ids.contains($0.id) }).flatMap({ self.part(of: $0) }),
                let last = self.items.lastIndex(where: { ids.contains($0.id) }).flatMap({ self.part(of: $0) })
            else { return nil }
            return first...last
        }

        /// Appends the new items of a page.
        ///
        /// A page without new items becomes part of the page before, and a page after an empty page becomes
        /// part of the empty page.
        ///
        /// - Returns: Whether the page has new items.
        /// - Throws: ``MuxPagesError/repeatedCursor``.
        mutating func append(_ page: Page, at cursor: Cursor?) throws -> Bool {
            if let next = page.next {
                let former = [cursor] + self.earlier + self.parts.map(\.cursor)
                if former.contains(next) { throw MuxPagesError.repeatedCursor }
            }
            var ids = Set(self.items.lazy.map(\.id))
            let new = page.items.filter { ids.insert($0.id).inserted }
            self.items += new
            self.next = page.next
            if let last = self.parts.indices.last, new.isEmpty || self.parts[last].count == 0 {
                self.parts[last].count += new.count
            } else {
                self.parts.append(Part(cursor: cursor, count: new.count))
            }
            return !new.isEmpty
        }

        /// Removes pages above the maximum number of pages: first at the start, then at the end.
        ///
        /// The pages with the items `visible`, the pages between, and one page on each side stay. Without
        /// such items, the last pages stay.
        mutating func limit(to maximumPages: Int, keeping visible: Set<Item.ID>) {
            let shown = self.parts(with: visible) ?? self.parts.count...self.parts.count
            let count = self.parts.count
            for _ in 0..<max(0, min(count - maximumPages, shown.lowerBound - 1)) {
                let first = self.parts.removeFirst()
                self.items.removeFirst(first.count)
                self.earlier.append(first.cursor)
                // The first cursor stays, so that a user who scrolls back reaches the first page of the list.
                if self.earlier.count > Self.maximumEarlier { self.earlier.remove(at: 1) }
            }
            for _ in 0..<max(0, min(self.parts.count - maximumPages, count - shown.upperBound - 2)) {
                let last = self.parts.removeLast()
                self.items.removeLast(last.count)
                self.next = last.cursor
            }
        }
    }
}

extension MuxPages.Window: Equatable where Item: Equatable {}

extension MuxPages.Window: Codable where Item: Codable, Cursor: Codable {
    private enum CodingKeys: CodingKey { case items, parts, next, earlier }

    /// Decodes the pages of a former process.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        self.items = try values.decode([Item].self, forKey: .items)
        self.parts = try values.decode([Part].self, forKey: .parts)
        self.next = try values.decodeIfPresent(Cursor.self, forKey: .next)
        self.earlier = try values.decode([Cursor?].self, forKey: .earlier)
        var rest = self.items.count
        for part in self.parts where rest >= 0 { rest = (0...rest).contains(part.count) ? rest - part.count : -1 }
        guard rest == 0, !self.parts.isEmpty, Set(self.items.map(\.id)).count == self.items.count,
            self.earlier.count <= Self.maximumEarlier
        else {
            throw DecodingError.dataCorruptedError(
                forKey: .parts,
                in: values,
                debugDescription: """
                    The pages do not match the items, the IDs of the items are not unique, or the list has too many earlier \
                    pages.
                    """
            )
        }
    }
}

extension MuxPages.Window.Part: Codable where Cursor: Codable {}
