package index

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/upstream"
	"ronbox/engines/fleet/lines"
	"ronbox/engines/index"
	"ronbox/engines/index/name"
	"ronbox/httpapi"
)

// hopHeader asks a node to answer from its own file only. Nodes send it when they ask each other,
// so that only the node that a client asked fans out.
const hopHeader = "Ron-Hop-Budget"

// maxAnswer bounds the bytes of a peer's answer. A hundred records of the largest size take a
// quarter of it.
const maxAnswer = 1 << 20

// peerTimeout is longer than every lookup deadline, so the context of the lookup ends first.
const peerTimeout = lookupDeadline

// Peer asks another node over HTTP. It implements [index.Peer].
type Peer struct {
	catalog *flow.Catalog
	metrics *obs.Metrics
	target  string
	region  atomic.Pointer[string] // a new version of a node's item may change it
	access  atomic.Pointer[access]
}

// access holds the client and the headers for calls of a peer. It is immutable.
type access struct {
	Access
	base   string      // URL without a trailing slash
	line   *lines.Line // of a node of the fleet; nil: of a peer of the configuration
	client *upstream.Client
	header http.Header // of every request
}

// NewPeer returns the peer of an entry of index.peers. Until SetAccess, the peer is called without
// a token and verified by the system's certificates. NewPeer does no I/O.
func NewPeer(c *flow.Catalog, m *obs.Metrics, entry string) (*Peer, error) {
	at, region, err := index.SplitPeer(entry)
	if err != nil {
		return nil, err
	}
	p := &Peer{catalog: c, metrics: m, target: at.Host}
	p.region.Store(&region)
	p.access.Store(p.newAccess(at.Scheme+"://"+at.Host, Access{}))
	return p, nil
}

func (p *Peer) newAccess(base string, a Access) *access {
	spec := p.spec()
	spec.Guard, spec.Roots = anywhere(), a.roots
	out := &access{Access: a, base: base, client: upstream.New(p.catalog, p.metrics, spec), header: header()}
	if a.token != "" {
		out.header.Set("Authorization", "Bearer "+a.token)
	}
	return out
}

// spec returns the settings of calls that do not depend on the peer.
func (p *Peer) spec() upstream.Spec {
	return upstream.Spec{
		Service: service,
		Svc:     p.target,
		Op:      "lookup",
		Timeout: peerTimeout,
		Tries:   1,
		Delay:   func(int) time.Duration { return 0 },
	}
}

func header() http.Header {
	return http.Header{hopHeader: {"0"}, "Accept": {httpapi.TypeJSON}, "User-Agent": {"ronbox"}}
}

// SetAccess uses a for calls that begin from now on. It keeps the open connections if a is
// unchanged.
func (p *Peer) SetAccess(a Access) {
	if now := p.access.Load(); now.token != a.token || !bytes.Equal(now.ca, a.ca) {
		p.access.Swap(p.newAccess(now.base, a)).client.Close()
	}
}

// anywhere allows all addresses: the operator configured the peer, and nodes of one site have
// private addresses.
func anywhere() upstream.Guard {
	return upstream.Guard{Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}}
}

// Target returns the host and port of the peer. Region returns its region.
func (p *Peer) Target() string { return p.target }
func (p *Peer) Region() string { return *p.region.Load() }

// Close closes idle connections.
func (p *Peer) Close() { p.access.Load().client.Close() }

// routed is an answer of Delegated Routing. Unknown members and records of other schemas are
// ignored.
type routed struct {
	Providers []struct {
		Schema string
		ID     string
		Addrs  []string
		Ron    []byte `json:"ron"`
	}
}

// Providers returns at most limit providers of cid. Records without a valid peer id are left out.
func (p *Peer) Providers(ctx context.Context, cid b3.Digest, limit int) ([]name.Provider, error) {
	var got routed
	err := p.get(ctx, "/routing/v1/providers/"+name.CIDText(cid), &got)
	if errors.Is(err, name.ErrNotFound) {
		return nil, nil // older servers of the standard answer 404 if they know no provider
	}
	if err != nil {
		return nil, err
	}
	out := make([]name.Provider, 0, min(len(got.Providers), limit))
	for _, r := range got.Providers {
		if len(out) == limit {
			break
		}
		id, err := name.ParsePeerID(r.ID)
		if err != nil || r.Schema != schemaPeer && r.Schema != "bitswap" {
			continue
		}
		out = append(out, name.Provider{Peer: id, Addrs: r.Addrs, Record: r.Ron})
	}
	return out, nil
}

// Name returns the signed name record of key.
func (p *Peer) Name(ctx context.Context, key name.Key) ([]byte, error) {
	var got struct {
		Record []byte `json:"record"`
	}
	if err := p.get(ctx, "/resolve/"+url.PathEscape(key.String()), &got); err != nil {
		return nil, err
	}
	if got.Record == nil {
		return nil, fmt.Errorf("%w: it has no signed record", name.ErrInvalid)
	}
	return got.Record, nil
}

// get fetches a JSON document and decodes it into into.
func (p *Peer) get(ctx context.Context, path string, into any) error {
	by := p.access.Load()
	request := upstream.Request{URL: by.base + path, Header: by.header, Max: maxAnswer}
	err := by.client.Get(ctx, request, func(a *upstream.Answer) error {
		raw, err := io.ReadAll(a.Body)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(raw, into); err != nil {
			return fmt.Errorf("%w: it is not the expected JSON", name.ErrInvalid)
		}
		return nil
	})
	return sortError(ctx, err)
}

// sortError maps an error of a call to the errors that [index.Peer] documents.
func sortError(ctx context.Context, err error) error {
	var status *upstream.StatusError
	var dns *net.DNSError
	switch {
	case err == nil || errors.Is(err, name.ErrInvalid):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &status):
		return statusError(status.Status)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", name.ErrPeerTimeout, err)
	case errors.As(err, &dns), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return fmt.Errorf("%w: %w", name.ErrNoRoute, err)
	case errors.Is(err, upstream.ErrTooLarge),
		errors.Is(err, upstream.ErrRedirect),
		errors.Is(err, upstream.ErrURL),
		errors.Is(err, upstream.ErrAddress):
		return fmt.Errorf("%w: %w", name.ErrInvalid, err)
	}
	return fmt.Errorf("%w: %w", name.ErrTransient, err)
}

// statusError maps the status of a refusal to an error of [index.Peer].
func statusError(status int) error {
	kind := name.ErrInvalid
	switch {
	case status == http.StatusNotFound:
		kind = name.ErrNotFound
	case status == http.StatusNotImplemented:
		kind = name.ErrNoRoute
	case status == http.StatusTooManyRequests, status >= http.StatusInternalServerError:
		kind = name.ErrTransient
	}
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		return fmt.Errorf("%w: it answered %d: index.peer_tokens must name a token of it with the scope index.read",
			kind, status)
	}
	return fmt.Errorf("%w: it answered %d", kind, status)
}
