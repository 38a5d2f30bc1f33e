// A warning in a copy of the library: packages that depend on the library by path must build nevertheless.
func planted() {
    let unused = 1
}
