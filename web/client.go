package web

import (
	"net"
	"net/http"
	"time"
)

// Client makes a client for few questions that can hold a prompt: it uses no proxy
// and follows no redirect, since a prompt is for the server that was named. How long
// a question may take is the caller's business.
func Client() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			TLSHandshakeTimeout:    5 * time.Second,
			DisableKeepAlives:      true,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
