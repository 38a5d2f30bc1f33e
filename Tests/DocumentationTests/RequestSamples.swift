import Foundation
import MuxKit
import MuxNetwork

// The pages of MuxNetwork.
