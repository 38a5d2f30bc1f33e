// swift-format-ignore-file
// The used views and modifiers.
public import CoreGraphics
public import Foundation

// MARK: - Containers

nonisolated public struct WindowGroup<Content: View>: Scene {
    public typealias Body = Never
    public init(@ViewBuilder content: @escaping () -> Content) { fatalError() }
}

nonisolated public struct NavigationStack<Data, Root: View>: View {
    public typealias Body = Never
    public init(@ViewBuilder root: () -> Root) where Data == NavigationPath { fatalError() }
}

public struct NavigationPath {}

nonisolated public struct List<SelectionValue: Hashable, Content: View>: View {
    public typealias Body = Never
}

extension List where SelectionValue == Never {
    nonisolated public init<Data: RandomAccessCollection, RowContent: View>(
        _ data: Data, @ViewBuilder rowContent: @escaping (Data.Element) -> RowContent
    ) where Content == ForEach<Data, Data.Element.ID, RowContent>, Data.Element: Identifiable { fatalError() }
}

nonisolated public struct ForEach<Data: RandomAccessCollection, ID: Hashable, Content> {}
extension ForEach: View where Content: View { public typealias Body = Never }

nonisolated public struct Form<Content: View>: View {
    public typealias Body = Never
    public init(@ViewBuilder content: () -> Content) { fatalError() }
}

nonisolated public struct HStack<Content: View>: View {
    public typealias Body = Never
    public init(alignment: VerticalAlignment = .center, spacing: CGFloat? = nil, @ViewBuilder content: () -> Content) {
        fatalError()
    }
}

nonisolated public struct ToolbarItem<ID, Content: View> {}
extension ToolbarItem: ToolbarContent where ID == () {
    public typealias Body = Never
    nonisolated public init(placement: ToolbarItemPlacement = .automatic, @ViewBuilder content: () -> Content) {
        fatalError()
    }
}

public struct ToolbarItemPlacement {
    public static let automatic = ToolbarItemPlacement()
    public static let primaryAction = ToolbarItemPlacement()
    public static let status = ToolbarItemPlacement()
}
extension ToolbarItemPlacement: Sendable {}

// MARK: - Contents

nonisolated public struct Text: View, Equatable, Sendable {
    public typealias Body = Never
    public init(
        _ key: LocalizedStringKey, tableName: String? = nil, bundle: Bundle? = nil, comment: StaticString? = nil
    ) { fatalError() }
    @_disfavoredOverload public init<S: StringProtocol>(_ content: S) { fatalError() }
}

nonisolated public struct Image: Equatable, Sendable {
    public enum Orientation: UInt8, Sendable { case up, down, left, right }
    public enum ResizingMode: Sendable { case tile, stretch }
    public init(systemName: String) { fatalError() }
    public init(decorative cgImage: CGImage, scale: CGFloat, orientation: Orientation = .up) { fatalError() }
    public func resizable(capInsets: EdgeInsets = EdgeInsets(), resizingMode: ResizingMode = .stretch) -> Image {
        fatalError()
    }
}
extension Image: View { public typealias Body = Never }

nonisolated public struct Label<Title: View, Icon: View>: View { public typealias Body = Never }

nonisolated public struct ContentUnavailableView<Label: View, Description: View, Actions: View>: View {
    public typealias Body = Never
}

extension ContentUnavailableView
where Label == SwiftUI.Label<Text, Image>, Description == Text?, Actions == EmptyView {
    nonisolated public init(_ title: LocalizedStringKey, systemImage name: String, description: Text? = nil) {
        fatalError()
    }
    @_disfavoredOverload
    nonisolated public init<S: StringProtocol>(_ title: S, systemImage name: String, description: Text? = nil) {
        fatalError()
    }
}

nonisolated public struct ProgressView<Label: View, CurrentValueLabel: View>: View {
    public typealias Body = Never
    public init() where Label == EmptyView, CurrentValueLabel == EmptyView { fatalError() }
}

