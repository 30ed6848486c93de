// Package diagnose holds the checks: what can be wrong with a fleet's cache
// events, as findings with evidence. Checks are rows of one table and pure
// functions of what they look at.
package diagnose
