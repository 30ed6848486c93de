// Package web is what all who ask HTTP servers share: how an address is read, and
// what of it and of an error is for people. Addresses can hold passwords and
// tokens. Functions are safe for concurrent use.
package web

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
)

// maxURL bounds a URL, in bytes.
const maxURL = 2 << 10

// Parse reads the address of an HTTP server. Its error shows no password and no
// query.
func Parse(raw string) (*url.URL, error) {
	if len(raw) > maxURL {
		return nil, fmt.Errorf("a URL of %d bytes: the limit is %d", len(raw), maxURL)
	}
	u, err := url.Parse(raw)
	if err != nil { // the error repeats the URL, with its password
		return nil, errors.New("not a URL: give http://host:port")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, fmt.Errorf("%q is no address of an HTTP server: give http://host:port", Shown(u))
	}
	return u, nil
}

// Shown writes a URL for people, without what can be a secret.
func Shown(u *url.URL) string {
	without := *u
	without.RawQuery, without.ForceQuery, without.Fragment, without.RawFragment = "", false, "", ""
	return without.Redacted()
}

// Cause leaves out what package net puts before an error: the URL, which the
// caller names, and our own port, which is another one each time.
func Cause(err error) error {
	var fromURL *url.Error
	if errors.As(err, &fromURL) {
		err = fromURL.Err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	var call *os.SyscallError
	if errors.As(err, &call) {
		err = call.Err
	}
	// How a name server was reached is in the text alone.
	var dns *net.DNSError
	if errors.As(err, &dns) {
		words := dns.Err
		if strings.Contains(words, "->") {
			words = words[strings.LastIndex(words, ": ")+1:]
		}
		err = fmt.Errorf("no address of %s: %s", dns.Name, strings.TrimSpace(words))
	}
	return err
}