nonisolated public struct Color: View, Hashable, Sendable {
    public typealias Body = Never
    public static let clear = Color()
}

nonisolated public struct Button<Label: View>: View { public typealias Body = Never }
extension Button where Label == Text {
    @preconcurrency nonisolated public init(_ titleKey: LocalizedStringKey, action: @escaping @MainActor () -> Void) {
        fatalError()
    }
    @_disfavoredOverload
    @preconcurrency nonisolated public init<S: StringProtocol>(_ title: S, action: @escaping @MainActor () -> Void) {
        fatalError()
    }
}

nonisolated public struct TextField<Label: View>: View { public typealias Body = Never }
extension TextField where Label == Text {
    nonisolated public init(_ titleKey: LocalizedStringKey, text: Binding<String>) { fatalError() }
}

nonisolated public struct SecureField<Label: View>: View { public typealias Body = Never }
extension SecureField where Label == Text {
    nonisolated public init(_ titleKey: LocalizedStringKey, text: Binding<String>) { fatalError() }
}

// `NSTextContentType` on macOS, `UITextContentType` elsewhere.
public struct TextContentType: Sendable {
    public static let username = TextContentType()
    public static let password = TextContentType()
}

// MARK: - Modifiers

extension View {
    nonisolated public func overlay<V: View>(
        alignment: Alignment = .center, @ViewBuilder content: () -> V
    ) -> some View { self }
    nonisolated public func refreshable(action: @escaping @Sendable () async -> Void) -> some View { self }
    nonisolated public func navigationTitle(_ titleKey: LocalizedStringKey) -> some View { self }
    @_disfavoredOverload
    nonisolated public func navigationTitle<S: StringProtocol>(_ title: S) -> some View { self }
    nonisolated public func toolbar<Content: View>(@ViewBuilder content: () -> Content) -> some View { self }
    nonisolated public func toolbar<Content: ToolbarContent>(
        @ToolbarContentBuilder content: () -> Content
    ) -> some View { self }
    // Before Xcode 26.4, the closures of these two modifiers were `@Sendable`.
    nonisolated public func task(
        priority: TaskPriority = .userInitiated, @_inheritActorContext _ action: @escaping @Sendable () async -> Void
    ) -> some View { self }
    nonisolated public func task<T: Equatable>(
        id value: T, priority: TaskPriority = .userInitiated,
        @_inheritActorContext _ action: @escaping @Sendable () async -> Void
    ) -> some View { self }
    nonisolated public func sheet<Content: View>(
        isPresented: Binding<Bool>, onDismiss: (() -> Void)? = nil, @ViewBuilder content: @escaping () -> Content
    ) -> some View { self }
    nonisolated public func scaledToFill() -> some View { self }
    nonisolated public func scaledToFit() -> some View { self }
    nonisolated public func frame(
        width: CGFloat? = nil, height: CGFloat? = nil, alignment: Alignment = .center
    ) -> some View { self }
    nonisolated public func clipShape<S: Shape>(_ shape: S, style: FillStyle = FillStyle()) -> some View { self }
    nonisolated public func textContentType(_ textContentType: TextContentType?) -> some View { self }
    nonisolated public func disabled(_ disabled: Bool) -> some View { self }
}

// MARK: - Shapes and places

public protocol Shape: Sendable, View {}

nonisolated public struct RoundedRectangle: Shape {
    public typealias Body = Never
    public init(cornerRadius: CGFloat, style: RoundedCornerStyle = .continuous) { fatalError() }
}

public enum RoundedCornerStyle: Sendable { case circular, continuous }
public struct FillStyle: Equatable, Sendable { public init(eoFill: Bool = false, antialiased: Bool = true) {} }
public struct EdgeInsets: Equatable, Sendable { public init() {} }
public struct Alignment: Equatable, Sendable { public static let center = Alignment() }
public struct VerticalAlignment: Equatable, Sendable { public static let center = VerticalAlignment() }
