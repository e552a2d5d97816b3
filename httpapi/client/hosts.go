package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"ronbox/httpapi/wire"
)

// reasonNotLeader is the reason of a node that does not lead and can reach no node that does. It
// has done nothing.
const reasonNotLeader = "not_leader"

// avoidFor is the time for which a URL at which no node was reached is not taken from a
// [wire.LeaderHeader]: another member may reach a leader that this client does not.
const avoidFor = 10 * time.Second

// hosts are the URLs of the members of a cluster, or the one of a node. It is safe for concurrent
// use.
type hosts struct {
	urls  []string       // without a trailing slash
	first atomic.Int64   // index of the URL that the next request goes to
	dead  []atomic.Int64 // by URL: Unix ns at which no node was reached, or 0
}

// SplitURLs returns the URLs in a list that is separated by commas, as the environment variable
// RONBOX_URL may hold it. New checks them. It returns nil for an empty list.
func SplitURLs(list string) []string {
	if list == "" {
		return nil
	}
	out := strings.Split(list, ",")
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out
}

func newHosts(urls []string) (*hosts, error) {
	h := &hosts{dead: make([]atomic.Int64, len(urls))}
	for _, raw := range urls {
		base, err := parseBase(raw)
		if err != nil {
			return nil, err
		}
		h.urls = append(h.urls, base)
	}
	if len(h.urls) == 0 {
		_, err := parseBase("")
		return nil, err
	}
	return h, nil
}

// parseBase returns the URL of a node without a trailing slash.
func parseBase(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.ForceQuery ||
		u.Fragment != "" ||
		u.User != nil {
		return "", fmt.Errorf("node URL %q: want http://host:port or https://host:port", raw)
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// index returns the place of a URL, or -1 if the caller has not listed it.
func (h *hosts) index(raw string) int {
	base, err := parseBase(raw)
	if err != nil {
		return -1
	}
	for i, one := range h.urls {
		if one == base {
			return i
		}
	}
	return -1
}

// learn decides by the outcome of a request to the URL at which URL the next one goes to, and
// returns its index: that of the leader, if the answer names one that is listed, or the next one if
// at did not answer or does not lead.
func (h *hosts) learn(at int, leader string, err error) int {
	if errors.Is(err, ErrNotReachable) {
		h.dead[at].Store(time.Now().UnixNano())
	}
	next := at
	switch to := h.index(leader); {
	case to >= 0 && time.Since(time.Unix(0, h.dead[to].Load())) >= avoidFor:
		next = to
	case errors.Is(err, ErrUnknown) || repeatable(err):
		next = (at + 1) % len(h.urls)
	}
	h.first.CompareAndSwap(int64(at), int64(next))
	return next
}

// repeatable reports whether a request that has failed was not carried out, and another member may
// carry it out.
func repeatable(err error) bool {
	if p, ok := errors.AsType[*wire.Problem](err); ok {
		return p.Reason == reasonNotLeader && !p.Unknown()
	}
	return errors.Is(err, ErrNotReachable)
}

// send returns an answer with a status below 300 or one that k accepts. The caller closes its body.
// While the node starts, and so has done nothing, send tries again. A request that was not carried
// out goes to each other URL once, unless it has a stream for a body.
func (c *Client) send(ctx context.Context, k Call) (*http.Response, error) {
	at := int(c.hosts.first.Load())
	tried := make([]bool, len(c.hosts.urls))
	for {
		resp, leader, err := c.sendOnce(ctx, k, c.hosts.urls[at])
		if p, ok := errors.AsType[*wire.Problem](err); ok && p.Details["cause"] == "starting" && c.waitStart(ctx) {
			continue
		}
		if errors.Is(context.Cause(ctx), context.Canceled) {
			return resp, err // the caller has left, and the node may be well
		}
		tried[at] = true
		at = c.hosts.learn(at, leader, err)
		if !repeatable(err) || k.Stream != nil || ctx.Err() != nil {
			return resp, err
		}
		for n := 0; tried[at]; n++ {
			if n == len(tried) {
				return resp, err
			}
			at = (at + 1) % len(tried)
		}
	}
}
