// A warning in a copy of the library: whoever depends on it by path has to be able to build all the same.
func planted() {
    let unused = 1
}
