package registry

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/tlog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/upstream"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/follow"
	"ronbox/engines/registry/record"
	"ronbox/httpapi"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	registryapi "ronbox/httpapi/wire/registry"
)

// Bounds of the requests to a hub.
const (
	hubTimeout = 30 * time.Second // of a try, with its body
	hubTries   = 5                // of a request that the hub was too busy for, or that broke off
	hubDelay   = 250 * time.Millisecond
	hubAnswer  = 4 << 20 // bytes of an answer that is no version
	hubIdle    = 45 * time.Second
	hubStream  = 24 * time.Hour // then the stream is opened again
	hubHeard   = 1 << 30        // bytes of a stream
)

// Hub reads the log of another node by its public routes. It is the follow.Hub of a follower.
type Hub struct {
	url     string
	rule    upstream.NodeRule
	catalog *flow.Catalog
	metrics *obs.Metrics
	http    *upstream.Client // set by Open
}

var _ follow.Hub = (*Hub)(nil)

// NewHub returns the hub at a URL. Own lists the listeners of this node, which are not called.
// Private networks are called only if they are in allow.
func NewHub(c *flow.Catalog, m *obs.Metrics, url string, allow []netip.Prefix, own []netip.AddrPort) *Hub {
	return &Hub{
		url: strings.TrimRight(url, "/"), catalog: c, metrics: m,
		rule: upstream.NodeRule{Plain: true, Allow: allow, Own: own}, // the operator has written the URL
	}
}

// Open makes the hub callable, with the trusted roots, nil for the system's. Call it once, before
// any request.
func (h *Hub) Open(roots *x509.CertPool) error {
	h.rule.Roots = roots
	spec, err := h.rule.Spec(h.url, nil, upstream.Spec{
		Service: service, Svc: "hub", Op: "follow", Timeout: hubTimeout, Tries: hubTries, Again: tryAgain,
		Delay: func(n int) time.Duration { return hubDelay << n },
	})
	if err != nil {
		return err
	}
	h.http = upstream.New(h.catalog, h.metrics, spec)
	return nil
}

// Close closes idle connections.
func (h *Hub) Close() {
	if h.http != nil {
		h.http.Close()
	}
}

// tryAgain reports whether a failed request may soon succeed: the hub is busy, or the connection
// broke.
func tryAgain(err error) bool {
	switch upstream.StatusOf(err) {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case 0:
	default:
		return false
	}
	for _, final := range []error{
		upstream.ErrURL, upstream.ErrRedirect, upstream.ErrTooLarge, upstream.ErrAddress, context.Canceled,
	} {
		if errors.Is(err, final) {
			return false
		}
	}
	return !upstream.IsOwn(err) && !upstream.IsConnect(err)
}

// URL returns the URL of the hub.
func (h *Hub) URL() string { return h.url }

// get reads an answer of the hub of at most most bytes.
func (h *Hub) get(ctx context.Context, path string, most int64) (raw []byte, err error) {
	err = h.http.Get(ctx, upstream.Request{URL: h.url + path, Max: most}, func(a *upstream.Answer) (err error) {
		if a.Unframed {
			return errors.New("the answer has no length")
		}
		raw, err = io.ReadAll(a.Body)
		return err
	})
	switch {
	case err == nil:
		return raw, nil
	case upstream.StatusOf(err) == http.StatusNotFound:
		return nil, fmt.Errorf("GET %s%s: %w", h.url, path, document.ErrNotFound)
	case upstream.StatusOf(err) == http.StatusGone:
		return nil, fmt.Errorf("GET %s%s: %w", h.url, path, document.ErrPruned)
	}
	return nil, fmt.Errorf("GET %s%s: %w", h.url, path, err)
}

// ask reads an answer in JSON of at most most bytes.
func ask[T any](ctx context.Context, h *Hub, path string, most int64) (out T, err error) {
	raw, err := h.get(ctx, path, most)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	return out, err
}

// Checkpoint implements follow.Hub.
func (h *Hub) Checkpoint(ctx context.Context) ([]byte, error) {
	return h.get(ctx, prefix+"checkpoint", hubAnswer)
}

// Entry implements follow.Hub.
func (h *Hub) Entry(ctx context.Context, v uint64) ([]byte, error) {
	return h.get(ctx, prefix+decimal(v)+"/entry", record.MaxEntry)
}

// Payload implements follow.Hub.
func (h *Hub) Payload(ctx context.Context, v uint64) ([]byte, error) {
	return h.get(ctx, prefix+decimal(v)+"/payload", record.MaxPayload)
}

