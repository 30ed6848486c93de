package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/kvscope/kvscope/web"
	"github.com/kvscope/kvscope/wire"
)

// maxBody is the largest answer that a GET takes, in bytes. A page of vLLM has
// 50 KB for each data-parallel rank.
const maxBody = 4 << 20

// Page is the answer to one GET.
type Page struct {
	// URL is what was asked, without a password and a query, which can hold a
	// token.
	URL    string
	Status int
	Body   []byte
	// Date is the server's own clock as its Date header tells it, in whole
	// seconds, 0 where there is none.
	Date wire.Time
	// Sent and Received are when the request left and when the answer was
	// read, by our clock.
	Sent, Received wire.Time
}

// RoundTrip is the time from the request to the whole answer.
func (p Page) RoundTrip() time.Duration { return time.Duration(p.Received - p.Sent) }

// Ahead bounds how far the server's clock is ahead of ours; negative means
// behind. It reports false where the server gave no time. Both bounds on one
// side of zero prove that the clocks differ; no single page tells a skew of
// less than two seconds, since Date is cut to a second, and servers renew it
// only once a second.
func (p Page) Ahead() (least, most time.Duration, ok bool) {
	if p.Date == 0 {
		return 0, 0, false
	}
	least = time.Duration(p.Date - p.Received)
	most = time.Duration(p.Date-p.Sent) + 2*time.Second
	return least, most, true
}

// StatusError is an answer other than 200.
type StatusError struct {
	URL    string
	Status int
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("GET %s: %d %s", e.URL, e.Status, http.StatusText(e.Status))
}

// Prober GETs pages. It sends nothing else.
type Prober struct {
	opt   Options
	slots chan struct{}
	// injected says that Options.Do is not our own client.
	injected bool
}

// NewProber makes a Prober.
func NewProber(opt Options) *Prober {
	injected := opt.Do != nil
	opt = opt.withDefaults()
	return &Prober{opt: opt, slots: make(chan struct{}, opt.Parallel), injected: injected}
}

// Probe GETs a page of at most 4 MB. An answer other than 200 is a
// *StatusError, and the Page is filled all the same.
func (p *Prober) Probe(ctx context.Context, rawURL string) (Page, error) {
	return p.get(ctx, p.opt.Do, rawURL, "")
}

func (p *Prober) get(ctx context.Context, do func(*http.Request) (*http.Response, error), rawURL, token string) (Page, error) {
	u, err := web.Parse(rawURL)
	if err != nil {
		return Page{}, err
	}
	page := Page{URL: web.Shown(u)}
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return page, fmt.Errorf("GET %s: %w", page.URL, ctx.Err())
	}
	ctx, cancel := context.WithTimeout(ctx, p.opt.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return page, fmt.Errorf("GET %s: %w", page.URL, web.Cause(err))
	}
	req.Header.Set("User-Agent", "kvscope")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	page.Sent = p.now()
	resp, err := do(req)
	if err == nil {
		page.Body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
		_ = resp.Body.Close() // read as far as it is wanted
	}
	page.Received = p.now()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return page, fmt.Errorf("GET %s: no answer within %s", page.URL, p.opt.Timeout)
	case err != nil:
		return page, fmt.Errorf("GET %s: %w", page.URL, web.Cause(err))
	case len(page.Body) > maxBody:
		page.Body = nil
		return page, fmt.Errorf("GET %s: the answer has more than %d bytes", page.URL, maxBody)
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		page.Date, _ = wire.TimeOf(float64(date.Unix()))
	}
	if page.Status = resp.StatusCode; page.Status != http.StatusOK {
		return page, &StatusError{page.URL, page.Status}
	}
	return page, nil
}

func (p *Prober) now() wire.Time { return wire.Time(p.opt.Clock.Now().UnixNano()) }

// newClient makes a client that trusts the roots given, or the system's.
func newClient(secure *tls.Config) *http.Client {
	const most = 3
	return &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:        secure,
			DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			TLSHandshakeTimeout:    5 * time.Second,
			MaxIdleConnsPerHost:    1,
			IdleConnTimeout:        30 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if req.URL.Host != via[0].URL.Host || len(via) > most {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
}
