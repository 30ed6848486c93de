package fleet

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const (
	// serviceAccount is where Kubernetes puts a pod's credentials.
	serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"
	// perPage is the most slices that are asked for at a time, which have 100
	// endpoints each unless told otherwise, and maxPages how often that is done.
	perPage  = 20
	maxPages = 64
)

// endpointSlices lists the ready pods behind a service.
type endpointSlices struct {
	Kubernetes
	// ca is what the client trusts.
	ca     []byte
	client *http.Client
}

// sliceList is the part of an EndpointSliceList that is read.
type sliceList struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []struct {
		AddressType string `json:"addressType"`
		Endpoints   []struct {
			Addresses  []string `json:"addresses"`
			Conditions struct {
				Ready *bool `json:"ready"`
			} `json:"conditions"`
			TargetRef *struct {
				Kind string `json:"kind"`
				Name string `json:"name"`
			} `json:"targetRef"`
		} `json:"endpoints"`
	} `json:"items"`
}

func (k *endpointSlices) targets(ctx context.Context, p *Prober) ([]target, error) {
	targets, err := k.list(ctx, p)
	var status *StatusError
	switch {
	case errors.As(err, &status) && (status.Status == http.StatusForbidden || status.Status == http.StatusUnauthorized):
		err = fmt.Errorf("%w: give the pod's service account a Role with verb list on endpointslices of discovery.k8s.io", err)
	case errors.As(err, &status) && status.Status == http.StatusGone:
		err = fmt.Errorf("%w: the list changed while it was read", err)
	}
	if err != nil {
		return nil, fmt.Errorf("kubernetes %s: %w", k.Service, err)
	}
	return targets, nil
}

func (k *endpointSlices) list(ctx context.Context, p *Prober) ([]target, error) {
	api, err := kubeAPI(p.opt.Getenv)
	if err != nil {
		return nil, err
	}
	account := p.opt.OpenDir(serviceAccount)
	token, err := fs.ReadFile(account, "token")
	if err != nil {
		return nil, fmt.Errorf("the service account's token: %w: mount it (automountServiceAccountToken)", err)
	}
	do, err := k.doer(p, account)
	if err != nil {
		return nil, err
	}
	namespace := k.Namespace
	if namespace == "" {
		own, err := fs.ReadFile(account, "namespace")
		if namespace = strings.TrimSpace(string(own)); err != nil || namespace == "" || !isLabel(namespace) {
			return nil, errors.New("the pod's own namespace is not to be found: give namespace")
		}
	}
	base := api + "/apis/discovery.k8s.io/v1/namespaces/" + namespace + "/endpointslices?"
	query := url.Values{
		"labelSelector": {"kubernetes.io/service-name=" + k.Service},
		"limit":         {fmt.Sprint(perPage)},
	}
	pods := map[string]target{}
	for range maxPages {
		page, err := p.get(ctx, do, base+query.Encode(), strings.TrimSpace(string(token)))
		if err != nil {
			return nil, err
		}
		var list sliceList
		if err := json.Unmarshal(page.Body, &list); err != nil {
			return nil, fmt.Errorf("GET %s: the answer is no list of EndpointSlices", page.URL)
		}
		if err := k.add(pods, &list); err != nil {
			return nil, err
		}
		if list.Metadata.Continue == "" {
			targets := make([]target, 0, len(pods))
			for _, t := range pods {
				targets = append(targets, t)
			}
			slices.SortFunc(targets, func(a, b target) int { return cmp.Compare(a.Name, b.Name) })
			return targets, nil
		}
		query.Set("continue", list.Metadata.Continue)
	}
	return nil, fmt.Errorf("more than %d pages of %d EndpointSlices: give the service fewer endpoints", maxPages, perPage)
}

// add takes the ready endpoints of a page. A pod of both families is in two
// slices; its IPv4 address is taken.
func (k *endpointSlices) add(pods map[string]target, list *sliceList) error {
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			ready := e.Conditions.Ready == nil || *e.Conditions.Ready
			if !ready || len(e.Addresses) == 0 {
				continue
			}
			// The addresses of one endpoint are the same; clients use the first.
			host := e.Addresses[0]
			name := net.JoinHostPort(host, fmt.Sprint(cmp.Or(k.HTTP, k.Events)))
			if e.TargetRef != nil && e.TargetRef.Kind == "Pod" && len(e.TargetRef.Name) <= maxWord {
				name = cmp.Or(e.TargetRef.Name, name)
			}
			if net.ParseIP(host) == nil && !isLabel(host) {
				return fmt.Errorf("the endpoint %q has no address", name)
			}
			if _, twice := pods[name]; twice && slice.AddressType != "IPv4" {
				continue
			}
			if pods[name] = (target{k.at(name, host), "kubernetes " + k.Service}); len(pods) > maxMembers {
				return fmt.Errorf("more than %d endpoints: give a service with fewer", maxMembers)
			}
		}
	}
	return nil
}

// kubeAPI is the address of the API server, as each pod is told.
func kubeAPI(getenv func(string) string) (string, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return "", errors.New("KUBERNETES_SERVICE_HOST and _PORT are not set: run kvscope in a pod of the cluster, or give dns or replicas")
	}
	return "https://" + net.JoinHostPort(host, port), nil
}

// doer gives what carries out requests: a client that trusts the cluster's
// authority, unless one was injected.
func (k *endpointSlices) doer(p *Prober, account fs.FS) (func(*http.Request) (*http.Response, error), error) {
	if p.injected {
		return p.opt.Do, nil
	}
	ca, err := fs.ReadFile(account, "ca.crt")
	if err != nil {
		return nil, fmt.Errorf("the cluster's authority: %w: mount the service account", err)
	}
	if k.client == nil || !bytes.Equal(ca, k.ca) {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(ca) {
			return nil, errors.New("the cluster's authority: ca.crt holds no certificate: mount the service account")
		}
		k.client, k.ca = newClient(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}), ca
	}
	return k.client.Do, nil
}
