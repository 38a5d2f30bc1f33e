#if canImport(SwiftUI)
import Foundation
import ImageIO
import MuxKit
import MuxNetwork
import MuxUI
import SwiftUI

/// A list of articles with pictures, behind a sign-in: a sample to copy.
///
/// Add `@main`, and start an app target with the file. The views are only compiled here, against stand-ins
/// (`.ci/apple-lines`).
struct ArticlesApp: App {
    private let backend = URL(string: "https://articles.example.org").map { ArticlesBackend(server: $0) }

    var body: some Scene {
        WindowGroup { if let backend { ArticleList(backend: backend) } }
    }
}

/// The list, shown from the cache at once and renewed by a pull.
struct ArticleList: View {
    private let backend: ArticlesBackend
    @State private var articles: ObservedValue<[Article]>

    init(backend: ArticlesBackend) {
        self.backend = backend
        self._articles = State(wrappedValue: backend.articles.observed())
    }

    var body: some View {
        NavigationStack {
            PhaseView(self.articles) { articles in
                List(articles) { article in ArticleRow(article: article) }
            }
            .refreshable { await self.articles.reload() }
            .navigationTitle("Articles")
            .toolbar {
                ToolbarItem(placement: .primaryAction) {
                    Button("Sign Out") {
                        Task {
                            await self.backend.signOut()
                            await self.articles.reload()  // asks the next user
                        }
                    }
                }
                ToolbarItem(placement: .status) {
                    if self.articles.isStale { Text("Not up to date") }
                }
            }
        }
        .sheet(isPresented: self.isAsking) { SignInForm(prompt: self.backend.prompt) }
    }

    /// The form is visible while a request waits for a sign-in; a swipe that dismisses the form declines.
    private var isAsking: Binding<Bool> {
        let prompt = self.backend.prompt
        return Binding { @MainActor in
            prompt.isAsking
        } set: { @MainActor isPresented in
            if !isPresented { prompt.end(.failure(SignInPrompt.Declined())) }
        }
    }
}

/// A row with the title and the optional picture of an article.
struct ArticleRow: View {
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
                    if case .loaded(let image) = phase { image.resizable().scaledToFill() } else { ProgressView() }
                }
                .frame(width: 56, height: 56)
            }
            Text(self.article.title)
        }
    }
}

/// Asks for name and password.
struct SignInForm: View {
    let prompt: SignInPrompt
    @State private var user = SignInPrompt.Credentials(name: "", password: "")

    var body: some View {
        Form {
            TextField("Name", text: self.$user.name).textContentType(.username)
            SecureField("Password", text: self.$user.password).textContentType(.password)
            Button("Sign In") { self.prompt.end(.success(self.user)) }
        }
    }
}
#endif
