#if canImport(SwiftUI)
import Foundation
import ImageIO
import MuxKit
import MuxNetwork
import SwiftUI

/// A list of articles with pictures, behind a sign-in.
///
/// This app is a sample to copy: add `@main` and start an app target with the file. The views are written
/// from the documentation of SwiftUI. The model is compiled and tested on Linux. The views are only compiled,
/// against stand-ins (`.ci/apple-lines`).
struct ArticlesApp: App {
    @State private var model = Self.model

    var body: some Scene {
        WindowGroup {
            if let model {
                ArticleList(model: model)
            } else {
                ContentUnavailableView("The server's address is not valid.", systemImage: "network.slash")
            }
        }
    }

    private static var model: ArticlesModel? {
        URL(string: "https://articles.example.org").flatMap { try? ArticlesModel(server: $0) }
    }
}

/// The list, shown from the cache at once and renewed by a pull.
struct ArticleList: View {
    let model: ArticlesModel

    var body: some View {
        NavigationStack {
            List(self.model.articles) { article in
                ArticleRow(article: article)
            }
            .overlay {
                if let problem = self.model.problem, self.model.articles.isEmpty {
                    ContentUnavailableView(problem, systemImage: "exclamationmark.triangle")
                }
            }
            .refreshable { await self.model.reload() }
            .navigationTitle("Articles")
            .toolbar {
                ToolbarItem(placement: .primaryAction) {
                    Button("Sign Out") { Task { await self.model.signOut() } }
                }
                ToolbarItem(placement: .status) {
                    if self.model.isStale { Text("Not up to date") }
                }
            }
        }
        .task { await self.model.follow() }
        .task { await self.model.load() }
        .sheet(isPresented: self.isAsking) { SignInForm(prompt: self.model.prompt) }
    }

    /// The form is visible while a request waits for a sign-in; a swipe that dismisses the form declines.
    private var isAsking: Binding<Bool> {
        let prompt = self.model.prompt
        return Binding { @MainActor in
            prompt.isAsking
        } set: { @MainActor isPresented in
            if !isPresented { prompt.decline() }
        }
    }
}

/// A row with the title and the optional picture of an article.
struct ArticleRow: View {
    /// The decoded pictures of all rows.
    private static let pictures = DecodedMedia<Image>(maximumCost: 64 << 20) { file in
        guard let source = CGImageSourceCreateWithURL(file as CFURL, nil),
            let picture = CGImageSourceCreateImageAtIndex(source, 0, nil)
        else { throw CocoaError(.fileReadCorruptFile) }
        return (Image(decorative: picture, scale: 1), cost: picture.bytesPerRow * picture.height)
    }

    let article: Article

    var body: some View {
        HStack(spacing: 12) {
            if let url = self.article.image {
                RemoteImage(url: url, in: Self.pictures) { phase in
                    switch phase {
                    case .loaded(let image): image.resizable().scaledToFill()
                    case .failed: Image(systemName: "photo.badge.exclamationmark")
                    default: ProgressView()
                    }
                }
                .frame(width: 56, height: 56)
                .clipShape(RoundedRectangle(cornerRadius: 8))
            }
            Text(self.article.title)
        }
    }
}

/// Asks for name and password.
struct SignInForm: View {
    let prompt: SignInPrompt
    @State private var name = ""
    @State private var password = ""

    var body: some View {
        NavigationStack {
            Form {
                TextField("Name", text: self.$name).textContentType(.username)
                SecureField("Password", text: self.$password).textContentType(.password)
                Button("Sign In") {
                    self.prompt.answer(.init(name: self.name, password: self.password))
                }
                .disabled(self.name.isEmpty || self.password.isEmpty)
            }
            .navigationTitle("Sign In")
        }
    }
}
#endif
