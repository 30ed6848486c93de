// Package sim makes workloads and, in time, engines to try kvscope on. So far
// it has the kvbench workload: a deterministic stream of cache events and
// queries for which the scores of Dynamo's index are known.
//
// Values are plain data, safe to share between goroutines once built.
package sim
