import Foundation
import MuxKit

// The page about the dependency runner.

func runWithADependency() async throws {
    let runner = DependentRunner<Int>()
    let three = try await runner.run { value in
        value == 3 ? .output(value) : .badDependency
    } update: { refused in
        .updatedDependency((refused ?? 0) + 1)
    }
    _ = three
}

func runWithTokens() async throws {
    let oauth = OAuthDependentRunner<String, String>(
        store: .protectedFile(named: "session"),
        refreshAccess: { refresh in try await api.refresh(refresh) },
        signIn: { try await ui.askForPassword() }
    )
    let page = try await oauth.run { access in
        let reply = try await api.page(token: access)
        return reply.status == 401 ? .badDependency : .output(reply.body)
    }
    _ = page
}
