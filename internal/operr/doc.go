// Package operr has the errors of operations. Their texts name package, operation and object once: "session: get /b: no such
// znode".
//
// # Rules
//
// A sentinel error is bare: "no such znode", not "session: no such znode". Each function of a package that a user may call adds
// the package's name, the operation and the object by [New]. So do the errors that a package gives to callbacks, puts into views
// and logs. When such an error goes through another package, that package wraps it by New once more: the text then has the outer
// package's name alone, and an operation on the same object is named by the outer one alone. Nothing is cut out of texts: New
// keeps the error that it wraps, and leaves out names when the text is made.
//
// fmt.Errorf makes its text at once, with all names. So an error that may be one of this package is joined to a sentinel by
// [Because], and not by fmt.Errorf.
package operr
