package fleet

import (
	"context"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/kvscope/kvscope/clock"
)

// Options are what a Finder, a Scraper and a Prober reach the world by, and
// how much of it they take. Zero values mean the defaults given.
type Options struct {
	// Do carries out a request; an http.Client's by default, which uses no
	// proxy, since engines are reached directly, as their event sockets are,
	// and follows redirects only within the host asked.
	Do func(*http.Request) (*http.Response, error)
	// LookupHost is net.DefaultResolver's.
	LookupHost func(ctx context.Context, host string) ([]string, error)
	// OpenDir is os.DirFS, for discovery directories and the service account.
	OpenDir func(dir string) fs.FS
	// Getenv is os.Getenv, for where Kubernetes' API is.
	Getenv func(key string) string
	Clock  clock.Clock
	// Rand gives numbers in [0, 1) for jitter.
	Rand func() float64

	// Timeout bounds one GET, its whole answer included: 2 s.
	Timeout time.Duration
	// Parallel is the most GETs at one time: 32.
	Parallel int
	// Interval is the time from one scrape of a page to the next, give or take
	// a tenth: 2 s.
	Interval time.Duration
	// WholeEvery is how often a scraped page is handed on as a whole and not
	// only what is read of it: 1 minute.
	WholeEvery time.Duration
}

func or[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

func (o Options) withDefaults() Options {
	if o.Do == nil {
		o.Do = newClient(nil).Do
	}
	if o.LookupHost == nil {
		o.LookupHost = net.DefaultResolver.LookupHost
	}
	if o.OpenDir == nil {
		o.OpenDir = os.DirFS
	}
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	or(&o.Timeout, 2*time.Second)
	or(&o.Parallel, 32)
	or(&o.Interval, 2*time.Second)
	or(&o.WholeEvery, time.Minute)
	return o
}
