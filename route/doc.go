// Package route holds the decision rules of real routers, as pure functions in a
// table of policies (policies.go): from candidates, what each of them holds of a
// prompt and how loaded it is, to terms, cost, chances and the set of those that
// can be chosen. It reads nothing, and has neither clock nor randomness.
//
// Everything but Sequences is safe for concurrent use as long as nobody changes
// what it is given.
package route
