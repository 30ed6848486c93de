// Package report writes what is known of a fleet as JSON, whose schemas other
// tools build on, and as text. It only formats: every number comes from a
// Snapshot, the findings or an audit.
package report
