package fleet_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// web is the HTTP servers of a test: answers by URL, 404 for other paths of
// the hosts that have any, and refused connections elsewhere.
type web struct {
	mu    sync.Mutex
	pages map[string]string
	// down hosts refuse connections.
	down map[string]bool
	// asked counts requests by URL.
	asked map[string]int
	// other is asked first, if it is there.
	other func(*http.Request) *http.Response
	// methods other than GET are mistakes.
	mistakes []string
}

func newWeb(pages map[string]string) *web {
	if pages == nil {
		pages = map[string]string{}
	}
	return &web{pages: pages, down: map[string]bool{}, asked: map[string]int{}}
}

func (w *web) do(req *http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	url := req.URL.String()
	w.asked[url]++
	if req.Method != http.MethodGet || req.Body != nil {
		w.mistakes = append(w.mistakes, req.Method+" "+url)
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	if w.other != nil {
		if resp := w.other(req); resp != nil {
			return resp, nil
		}
	}
	if body, ok := w.pages[url]; ok && !w.down[req.URL.Host] {
		return answer(http.StatusOK, body), nil
	}
	for known := range w.pages {
		if strings.HasPrefix(known, req.URL.Scheme+"://"+req.URL.Host+"/") && !w.down[req.URL.Host] {
			return answer(http.StatusNotFound, `{"detail":"Not Found"}`), nil
		}
	}
	// A port of our own is in it, which must not make a problem look new.
	return nil, &net.OpError{
		Op: "dial", Net: "tcp", Addr: &net.TCPAddr{Port: w.asked[url]},
		Err: fmt.Errorf("connect: %w", syscall.ECONNREFUSED),
	}
}

func (w *web) set(url, body string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pages[url] = body
}

func (w *web) switchOff(host string, off bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down[host] = off
}

func (w *web) count(url string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[url]
}

// harmless fails the test if anything but a GET was sent.
func (w *web) harmless(t *testing.T) {
	t.Helper()
	if len(w.mistakes) > 0 {
		t.Errorf("sent %q", w.mistakes)
	}
}

func answer(status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(body)),
	}
}

// texts are errors in words.
func texts(errs []error) []string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Error())
	}
	return out
}

// wantErrors holds errors against parts of their texts, one for each.
func wantErrors(t *testing.T, errs []error, want ...string) {
	t.Helper()
	if len(errs) != len(want) {
		t.Errorf("problems %q, want %d: %q", texts(errs), len(want), want)
		return
	}
	for i, err := range errs {
		if !strings.Contains(err.Error(), want[i]) {
			t.Errorf("problem %q, want %q in it", err, want[i])
		}
	}
}

var errTest = errors.New("the test says no")
