package index

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/index"
	"ronbox/engines/upstream"
	"ronbox/httpapi"
)

// hopHeader asks a node for what it knows by itself: only the node that a client has asked asks others.
const hopHeader = "Ron-Hop-Budget"

// maxAnswer bounds the answer of a peer, bytes: a hundred records of the largest size are a quarter of it.
const maxAnswer = 1 << 20

// peerTimeout is above every deadline of a lookup, whose context ends first.
const peerTimeout = lookupDeadline

// Peer asks another node. It implements index.Peer.
type Peer struct {
	base   string // URL without a slash at its end
	target string
	region string
	client *upstream.Client
	header http.Header // of every request
}

// NewPeer is the peer that an entry of index.peers names. It does no I/O.
func NewPeer(c *flow.Catalog, m *obs.Metrics, entry string) (*Peer, error) {
	at, region, err := index.SplitPeer(entry)
	if err != nil {
		return nil, err
	}
	return &Peer{
		base: at.Scheme + "://" + at.Host, target: at.Host, region: region,
		client: upstream.New(c, m, upstream.Spec{
			Service: service, Svc: at.Host, Op: "lookup", Guard: anywhere(), Timeout: peerTimeout, Tries: 1, Delay: func(int) time.Duration { return 0 },
		}),
		header: http.Header{hopHeader: {"0"}, "Accept": {httpapi.TypeJSON}, "User-Agent": {"ronbox"}},
	}, nil
}

// anywhere guards nothing: the operator has written the address down, and nodes of one site have private ones.
func anywhere() upstream.Guard {
	return upstream.Guard{Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}}
}

// Target is its host and port, and Region what the configuration says of it.
func (p *Peer) Target() string { return p.target }
func (p *Peer) Region() string { return p.region }

// Close lets go of its idle connections.
func (p *Peer) Close() { p.client.Close() }

// routed is an answer of Delegated Routing. Members that are not listed, and records of other schemas, are ignored.
type routed struct {
	Providers []struct {
		Schema string
		ID     string
		Addrs  []string
		Ron    []byte `json:"ron"`
	}
}

// Providers asks for who serves cid. A record that names no peer is left out.
func (p *Peer) Providers(ctx context.Context, cid b3.Digest, limit int) ([]index.Provider, error) {
	var got routed
	err := p.get(ctx, "/routing/v1/providers/"+index.CIDText(cid), &got)
	if errors.Is(err, index.ErrNotFound) {
		return nil, nil // older servers of the standard say so
	}
	if err != nil {
		return nil, err
	}
	out := make([]index.Provider, 0, min(len(got.Providers), limit))
	for _, r := range got.Providers {
		if len(out) == limit {
			break
		}
		id, err := index.ParsePeerID(r.ID)
		if err != nil || r.Schema != schemaPeer && r.Schema != "bitswap" {
			continue
		}
		out = append(out, index.Provider{Peer: id, Addrs: r.Addrs, Record: r.Ron})
	}
	return out, nil
}

// Name asks for the signed record of key.
func (p *Peer) Name(ctx context.Context, key index.Key) ([]byte, error) {
	var got struct {
		Record []byte `json:"record"`
	}
	if err := p.get(ctx, "/resolve/"+url.PathEscape(key.String()), &got); err != nil {
		return nil, err
	}
	if got.Record == nil {
		return nil, fmt.Errorf("%w: it has no signed record", index.ErrInvalid)
	}
	return got.Record, nil
}

// get asks for a document and decodes it.
func (p *Peer) get(ctx context.Context, path string, into any) error {
	err := p.client.Get(ctx, upstream.Request{URL: p.base + path, Header: p.header, Max: maxAnswer}, func(a *upstream.Answer) error {
		raw, err := io.ReadAll(a.Body)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(raw, into); err != nil {
			return fmt.Errorf("%w: it is no JSON of the kind", index.ErrInvalid)
		}
		return nil
	})
	return sortError(ctx, err)
}

// sortError says of an error of upstream in which of the ways of index.Peer the peer failed.
func sortError(ctx context.Context, err error) error {
	var status *upstream.StatusError
	var dns *net.DNSError
	switch {
	case err == nil || errors.Is(err, index.ErrInvalid):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &status):
		return statusError(status.Status)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", index.ErrPeerTimeout, err)
	case errors.As(err, &dns), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return fmt.Errorf("%w: %w", index.ErrNoRoute, err)
	case errors.Is(err, upstream.ErrTooLarge), errors.Is(err, upstream.ErrRedirect), errors.Is(err, upstream.ErrURL), errors.Is(err, upstream.ErrAddress):
		return fmt.Errorf("%w: %w", index.ErrInvalid, err)
	}
	return fmt.Errorf("%w: %w", index.ErrTransient, err)
}

// statusError is a refusal by its status.
func statusError(status int) error {
	kind := index.ErrInvalid
	switch {
	case status == http.StatusNotFound:
		kind = index.ErrNotFound
	case status == http.StatusNotImplemented:
		kind = index.ErrNoRoute
	case status == http.StatusTooManyRequests, status >= http.StatusInternalServerError:
		kind = index.ErrTransient
	}
	return fmt.Errorf("%w: it answered %d", kind, status)
}
