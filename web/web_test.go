package web

import (
	"errors"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	u, err := Parse("http://me:secret1@h:8000/v1?token=secret2#secret3")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := Shown(u), "http://me:xxxxx@h:8000/v1"; got != want {
		t.Errorf("shown as %s, want %s", got, want)
	}
	for _, bad := range []string{
		"", "h:8000", "ftp://me:secret1@h/?token=secret2", "http://", "http://me:secret1@h:port", "http://h/" + strings.Repeat("x", maxURL),
	} {
		if _, err := Parse(bad); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestCause(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{
		Op: "dial", Net: "tcp", Source: &net.TCPAddr{Port: 48634}, Addr: &net.TCPAddr{Port: 8000},
		Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&url.Error{Op: "Get", URL: "http://h/?token=secret", Err: refused}, "connection refused"},
		{&net.DNSError{Name: "h", Err: "read udp 10.0.0.1:48634->10.0.0.2:53: i/o timeout"}, "no address of h: i/o timeout"},
		{&net.DNSError{Name: "h", Err: "no such host"}, "no address of h: no such host"},
		{errors.New("unexpected EOF"), "unexpected EOF"},
	} {
		if got := Cause(tt.err).Error(); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.err, got, tt.want)
		}
	}
}
