// Command soak measures the tap under load: many simulated replicas publish
// recorded-like batches at a fixed rate, and the tap with its index, a recorder
// that is killed in the midst, and pyzmq as a peer listen to them. It then looks
// for the highest rate at which each still loses nothing.
//
// Every role is a process of its own, so that its processor time is its own.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	var (
		role     = flag.String("role", "", "for the program itself: publish or tap")
		index    = flag.Bool("index", true, "role tap: keep the index")
		replicas = flag.Int("replicas", 64, "simulated replicas")
		rate     = flag.Int("rate", 5000, "batches a second, of all replicas together")
		duration = flag.Duration("duration", 5*time.Minute, "how long the soak runs")
		search   = flag.Bool("search", true, "look for the highest rates afterwards")
		step     = flag.Duration("step", 5*time.Second, "how long each rate of the search is tried")
		python   = flag.String("python", "python3", "a Python with pyzmq; empty to leave the peer out")
		kvscope  = flag.String("kvscope", "bin/kvscope", "the program that records")
	)
	flag.Parse()
	var err error
	switch *role {
	case "publish":
		err = publish(*replicas, os.Stdin, os.Stdout)
	case "tap":
		err = listen(*index, os.Stdin, os.Stdout)
	default:
		s := soak{replicas: *replicas, rate: *rate, duration: *duration, step: *step, python: *python, kvscope: *kvscope}
		err = s.run(*search)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}
