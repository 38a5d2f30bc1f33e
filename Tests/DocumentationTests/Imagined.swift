import Foundation
import MuxKit
import MuxNetwork

// Declarations that the samples use and do not show.

struct Profile: Codable, Sendable { var name = "" }
struct User: Codable, Sendable { var name = "" }
struct Photo: Codable, Sendable { var data = Data() }
struct Place: Codable, Sendable { var name = "" }
struct Menu: Codable, Sendable { var dishes: [String] = [] }
struct Post: Codable, Sendable { var author = "" }
struct Forecast: Codable, Sendable { var degrees = 0.0 }
struct Settings: Codable, Sendable { var size = 0 }

enum Backend {
    static func myProfile() async throws -> Profile { Profile() }
    static func profile(token: String) async throws -> Profile { Profile() }
    static func user(_ id: String) async throws -> User { User() }
    static func settings(_ name: String) async throws -> Settings { Settings() }
    static func forecast() async throws -> Forecast { Forecast() }
    static func forecast(of name: String) async throws -> Forecast { Forecast() }
    static func prices(of ids: [String]) async throws -> [String: Int] { [:] }
    static func refresh(_ refresh: String) async throws -> OAuthRenewal<String, String> { .init(access: "") }
    static func signIn() async throws -> OAuthSignIn<String, String> { .init(refresh: "") }
}

struct Reply: Sendable {
    var status = 200
    var body = Data()
}

struct API: Sendable {
    func page(token: String) async throws -> Reply { Reply() }
    func me(token: String) async throws -> Profile { Profile() }
    func user(_ id: String, token: String = "") async throws -> User { User() }
    func refresh(_ refresh: String) async throws -> OAuthRenewal<String, String> { .init(access: "") }
    func place(_ id: String) async throws -> Place { Place() }
    func menu(_ id: String) async throws -> Menu { Menu() }
    func post(_ id: String) async throws -> Post { Post() }
}

struct UserInterface: Sendable {
    func askForPassword() async throws -> OAuthSignIn<String, String> { .init(refresh: "") }
    func say(_ text: String) async {}
}

final class Label {
    var text = ""
    func show(_ text: String) { self.text = text }
}

@available(*, unavailable)
extension Label: Sendable {}

let api = API()
let ui = UserInterface()
let sharedFolder = FileManager.default.temporaryDirectory
