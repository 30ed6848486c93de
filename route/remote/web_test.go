package remote_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/kvscope/kvscope/route/remote"
	"github.com/kvscope/kvscope/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// page is what a server answers.
type page struct {
	status int
	body   string
}

// server answers by "METHOD /path" and keeps what it was sent.
type server struct {
	pages map[string]page

	mu    sync.Mutex
	asked []string // "METHOD /path body"
}

func (s *server) do(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what := req.Method + " " + req.URL.Path
	sent := what
	if req.Body != nil {
		b, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		sent += " " + string(b)
	}
	s.asked = append(s.asked, sent)
	p, ok := s.pages[what]
	if !ok {
		p = page{http.StatusNotFound, "nothing here"}
	}
	return &http.Response{StatusCode: p.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(p.body))}, nil
}

func (s *server) client() *remote.Client { return remote.New(remote.Options{Do: s.do}) }

// answering is a server with one answer.
func answering(what, body string) *server {
	return &server{pages: map[string]page{what: {http.StatusOK, body}}}
}

// sentOnly holds what a server was sent against what it should have been.
func (s *server) sentOnly(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(s.asked, want) {
		t.Errorf("sent\n%q\nwant\n%q", s.asked, want)
	}
}

func golden(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// numbers are the token ids from one number on.
func numbers(from, n int) []wire.Token {
	out := make([]wire.Token, n)
	for i := range out {
		out[i] = wire.Token(from + i)
	}
	return out
}

// prompt is what the recorded answers are about, and the replicas' names.
func prompt() remote.Prompt { return remote.Prompt{Model: "qwen3-mock", Tokens: numbers(7000, 150)} }

const (
	first  wire.Replica = "11030606589563204047/0" // holds 6 blocks of it
	second wire.Replica = "1446987359082716238/0"  // holds 3
	third  wire.Replica = "3812399129929448254/0"
	fourth wire.Replica = "8657593828892515168/0"
)

const host = "http://router:8000"