// Horizon implements follow.Hub.
func (h *Hub) Horizon(ctx context.Context) (registryapi.Horizon, error) {
	return ask[registryapi.Horizon](ctx, h, prefix+"horizon", hubAnswer)
}

// Items implements follow.Hub.
func (h *Hub) Items(ctx context.Context, v uint64) ([]jsontext.Value, error) {
	doc, err := ask[struct {
		Items hubItems `json:"items"`
	}](ctx, h, prefix+decimal(v), registryapi.MaxItems)
	if err != nil {
		return nil, err
	}
	return doc.Items, nil
}

// hubItems are the descriptors that a hub sends. They end at record.MaxItems: in memory an array of
// the shortest values takes twenty times its bytes.
type hubItems []jsontext.Value

// UnmarshalJSONFrom reads one descriptor after the other.
func (h *hubItems) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() != '[' {
		return errors.New("items must be an array")
	}
	_, err := dec.ReadToken()
	for err == nil && dec.PeekKind() != ']' {
		if len(*h) == record.MaxItems {
			return fmt.Errorf("%w: more than %d items", record.ErrHardLimit, record.MaxItems)
		}
		var one jsontext.Value
		one, err = dec.ReadValue()
		*h = append(*h, one.Clone())
	}
	if err == nil {
		_, err = dec.ReadToken()
	}
	return err
}

// Tile implements follow.Hub.
func (h *Hub) Tile(ctx context.Context, path string) ([]byte, error) {
	return h.get(ctx, prefix+"tile/"+path, hubAnswer)
}

// Consistency implements follow.Hub.
func (h *Hub) Consistency(ctx context.Context, from, to uint64) (tlog.TreeProof, error) {
	path := prefix + "proof/consistency?from=" + decimal(from) + "&to=" + decimal(to)
	p, err := ask[registryapi.ConsistencyProof](ctx, h, path, hubAnswer)
	return p.Hashes, err
}

// Hear implements follow.Hub.
func (h *Hub) Hear(ctx context.Context, after uint64, heard func(version uint64)) error {
	header := http.Header{"Accept": {"text/event-stream"}}
	if after > 0 {
		header["Last-Event-Id"] = []string{decimal(after)}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	return h.http.Get(ctx, upstream.Request{
		URL: h.url + prefix + "stream", Header: header, Max: hubHeard, Timeout: hubStream, Idle: hubIdle,
	}, func(a *upstream.Answer) error {
		frames := client.NewFrameReader(a.Body)
		for {
			f, err := frames.Next()
			if err != nil {
				stop() // it has ended, and the caller opens it again
				return err
			}
			if v, ok := versionOf(f); ok {
				heard(v)
			}
		}
	})
}

// versionOf returns the newest version that a frame names.
func versionOf(f client.Frame) (v uint64, ok bool) {
	switch f.Event {
	case registryapi.EventUpdate:
		v, err := strconv.ParseUint(f.ID, 10, 53)
		return v, err == nil
	case wire.EventHello:
		var hello registryapi.Hello
		err := json.Unmarshal(f.Data, &hello)
		return hello.Head.Version, err == nil
	case wire.EventLagged:
		var lagged registryapi.Lagged
		err := json.Unmarshal(f.Data, &lagged)
		return lagged.Head.Version, err == nil
	}
	return 0, false
}

// ageHeader names the seconds since the log of the hub was signed, on a follower.
const ageHeader = "X-Registry-Age"

// Copy describes the copy that a follower serves.
type Copy interface {
	Follows() error                       // why the node takes no versions
	Age() (age time.Duration, known bool) // since the hub has signed the newest checkpoint
}

// Follower changes the routes of a node that follows another. Writes are refused, whatever they
// contain, and reads carry the age of the copy.
func Follower(s httpapi.Service, of Copy) httpapi.Service {
	for i := range s.Routes {
		r := &s.Routes[i]
		switch {
		case r.Writes():
			r.Refuse = of.Follows
		case r.Class == httpapi.ClassRead:
			r.Handle, r.Expose = aged(of, r.Handle), append(r.Expose, ageHeader)
		}
	}
	return s
}

// aged adds the age of the copy to an answer.
func aged(of Copy, next httpapi.Handler) httpapi.Handler {
	return func(c *httpapi.Request) error {
		if age, known := of.Age(); known {
			c.Set(ageHeader, strconv.FormatInt(int64(age/time.Second), 10))
		}
		return next(c)
	}
}

func decimal(v uint64) string { return strconv.FormatUint(v, 10) }
